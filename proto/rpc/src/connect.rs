//! Connections to the daemon over its unix sockets.
//!
//! A connection counts once the daemon has written to it, which it does at once. Until then the socket's queue may be
//! full of other users' connections, or the daemon may have closed this one because its user has too many: both pass,
//! so the client waits and retries.

use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect as connect_to, recv, setsockopt, socket,
    sockopt::SendTimeout,
};
use nix::sys::time::TimeVal;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use tranche_domain::text::visible;

use crate::v1::jobs_client::JobsClient;
use crate::v1::node_client::NodeClient;

/// Size limit of a reply in bytes: a list of a hundred thousand jobs, or a year's history of them.
const LONGEST_ANSWER: usize = 64 << 20;
/// File name of the socket that every user can open.
const EVERYBODYS: &str = "tranched.sock";
/// File name of the socket that only the daemon's own user can open: no other user can fill its queue.
pub const OPERATORS: &str = "admin.sock";
/// Longest time of all attempts together, where the socket is full or closes the connection.
const PERSISTENCE: Duration = Duration::from_secs(6);
/// Longest time that one attempt waits in the socket's queue.
const IN_LINE: Duration = Duration::from_secs(1);
/// First pause between two attempts; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(320);

/// Error of a daemon that could not be reached.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to tranched at {}: {cause}", visible(&.socket.display().to_string()))]
pub struct ConnectError {
    /// Path of the socket that was tried.
    pub socket: PathBuf,
    /// Error of the system call that failed.
    pub cause: io::Error,
}

/// Connects to the daemon at `socket`; an absent daemon is an error at once, without a wait.
pub async fn connect(socket: &Path) -> Result<NodeClient<Channel>, ConnectError> {
    dial(socket).await.map(NodeClient::new)
}

/// Connects to the daemon's job service at `socket`, as [`connect`] does.
pub async fn connect_to_jobs(socket: &Path) -> Result<JobsClient<Channel>, ConnectError> {
    dial(socket).await.map(|channel| JobsClient::new(channel).max_decoding_message_size(LONGEST_ANSWER))
}

async fn dial(socket: &Path) -> Result<Channel, ConnectError> {
    let failed = |cause| ConnectError { socket: socket.to_owned(), cause };
    // Connects before the channel does, whose errors are less specific.
    let mut first = Some(reach(socket).await.map_err(failed)?);
    let path = socket.to_owned();
    let dial = tower::service_fn(move |_: Uri| {
        let (path, first) = (path.clone(), first.take());
        async move {
            match first {
                Some(stream) => Ok(TokioIo::new(stream)),
                None => reach(&path).await.map(TokioIo::new),
            }
        }
    });
    // The name is never resolved; HTTP/2 requires one.
    let channel = Endpoint::from_static("http://tranched").connect_with_connector(dial).await;
    channel.map_err(|error| failed(io::Error::other(error)))
}

/// A connection that the daemon accepts: over the operators' socket where this process can open it.
async fn reach(socket: &Path) -> io::Result<UnixStream> {
    if socket.ends_with(EVERYBODYS)
        && let Ok(stream) = UnixStream::connect(socket.with_file_name(OPERATORS)).await
        && is_served(&stream).await?
    {
        return Ok(stream);
    }
    let (deadline, mut pause) = (Instant::now() + PERSISTENCE, FIRST_PAUSE);
    loop {
        let closed = match queue_up(socket).await {
            Ok(stream) if is_served(&stream).await? => return Ok(stream),
            Ok(_) => io::Error::new(
                ErrorKind::ConnectionReset,
                "it closes each connection at once; likely your user has as many as it may",
            ),
            Err(error) if error.kind() == ErrorKind::WouldBlock => io::Error::new(
                ErrorKind::WouldBlock,
                "so many others wait to be let in that there is no place in the queue",
            ),
            Err(error) => return Err(error),
        };
        if Instant::now() + pause > deadline {
            return Err(closed);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Connects, blocking in the kernel's queue where the socket is full.
///
/// The kernel serves callers that block in the call first, so repeated attempts that do not block would lose against
/// them.
async fn queue_up(path: &Path) -> io::Result<UnixStream> {
    let path = path.to_owned();
    let connected = tokio::task::spawn_blocking(move || -> io::Result<std::os::unix::net::UnixStream> {
        let address = UnixAddr::new(&path)?;
        let stream = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&stream, SendTimeout, &TimeVal::new(IN_LINE.as_secs() as _, 0))?;
        connect_to(stream.as_raw_fd(), &address)?;
        setsockopt(&stream, SendTimeout, &TimeVal::new(0, 0))?;
        let stream = std::os::unix::net::UnixStream::from(stream);
        stream.set_nonblocking(true)?;
        Ok(stream)
    });
    UnixStream::from_std(connected.await.map_err(io::Error::other)??)
}

/// Waits for the peer's first byte or its close; true if it wrote.
async fn is_served(stream: &UnixStream) -> io::Result<bool> {
    let mut byte = [0];
    loop {
        stream.readable().await?;
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        match stream.try_io(Interest::READABLE, || Ok(recv(stream.as_raw_fd(), &mut byte, flags)?)) {
            Ok(count) => return Ok(count > 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    use std::thread::spawn;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn connection_that_is_closed_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(EVERYBODYS);
        let listener = UnixListener::bind(&path).unwrap();
        let daemon = spawn(move || {
            (0..3).for_each(|_| drop(listener.accept().unwrap()));
            listener.accept().unwrap().0.write_all(b"settings").unwrap();
        });
        runtime().block_on(reach(&path)).unwrap();
        daemon.join().unwrap();
    }

    #[test]
    fn operators_socket_is_preferred_and_not_required() {
        let folder = tempfile::tempdir().unwrap();
        let [everybodys, operators] = [EVERYBODYS, OPERATORS].map(|name| folder.path().join(name));
        let answering = |path: &Path, word: &'static [u8]| {
            let listener = UnixListener::bind(path).unwrap();
            spawn(move || listener.accept().unwrap().0.write_all(word).unwrap())
        };
        let heard = || {
            let mut byte = [0];
            runtime().block_on(async {
                let stream = reach(&everybodys).await.unwrap();
                recv(stream.as_raw_fd(), &mut byte, MsgFlags::empty()).unwrap();
            });
            byte[0]
        };
        let first = answering(&everybodys, b"e");
        assert_eq!(heard(), b'e');
        first.join().unwrap();
        let second = answering(&operators, b"o");
        assert_eq!(heard(), b'o');
        second.join().unwrap();
        // A socket that an ended daemon left behind.
        std::fs::remove_file(&everybodys).unwrap();
        let third = answering(&everybodys, b"e");
        assert_eq!(heard(), b'e');
        third.join().unwrap();
    }

    #[test]
    fn absent_daemon_is_an_answer_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let begun = Instant::now();
        let refused = runtime().block_on(reach(&folder.path().join(EVERYBODYS))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound);
        assert!(begun.elapsed() < PERSISTENCE);
    }
}
