//! Sockets with their servers.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::transport::server::Router;
use tranche_kubelet::socket::{self, Identity};

/// Time for calls in progress to end.
const GRACE: Duration = Duration::from_secs(2);

/// Socket file with the task that serves it.
#[derive(Debug)]
pub(crate) struct ServedSocket {
    path: PathBuf,
    identity: Identity,
    end: oneshot::Sender<()>,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl ServedSocket {
    /// Serves at this path, replacing the socket of an earlier driver.
    pub(crate) fn open(path: &Path, services: Router) -> io::Result<Self> {
        let failed = |cause: io::Error| {
            io::Error::new(cause.kind(), format!("cannot listen at {}: {cause}", path.display()))
        };
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(failed)?;
        }
        let calls = socket::listen(path).map_err(failed)?;
        let identity = Identity::of(path).ok_or_else(|| failed(io::Error::other("it is gone at once")))?;
        let (end, ended) = oneshot::channel::<()>();
        let server = services.serve_with_incoming_shutdown(calls, async { drop(ended.await) });
        Ok(Self { path: path.to_owned(), identity, end, server: tokio::spawn(server) })
    }

    /// Tests if the path still leads to this socket.
    pub(crate) fn is_there(&self) -> bool {
        Identity::of(&self.path) == Some(self.identity) && !self.server.is_finished()
    }

    /// Waits for calls in progress, and removes the socket.
    pub(crate) async fn close(self) {
        let Self { path, identity, end, mut server } = self;
        drop(end);
        if timeout(GRACE, &mut server).await.is_err() {
            server.abort();
        }
        // A successor's stays.
        if Identity::of(&path) == Some(identity)
            && let Err(error) = socket::remove(&path)
        {
            tracing::warn!(socket = %path.display(), %error, "cannot be removed");
        }
    }
}
