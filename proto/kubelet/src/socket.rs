//! Unix sockets of the kubelet and its plugins: calls, servers, and identity of socket files.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::Router;
use tonic::transport::{Channel, Endpoint, Uri};
use tranche_authority::LenientAuthority;

/// Time limit of an answer; the kubelet waits for the plugin meanwhile.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Failure of a call.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum SocketError {
    #[error("cannot connect to {}: {cause}", .path.display())]
    Connect { path: PathBuf, cause: io::Error },
    #[error("nothing answers at {} within {:?}", .path.display(), PATIENCE)]
    Silent { path: PathBuf },
    #[error("{} answers: {}", .path.display(), .status.message())]
    Answer { path: PathBuf, status: Box<tonic::Status> },
}

/// Connects, makes one call, and disconnects. A connection per call survives restarts of the peer and costs
/// little locally.
///
/// # Errors
/// If nothing is there, nothing answers, or the answer is an error.
pub async fn ask<T, F>(path: &Path, question: impl FnOnce(Channel) -> F) -> Result<T, SocketError>
where
    F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
{
    let asked = async {
        let channel =
            connect(path).await.map_err(|cause| SocketError::Connect { path: path.into(), cause })?;
        let answer = question(channel).await;
        let answer = answer.map(tonic::Response::into_inner);
        answer.map_err(|status| SocketError::Answer { path: path.into(), status: Box::new(status) })
    };
    timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(SocketError::Silent { path: path.into() }))
}

async fn connect(path: &Path) -> io::Result<Channel> {
    drop(UnixStream::connect(path).await?); // its error has the cause, which the channel's lacks
    let path = path.to_owned();
    let dial = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    // A placeholder for HTTP/2, which is never resolved.
    Endpoint::from_static("http://localhost").connect_with_connector(dial).await.map_err(io::Error::other)
}

/// Identity of a file: inode numbers are reused, but not with the same change time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(u64, u64, i64, i64);

impl Identity {
    /// Identity of the file at a path, if there is one.
    pub fn of(path: &Path) -> Option<Self> {
        let file = std::fs::symlink_metadata(path).ok()?;
        Some(Self(file.dev(), file.ino(), file.ctime(), file.ctime_nsec()))
    }
}

/// Connections that a socket takes, whatever authority their clients name.
pub type Connections = BoxedConnections<io::Result<LenientAuthority<UnixStream>>>;

type BoxedConnections<T> = std::pin::Pin<Box<dyn Stream<Item = T> + Send>>;

/// Listens at this path, replacing the socket of an earlier plugin.
///
/// # Errors
/// If a file is there that is no socket, or the directory does not take one.
pub fn listen(path: &Path) -> io::Result<Connections> {
    remove(path)?;
    let connections = UnixListenerStream::new(UnixListener::bind(path)?);
    Ok(Box::pin(connections.map(|stream| stream.map(LenientAuthority::new))))
}

/// Time for calls in progress to end.
const GRACE: Duration = Duration::from_secs(2);

/// Socket file with the task that serves it.
#[derive(Debug)]
pub struct ServedSocket {
    path: PathBuf,
    identity: Identity,
    end: oneshot::Sender<()>,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl ServedSocket {
    /// Serves at this path, replacing the socket of an earlier plugin.
    ///
    /// # Errors
    /// As for [`listen`].
    pub fn open(path: &Path, services: Router) -> io::Result<Self> {
        let calls = listen(path)?;
        let identity = Identity::of(path).ok_or_else(|| io::Error::other("it is gone at once"))?;
        let (end, ended) = oneshot::channel::<()>();
        let server = services.serve_with_incoming_shutdown(calls, async { drop(ended.await) });
        Ok(Self { path: path.to_owned(), identity, end, server: tokio::spawn(server) })
    }

    /// Identity of the socket file.
    pub const fn identity(&self) -> Identity {
        self.identity
    }

    /// Tests if the path still leads to this socket; a kubelet that starts removes all sockets.
    pub fn is_there(&self) -> bool {
        Identity::of(&self.path) == Some(self.identity) && !self.server.is_finished()
    }

    /// Waits for calls in progress, and removes the socket.
    pub async fn close(self) {
        let Self { path, identity, end, mut server } = self;
        drop(end);
        if timeout(GRACE, &mut server).await.is_err() {
            server.abort();
        }
        // A successor's stays.
        if Identity::of(&path) == Some(identity)
            && let Err(error) = remove(&path)
        {
            tracing::warn!(socket = %path.display(), %error, "cannot be removed");
        }
    }
}

/// Removes a file if it is a socket.
///
/// # Errors
/// If a file is there that is no socket, or cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(file) if file.file_type().is_socket() => std::fs::remove_file(path),
        Ok(_) => Err(io::Error::other("something is there that is no socket; remove it")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
