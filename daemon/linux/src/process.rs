//! Processes as the kernel describes them: identity, ancestry, and the end.
//!
//! Nothing here relies on data that a process provides about itself.

use std::borrow::Borrow;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tranche_domain::id::{HostPid, InnerPid};
use tranche_domain::slice::ProcessId;
use tranche_domain::text::{LONGEST_NAME, visible_bytes};
use tranche_privileged::ProcessFile;

use crate::{privileges, sys};

/// Longest chain of ancestors that is followed.
const MOST_ANCESTORS: usize = 1024;

/// A process identified by pid and start time, with a pidfd.
#[derive(Debug)]
pub struct Process {
    /// Pid and start time.
    pub id: ProcessId,
    /// Parent at the time of `looked`.
    pub parent: HostPid,
    /// Time just before the parent was read.
    pub looked: Instant,
    handle: Arc<OwnedFd>,
}

impl Process {
    /// Opens the process that has this pid now.
    pub fn open(pid: HostPid) -> io::Result<Self> {
        Self::with_handle(pid, tranche_privileged::pidfd_open(pid.get())?)
    }

    /// Opens a known process; fails if its pid has been reused.
    pub fn reopen(id: ProcessId) -> io::Result<Self> {
        let process = Self::open(id.pid)?;
        if process.id == id { Ok(process) } else { Err(gone()) }
    }

    /// Opens the process that connected a socket.
    pub fn peer(socket: BorrowedFd<'_>, pid: HostPid) -> io::Result<Self> {
        match sys::peer_pidfd(socket) {
            Ok(handle) => Self::with_handle(pid, handle),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Self::open(pid),
            Err(error) => Err(error),
        }
    }

    /// The process of a pidfd, with its start time.
    ///
    /// That is read between opening the pidfd and the test that the process is still alive, so it belongs to it.
    fn with_handle(pid: HostPid, handle: OwnedFd) -> io::Result<Self> {
        let looked = Instant::now();
        // With no free descriptor to read `/proc`, the process still counts as alive.
        let unread = || if is_alive(&handle) { io::Error::other("it cannot be looked at") } else { gone() };
        let Lineage { id, parent } = Lineage::read(pid).ok_or_else(unread)?;
        let process = Self { id, parent, looked, handle: Arc::new(handle) };
        if process.is_alive() { Ok(process) } else { Err(gone()) }
    }

    /// Pidfd of the process, valid as long as this lives.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Returns true until the process has ended; a zombie has ended.
    pub fn is_alive(&self) -> bool {
        is_alive(&self.handle)
    }

    /// Pid in the process's own pid namespace, if that is another. Through the pidfd, or through `/proc` on kernels
    /// without that information.
    pub fn inner_pid(&self) -> Option<InnerPid> {
        let mut buffer = [0; ENOUGH];
        let info = File::open(format!("/proc/self/fdinfo/{}", self.handle.as_raw_fd()));
        let of_handle = start_of(info, &mut buffer);
        let of_handle = of_handle.and_then(|text| std::str::from_utf8(text).ok());
        match of_handle.and_then(pids_by_namespace) {
            Some(pids) => innermost(pids),
            None => inner_pid(self.id.pid),
        }
    }

    /// Sends `SIGKILL`, by the helper where the daemon may not.
    pub fn kill(&self) -> io::Result<()> {
        self.signal(Signal::SIGKILL)
    }

    /// Sends `SIGTERM`, by the helper where the daemon may not.
    pub fn ask_to_end(&self) -> io::Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Sends a signal through the pidfd.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        privileges::signal(self.handle.as_fd(), signal)
    }

    /// Tests if the process handles, blocks or ignores a signal, and so does not end by it at once. True if that cannot
    /// be read.
    pub fn outlives(&self, signal: Signal) -> bool {
        text(self.id.pid, ProcessFile::Status).map_or(true, |status| outlives(&status, signal))
    }

    /// Permits the process to open GPUs as a process of the slice of that generation.
    pub fn admit_to_gpus(&self, generation: u64) -> io::Result<()> {
        privileges::admit(self.handle.as_fd(), generation)
    }

    /// Returns when the process has ended. Only one task at a time can wait.
    pub async fn ended(&self) -> io::Result<()> {
        let watched = sys::watch(Arc::clone(&self.handle))?;
        watched.readable().await.map(drop)
    }
}

fn is_alive(handle: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut polled, PollTimeout::ZERO), Ok(0))
}

/// All pids that the kernel lists now.
pub fn all() -> Vec<HostPid> {
    let pid = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok().map(HostPid::new);
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(pid).collect()
}

