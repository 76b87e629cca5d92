//! Peers of the launcher: user, identity and privileges.
//!
//! A uid alone is no proof: root of a container and a service without capabilities also have uid 0. The
//! process itself is inspected in a way that excludes reuse of its pid: its start time is read, it is sent a
//! nonce, the kernel reports the sender of each segment of the reply, and the start time is read again.

use std::fs;
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, UnixCredentials, getsockopt, recvmsg, setsockopt, sockopt,
};
use tranche_jobs::runner_protocol::LONGEST_MESSAGE;

use crate::identity::start_time_in;

/// The process that connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pid: i32,
    start_time: u64,
}

impl Peer {
    /// The peer of a connection; from here on the kernel reports the sender of each segment.
    pub(crate) fn of(stream: &UnixStream) -> Result<Self, String> {
        let peer = getsockopt(stream, sockopt::PeerCredentials).map_err(|errno| errno.to_string())?;
        setsockopt(stream, sockopt::PassCred, &true).map_err(|errno| errno.to_string())?;
        if peer.pid() <= 0 {
            return Err("its process is of a namespace that cannot be seen from here".into());
        }
        let start_time = start_time(peer.pid())?;
        Ok(Self { uid: peer.uid(), gid: peer.gid(), pid: peer.pid(), start_time })
    }

    /// One line before the deadline, all of it written by this process.
    pub(crate) fn line(&self, stream: &UnixStream, deadline: Instant) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // A timeout of zero would mean none.
            stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let (part, sender) = part(stream)?;
            if part.is_empty() || (line.len() + part.len()) as u64 > LONGEST_MESSAGE {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let own = sender.is_some_and(|sender| (sender.pid(), sender.uid()) == (self.pid, self.uid));
            if !own {
                return Err(io::Error::other("another process than the one that connected writes here"));
            }
            line.extend_from_slice(&part);
            if line.last() == Some(&b'\n') {
                return Ok(line);
            }
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Checks that the process may act for its user on this node; call after it has returned the nonce.
    pub(crate) fn may_attest(&self) -> Result<(), String> {
        let status = read(self.pid, "status")?;
        let confined = "jobs are submitted from the node itself, and this process is confined";
        let field =
            |name: &str| field(&status, name).ok_or_else(|| format!("its /proc/PID/status has no {name}"));
        if field("NSpid")?.split_ascii_whitespace().count() != 1 {
            return Err(format!("{confined} to a pid namespace, such as a container's"));
        }
        let own = fs::read_to_string("/proc/self/uid_map").map_err(|error| error.to_string())?;
        if read(self.pid, "uid_map")? != own {
            return Err(format!("{confined} to a user namespace"));
        }
        if self.uid == 0 {
            let init = read(1, "status")?;
            let all = capabilities(&init, "CapBnd").ok_or("/proc/1/status has no CapBnd")?;
            let has = capabilities(&status, "CapEff").ok_or("its /proc/PID/status has no CapEff")?;
            if all & !has != 0 {
                return Err(format!(
                    "{confined}: root without all of root's capabilities is no administrator of it"
                ));
            }
        }
        match start_time(self.pid)? == self.start_time {
            true => Ok(()),
            false => Err("it ended before it was answered".into()),
        }
    }
}

fn part(stream: &UnixStream) -> io::Result<(Vec<u8>, Option<UnixCredentials>)> {
    let mut bytes = vec![0; 64 << 10];
    // The buffer has space for credentials only, so the kernel closes any descriptors sent along.
    let mut room = cmsg_space!(UnixCredentials);
    let (count, sender) = {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let received = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut room), flags)?;
        let sender = received.cmsgs().into_iter().flatten().find_map(|message| match message {
            ControlMessageOwned::ScmCredentials(sender) => Some(sender),
            _ => None,
        });
        (received.bytes, sender)
    };
    bytes.truncate(count);
    Ok((bytes, sender))
}

fn read(pid: i32, name: &str) -> Result<String, String> {
    let path = format!("/proc/{pid}/{name}");
    fs::read_to_string(&path).map_err(|error| {
        format!("cannot look at it in {path}: {error}; where /proc is mounted with hidepid, give tranche-attest.service its group")
    })
}

fn start_time(pid: i32) -> Result<u64, String> {
    let stat = read(pid, "stat")?;
    start_time_in(&stat).ok_or_else(|| format!("/proc/{pid}/stat has no start time"))
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

fn capabilities(status: &str, name: &str) -> Option<u64> {
    u64::from_str_radix(field(status, name)?.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn status_fields_match_whole_names() {
        let status = "Name:\ta\nNSpid:\t7\t1\nCapEff:\t000001ffffffffff\nCapBnd:\t0000000000000000\n";
        assert_eq!(field(status, "NSpid").unwrap().split_ascii_whitespace().count(), 2);
        assert_eq!(capabilities(status, "CapEff"), Some(0x1ff_ffff_ffff));
        assert_eq!((capabilities(status, "CapBnd"), capabilities(status, "Cap")), (Some(0), None));
    }

    #[test]
    fn reply_from_another_process_is_rejected() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let peer = Peer::of(&ours).unwrap();
        let soon = Instant::now() + Duration::from_secs(20);
        (&theirs).write_all(b"one\n").unwrap();
        assert_eq!(peer.line(&ours, soon).unwrap(), b"one\n");
        let other = std::os::fd::OwnedFd::from(theirs.try_clone().unwrap());
        let mut echo = std::process::Command::new("echo").arg("two").stdout(other).spawn().unwrap();
        echo.wait().unwrap();
        assert!(peer.line(&ours, soon).unwrap_err().to_string().contains("another process"));
        drop(theirs);
        assert!(peer.line(&ours, soon).is_err());
    }
}
