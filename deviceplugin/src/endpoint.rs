//! Socket of a profile in the kubelet's directory, with its server.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::transport::Server;
use tranche_kubelet::deviceplugin::device_plugin_server::DevicePluginServer;
use tranche_kubelet::socket::{self, Identity};

use crate::profile::ProfileName;
use crate::resource_manager::ResourceManager;
use crate::service::Plugin;

/// Time for calls in progress to end.
const GRACE: Duration = Duration::from_secs(2);

/// A served socket: its file and its server.
#[derive(Debug)]
pub(crate) struct Endpoint {
    path: PathBuf,
    identity: Identity,
    end: watch::Sender<bool>,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
    listeners: Arc<AtomicUsize>,
}

impl Endpoint {
    /// Serves a profile at this path, replacing the socket of an earlier plugin.
    pub(crate) fn open(manager: Arc<ResourceManager>, profile: ProfileName, path: &Path) -> io::Result<Self> {
        let calls = socket::listen(path)?;
        let identity = Identity::of(path).ok_or_else(|| io::Error::other("it is gone at once"))?;
        let (end, mut ended) = watch::channel(false);
        let listeners = Arc::new(AtomicUsize::new(0));
        let plugin = Plugin { manager, profile, ended: ended.clone(), listeners: Arc::clone(&listeners) };
        let told = async move { drop(ended.wait_for(|ended| *ended).await) };
        let server = Server::builder().add_service(DevicePluginServer::new(plugin));
        let server = tokio::spawn(server.serve_with_incoming_shutdown(calls, told));
        Ok(Self { path: path.to_owned(), identity, end, server, listeners })
    }

    /// Identity of the socket file.
    pub(crate) const fn identity(&self) -> Identity {
        self.identity
    }

    /// Tests if the path still leads to this socket; a kubelet that starts removes all sockets.
    pub(crate) fn is_there(&self) -> bool {
        Identity::of(&self.path) == Some(self.identity) && !self.server.is_finished()
    }

    /// Tests if a kubelet has a stream of devices open.
    pub(crate) fn is_listened_to(&self) -> bool {
        self.listeners.load(Ordering::Relaxed) > 0
    }

    /// Ends the streams, waits for calls in progress, and removes the socket.
    pub(crate) async fn close(mut self) {
        let ours = self.is_there();
        self.end.send_replace(true);
        if timeout(GRACE, &mut self.server).await.is_err() {
            self.server.abort();
        }
        if ours && let Err(error) = socket::remove(&self.path) {
            tracing::warn!(socket = %self.path.display(), %error, "cannot be removed");
        }
    }
}