/// Returns true if a process is known to have ended; false also where no descriptor is left to check.
pub fn has_ended(id: ProcessId) -> bool {
    let pid = i32::try_from(id.pid.get()).ok();
    let is_there = pid.is_some_and(|pid| kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH));
    !is_there || Process::reopen(id).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Returns true if any of these has ended, with one `poll` call for all.
pub fn any_ended(processes: &[impl Borrow<Process>]) -> bool {
    !processes.is_empty() && ended(processes).contains(&true)
}

/// Returns for each of these whether it has ended, with one `poll` call for all. If that fails, all count as ended.
pub fn ended(processes: &[impl Borrow<Process>]) -> Vec<bool> {
    let handles = processes.iter().map(|process| process.borrow().handle.as_fd());
    let mut polled: Vec<PollFd<'_>> = handles.map(|handle| PollFd::new(handle, PollFlags::POLLIN)).collect();
    let failed = !polled.is_empty() && poll(&mut polled, PollTimeout::ZERO).is_err();
    polled.iter().map(|polled| failed || polled.any().unwrap_or(true)).collect()
}

impl AsRawFd for Process {
    fn as_raw_fd(&self) -> RawFd {
        self.handle.as_raw_fd()
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the process has ended")
}

/// Identity and parent of a process, read at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lineage {
    id: ProcessId,
    parent: HostPid,
}

impl Lineage {
    /// Reads two fields of `/proc/PID/stat`. This runs for every process that attaches, so the other fifty are not
    /// parsed.
    fn read(pid: HostPid) -> Option<Self> {
        let mut buffer = [0; ENOUGH];
        let stat = start_of(file(pid, ProcessFile::Stat), &mut buffer)?;
        // The name before these fields is chosen by the program; it ends with the last parenthesis.
        let after = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let mut fields = std::str::from_utf8(&stat[after..]).ok()?.split_ascii_whitespace().skip(1);
        let parent = HostPid::new(fields.next()?.parse().ok()?);
        let start_time = fields.nth(17)?.parse().ok()?;
        Some(Self { id: ProcessId { pid, start_time }, parent })
    }
}

/// Size of a buffer for a kernel file, in bytes.
///
/// It holds the first twenty fields of `/proc/PID/stat` at any values, a pidfd's `fdinfo`, and the two lines of
/// `/proc/PID/timens_offsets`.
pub(crate) const ENOUGH: usize = 1024;

/// Beginning of a kernel file, which the kernel returns whole in the first read.
pub(crate) fn start_of(file: io::Result<File>, buffer: &mut [u8; ENOUGH]) -> Option<&[u8]> {
    let count = file.ok()?.read(buffer).ok()?;
    buffer.get(..count)
}

/// Opens a file of `/proc/PID`. The pid may be reused at any time.
pub fn file(pid: HostPid, file: ProcessFile) -> io::Result<File> {
    privileges::process_file(pid.get(), file)
}

/// Largest number of bytes that are read of a text in `/proc/PID`.
const MOST_TEXT: u64 = 64 << 10;

