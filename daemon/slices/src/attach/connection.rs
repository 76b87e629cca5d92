//! Connection of one process to its slice. Frames on a socket, each with the sender's identity from the kernel.
//!
//! A descriptor can be passed on or stolen, so the sender of a frame need not be the process that connected. The
//! kernel attaches the sender to each part (`SCM_CREDENTIALS`, unix(7)) and never merges parts of different
//! processes.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg, sendmsg, setsockopt, sockopt,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::coop::consume_budget;
use tranche_domain::id::HostPid;
use tranche_shm::message::{DaemonReply, FRAME_BYTES, Frame};

use tranche_linux::sys;

/// Senders whose frames are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writers {
    /// All senders, unknown ones too.
    Any,
    /// This process, and senders of parts that were written before SO_PASSCRED was set, which are unknown.
    Unnamed(HostPid),
    /// This process alone; unknown senders are excluded.
    Only(HostPid),
}

impl Writers {
    /// Returns true if a part of this sender is accepted; `None` is an unknown sender.
    fn include(self, writer: Option<HostPid>) -> bool {
        match self {
            Self::Any => true,
            Self::Unnamed(who) => writer.is_none_or(|writer| writer == who),
            Self::Only(who) => writer == Some(who),
        }
    }
}

/// Stream of messages with one process on the attach socket.
pub(super) struct ProcessConnection(AsyncFd<UnixStream>);

impl ProcessConnection {
    pub(super) fn to(stream: UnixStream) -> io::Result<Self> {
        setsockopt(&stream, sockopt::PassCred, &true)?;
        sys::watch(stream).map(Self)
    }

    /// Receives the next frame of accepted senders. Parts of other senders are dropped, and each sender is passed to
    /// `others`.
    pub(super) async fn receive(&self, of: Writers, others: impl Fn(HostPid)) -> io::Result<Frame> {
        let mut frame = [0; FRAME_BYTES];
        let mut got = 0;
        while got < FRAME_BYTES {
            // Yields to other tasks, so that a continuous writer cannot starve other connections.
            consume_budget().await;
            // Usually the frame has arrived already, and there is no need to wait.
            let (count, writer) = match self.receive_part(&mut frame[got..]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.0.async_io(Interest::READABLE, |_| self.receive_part(&mut frame[got..])).await?
                }
                part => part?,
            };
            if of.include(writer) {
                got += count;
            } else {
                writer.into_iter().for_each(&others);
            }
        }
        Ok(frame)
    }

    fn receive_part(&self, rest: &mut [u8]) -> io::Result<(usize, Option<HostPid>)> {
        // Room for the credentials alone: the kernel closes descriptors that arrive with them.
        let mut room = cmsg_space!(UnixCredentials);
        let mut parts = [IoSliceMut::new(rest)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let received = recvmsg::<()>(self.0.as_raw_fd(), &mut parts, Some(&mut room), flags)?;
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // Truncated control data carries no credentials, so the sender is unknown.
        let named = received.cmsgs().into_iter().flatten().find_map(|message| match message {
            ControlMessageOwned::ScmCredentials(writer) => u32::try_from(writer.pid()).ok(),
            _ => None,
        });
        Ok((received.bytes, named.filter(|pid| *pid != 0).map(HostPid::new)))
    }

    /// Sends a reply with descriptors, without blocking. A client has at most one request in flight, so the socket
    /// has room.
    pub(super) fn send(&self, reply: DaemonReply, descriptors: &[RawFd]) -> io::Result<()> {
        let frame = reply.encode();
        let rights = [ControlMessage::ScmRights(descriptors)];
        let rights = if descriptors.is_empty() { &[][..] } else { &rights[..] };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        match sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(&frame)], rights, flags, None)? {
            FRAME_BYTES => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    use super::*;

    fn me() -> HostPid {
        HostPid::new(std::process::id())
    }

    #[tokio::test]
    async fn frames_of_other_processes_are_dropped_and_reported() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let line = ProcessConnection::to(ours).unwrap();
        let somebody = HostPid::new(1);
        theirs.write_all(&[7; FRAME_BYTES]).unwrap();
        drop(theirs);
        let told = AtomicBool::new(false);
        let received = line.receive(Writers::Only(somebody), |who| told.store(who == me(), Relaxed)).await;
        assert_eq!(received.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(told.load(Relaxed));
    }

    #[tokio::test]
    async fn unknown_early_sender_is_accepted_from_the_owner() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[7; FRAME_BYTES]).unwrap();
        let line = ProcessConnection::to(ours).unwrap();
        let nobody = |who| panic!("{who} is not heard");
        assert_eq!(line.receive(Writers::Unnamed(me()), nobody).await.unwrap(), [7; FRAME_BYTES]);
        theirs.write_all(&[8; FRAME_BYTES]).unwrap();
        assert_eq!(line.receive(Writers::Only(me()), nobody).await.unwrap(), [8; FRAME_BYTES]);
    }

    #[tokio::test]
    async fn continuous_writer_does_not_starve_others() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let line = ProcessConnection::to(ours).unwrap();
        // More than one task may receive in a row, and less than the socket buffer holds.
        let frames = 200;
        (0..frames).for_each(|_| theirs.write_all(&[7; FRAME_BYTES]).unwrap());
        drop(theirs);
        let dropped = Arc::new(AtomicUsize::new(0));
        let meanwhile = Arc::clone(&dropped);
        let another = tokio::spawn(async move { meanwhile.load(Relaxed) });
        let count = |_| {
            dropped.fetch_add(1, Relaxed);
        };
        assert!(line.receive(Writers::Only(HostPid::new(1)), count).await.is_err());
        assert_eq!(dropped.load(Relaxed), frames);
        assert!(another.await.unwrap() < frames, "another task came when all was heard");
    }
}
