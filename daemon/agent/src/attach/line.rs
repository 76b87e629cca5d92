//! The line of one process to its slice: frames on a socket, and whose they are by the kernel's word.
//!
//! A descriptor can be passed on or stolen, so who connected is not always who speaks. The kernel says with each piece who
//! wrote it (`SCM_CREDENTIALS`, unix(7)) and never glues together what different processes wrote.

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
use tranche_shm::message::{FRAME_BYTES, Frame, Reply};

use crate::sys;

/// Who is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writers {
    /// Everybody.
    Any,
    /// This process, and whoever wrote before the kernel was asked to say who it is.
    Unnamed(HostPid),
    /// This process.
    Only(HostPid),
}

impl Writers {
    /// Whether what this process wrote is heard; nothing if the kernel does not say who it was.
    fn include(self, writer: Option<HostPid>) -> bool {
        match self {
            Self::Any => true,
            Self::Unnamed(who) => writer.is_none_or(|writer| writer == who),
            Self::Only(who) => writer == Some(who),
        }
    }
}

/// The connection of one process.
pub(super) struct Line(AsyncFd<UnixStream>);

impl Line {
    pub(super) fn to(stream: UnixStream) -> io::Result<Self> {
        setsockopt(&stream, sockopt::PassCred, &true)?;
        sys::watch(stream).map(Self)
    }

    /// The next frame of those who are heard. What others write is dropped, and who they are is told.
    pub(super) async fn hear(&self, of: Writers, others: impl Fn(HostPid)) -> io::Result<Frame> {
        let mut frame = [0; FRAME_BYTES];
        let mut got = 0;
        while got < FRAME_BYTES {
            // Whoever says more than can be heard shall not keep others from being.
            consume_budget().await;
            // Most have said it before we ask, and then nothing has to be waited for.
            let (count, writer) = match self.hear_part(&mut frame[got..]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.0.async_io(Interest::READABLE, |_| self.hear_part(&mut frame[got..])).await?
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

    fn hear_part(&self, rest: &mut [u8]) -> io::Result<(usize, Option<HostPid>)> {
        // There is room for nothing but the writer's name: descriptors that come with it are closed by the kernel.
        let mut room = cmsg_space!(UnixCredentials);
        let mut parts = [IoSliceMut::new(rest)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let heard = recvmsg::<()>(self.0.as_raw_fd(), &mut parts, Some(&mut room), flags)?;
        if heard.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // Nothing is said where the message was cut short: that is nobody's word.
        let named = heard.cmsgs().into_iter().flatten().find_map(|message| match message {
            ControlMessageOwned::ScmCredentials(writer) => u32::try_from(writer.pid()).ok(),
            _ => None,
        });
        Ok((heard.bytes, named.filter(|pid| *pid != 0).map(HostPid::new)))
    }

    /// Says it at once, with the descriptors. Who asks one thing at a time and hears the answer always has room for the
    /// next; nobody waits for anybody else.
    pub(super) fn say(&self, reply: Reply, descriptors: &[RawFd]) -> io::Result<()> {
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
    async fn what_others_write_to_a_line_is_dropped_and_they_are_named() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let line = Line::to(ours).unwrap();
        let somebody = HostPid::new(1);
        theirs.write_all(&[7; FRAME_BYTES]).unwrap();
        drop(theirs);
        let told = AtomicBool::new(false);
        let heard = line.hear(Writers::Only(somebody), |who| told.store(who == me(), Relaxed)).await;
        assert_eq!(heard.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(told.load(Relaxed));
    }

    #[tokio::test]
    async fn the_owner_is_heard_and_who_wrote_before_the_kernel_was_asked_who_it_is() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[7; FRAME_BYTES]).unwrap();
        let line = Line::to(ours).unwrap();
        let nobody = |who| panic!("{who} is not heard");
        assert_eq!(line.hear(Writers::Unnamed(me()), nobody).await.unwrap(), [7; FRAME_BYTES]);
        theirs.write_all(&[8; FRAME_BYTES]).unwrap();
        assert_eq!(line.hear(Writers::Only(me()), nobody).await.unwrap(), [8; FRAME_BYTES]);
    }

    #[tokio::test]
    async fn whoever_writes_more_than_can_be_heard_keeps_nobody_else_from_being() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let line = Line::to(ours).unwrap();
        // More than one task may hear in a row, and no more than the socket holds.
        let frames = 200;
        (0..frames).for_each(|_| theirs.write_all(&[7; FRAME_BYTES]).unwrap());
        drop(theirs);
        let dropped = Arc::new(AtomicUsize::new(0));
        let meanwhile = Arc::clone(&dropped);
        let another = tokio::spawn(async move { meanwhile.load(Relaxed) });
        let count = |_| {
            dropped.fetch_add(1, Relaxed);
        };
        assert!(line.hear(Writers::Only(HostPid::new(1)), count).await.is_err());
        assert_eq!(dropped.load(Relaxed), frames);
        assert!(another.await.unwrap() < frames, "another task came when all was heard");
    }
}