/// Text of a file of `/proc/PID`, up to 64 KiB.
pub fn text(pid: HostPid, which: ProcessFile) -> io::Result<String> {
    let mut bytes = Vec::new();
    file(pid, which)?.take(MOST_TEXT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A process and its ancestors, nearest first, as far as they can be followed reliably.
///
/// A parent's pid may be reused as soon as the parent has ended; then the child has another parent. So after each
/// step up the child is read again: only if it still has that parent did the step lead there.
pub fn ancestry(pid: HostPid) -> impl Iterator<Item = ProcessId> {
    let line = std::iter::successors(Lineage::read(pid), |child| parent_of(*child));
    line.take(MOST_ANCESTORS).map(|here| here.id)
}

fn parent_of(mut child: Lineage) -> Option<Lineage> {
    /// Number of times that the parent may change while it is being read.
    const ATTEMPTS: usize = 8;
    for _ in 0..ATTEMPTS {
        let parent = (child.parent.get() != 0).then(|| Lineage::read(child.parent)).flatten();
        let again = Lineage::read(child.id.pid).filter(|again| again.id == child.id)?;
        match parent {
            Some(parent) if again.parent == child.parent => return Some(parent),
            None if again.parent.get() == 0 => return None,
            _ => child = again,
        }
    }
    None
}

/// Pid in the process's own pid namespace, if that is another.
pub fn inner_pid(pid: HostPid) -> Option<InnerPid> {
    innermost(pids_by_namespace(&text(pid, ProcessFile::Status).ok()?)?)
}

/// Pids of a process from the daemon's namespace inwards, as a line of `status` or `fdinfo`.
fn pids_by_namespace(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("NSpid:"))
}

fn innermost(pids: &str) -> Option<InnerPid> {
    let mut pids = pids.split_ascii_whitespace();
    let (_host, innermost) = (pids.next()?, pids.next_back()?);
    innermost.parse().ok().map(InnerPid::new)
}

/// Effective user of a process.
pub fn uid(pid: HostPid) -> Option<u32> {
    effective_uid(&text(pid, ProcessFile::Status).ok()?)
}

/// Second of the real, effective, saved and file system user ids.
fn effective_uid(status: &str) -> Option<u32> {
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    uids.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Tests if a process with this status handles or ignores a signal, or its first thread blocks it.
fn outlives(status: &str, signal: Signal) -> bool {
    let set = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let bit = 1 << (signal as i32 - 1);
    ["SigCgt:", "SigIgn:", "SigBlk:"].into_iter().any(|name| set(name).is_some_and(|set| set & bit != 0))
}

/// Display name of a process. The kernel's short name for it, made printable, since a tenant chooses it; else empty.
///
/// The command line is not read: it lies in the memory of the process, which can make its reader hang.
pub fn command(pid: HostPid) -> String {
    let mut buffer = [0; ENOUGH];
    let stat = start_of(file(pid, ProcessFile::Stat), &mut buffer).unwrap_or_default();
    visible_bytes(short_name(stat).unwrap_or_default(), LONGEST_NAME)
}

/// Short name in `/proc/PID/stat`; it ends with the last parenthesis.
fn short_name(stat: &[u8]) -> Option<&[u8]> {
    let begin = stat.iter().position(|byte| *byte == b'(')? + 1;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(begin..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    #[test]
    fn handled_and_ignored_signals_do_not_end_a_process() {
        let status =
            "Name:\ta\nSigBlk:\t0000000000000800\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000004002\n";
        for (signal, survives) in [
            (Signal::SIGHUP, true),
            (Signal::SIGINT, true),
            (Signal::SIGTERM, true),
            (Signal::SIGUSR2, true),
            (Signal::SIGUSR1, false),
            (Signal::SIGKILL, false),
        ] {
            assert_eq!(outlives(status, signal), survives, "{signal}");
        }
        let mut child = sleeper();
        let process = Process::open(HostPid::new(child.id())).unwrap();
        assert!(!process.outlives(Signal::SIGTERM));
        process.kill().unwrap();
        child.wait().unwrap();
    }

    fn me() -> HostPid {
        HostPid::new(std::process::id())
    }

    #[test]
    fn ancestry_matches_the_kernel() {
        let stat = procfs::process::Process::myself().unwrap().stat().unwrap();
        let read = Lineage::read(me()).unwrap();
        assert_eq!((read.id.start_time, read.parent.get()), (stat.starttime, stat.ppid as u32));
        assert_eq!(Lineage::read(HostPid::new(u32::MAX)), None);
    }

    #[test]
    fn inner_pid_is_reported_where_it_differs() {
        let inner = |text| pids_by_namespace(text).and_then(innermost);
        assert_eq!(inner("Pid:\t70\nNSpid:\t70\t12\t1\n"), Some(InnerPid::new(1)));
        assert_eq!(inner("Pid:\t70\nNSpid:\t70\n"), None);
        assert_eq!(Process::open(me()).unwrap().inner_pid(), None);
        assert!(pids_by_namespace("Pid:\t70\n").is_none());
    }

    #[test]
    fn user_and_short_name_match_the_kernel() {
        assert_eq!(uid(me()), Some(nix::unistd::geteuid().as_raw()));
        assert_eq!(effective_uid("Name:\tx\nUid:\t1\t2\t3\t4\n"), Some(2));
        assert_eq!(short_name(b"7 (a) (b)) S 1"), Some(&b"a) (b)"[..]));
        assert_eq!((effective_uid(""), short_name(b"7 ()")), (None, Some(&b""[..])));
    }

    #[test]
    fn reopen_rejects_another_start_time() {
        let id = Process::open(me()).unwrap().id;
        let other = ProcessId { start_time: id.start_time + 1, ..id };
        assert!(Process::reopen(id).is_ok() && Process::reopen(other).is_err());
        assert!(!has_ended(id) && has_ended(other));
    }

    #[test]
    fn zombie_counts_as_ended() {
        let mut child = sleeper();
        let process = Process::open(HostPid::new(child.id())).unwrap();
        assert!(process.is_alive());
        process.kill().unwrap();
        while process.is_alive() {
            std::thread::yield_now();
        }
        assert!(Process::open(HostPid::new(child.id())).is_err());
        assert!(has_ended(process.id));
        child.wait().unwrap();
        assert!(has_ended(process.id));
    }

    #[test]
    fn command_is_the_file_name() {
        let mut child = sleeper();
        assert!(["sleep", "coreutils"].contains(&command(HostPid::new(child.id())).as_str()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(command(HostPid::new(u32::MAX)), "");
    }
}
