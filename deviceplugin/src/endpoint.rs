//! Socket of a profile in the kubelet's directory, with its server.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;
use tonic::transport::Server;
use tranche_kubelet::deviceplugin::device_plugin_server::DevicePluginServer;
use tranche_kubelet::socket::ServedSocket;

use crate::profile::ProfileName;
use crate::resource_manager::ResourceManager;
use crate::service::Plugin;

/// A served socket, and what its service shares with its owner.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) socket: ServedSocket,
    end: watch::Sender<bool>,
    listeners: Arc<AtomicUsize>,
}

impl Endpoint {
    /// Serves a profile at this path, replacing the socket of an earlier plugin.
    pub(crate) fn open(manager: Arc<ResourceManager>, profile: ProfileName, path: &Path) -> io::Result<Self> {
        let (end, ended) = watch::channel(false);
        let listeners = Arc::new(AtomicUsize::new(0));
        let plugin = Plugin { manager, profile, ended, listeners: Arc::clone(&listeners) };
        let services = Server::builder().add_service(DevicePluginServer::new(plugin));
        Ok(Self { socket: ServedSocket::open(path, services)?, end, listeners })
    }

    /// Tests if a kubelet has a stream of devices open.
    pub(crate) fn is_listened_to(&self) -> bool {
        self.listeners.load(Ordering::Relaxed) > 0
    }

    /// Ends the streams, waits for calls in progress, and removes the socket.
    pub(crate) async fn close(self) {
        self.end.send_replace(true);
        self.socket.close().await;
    }
}
