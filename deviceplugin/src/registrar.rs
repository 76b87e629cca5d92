//! Registration of one profile: its socket exists, and the kubelet knows it.
//!
//! Each check restores whatever is missing: a kubelet that starts removes all sockets and knows no plugin,
//! one that lost its connection does not reconnect, and one that is absent may appear later.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tranche_adapter::LastProblem;
use tranche_kubelet::deviceplugin as api;
use tranche_kubelet::deviceplugin::registration_client::RegistrationClient;

use crate::endpoint::Endpoint;
use crate::profile::ProfileName;
use crate::resource_manager::ResourceManager;
use crate::service::OPTIONS;
use tranche_kubelet::socket::{self, Identity, SocketError};

/// Interval of checks without a notification.
const IDLE: Duration = Duration::from_secs(5);
/// Time for which a registered kubelet may have no open stream of devices.
const DEAFNESS: Duration = Duration::from_secs(5);
/// Maximum pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Keeps one profile registered.
#[derive(Debug)]
pub(crate) struct Registrar {
    manager: Arc<ResourceManager>,
    profile: ProfileName,
    directory: PathBuf,
    endpoint: Option<Endpoint>,
    registered: Option<Registered>,
    pause: Duration,
    problem: LastProblem,
}

/// A kubelet, and the socket that was registered at it.
#[derive(Debug)]
struct Registered {
    kubelet: Identity,
    endpoint: Identity,
    /// Last time with an open stream, or time of the registration.
    heard: Instant,
}

/// Reason for which a profile is not registered.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("cannot serve at {}: {cause}", .path.display())]
    Serve { path: PathBuf, cause: std::io::Error },
    #[error("there is no directory {}: is this a Kubernetes node, and is it mounted?", .0.display())]
    NoDirectory(PathBuf),
    #[error("there is no kubelet at {}", .0.display())]
    NoKubelet(PathBuf),
    #[error("the kubelet does not register it: {0}")]
    Refused(#[from] SocketError),
}

impl Registrar {
    pub(crate) fn new(manager: Arc<ResourceManager>, profile: ProfileName) -> Self {
        let directory = manager.config.kubelet_dir.clone();
        Self {
            manager,
            profile,
            directory,
            endpoint: None,
            registered: None,
            pause: FIRST_PAUSE,
            problem: LastProblem::default(),
        }
    }

    /// Runs until `stop` is set, then removes the socket.
    pub(crate) async fn run(mut self, mut changes: watch::Receiver<()>, mut stop: watch::Receiver<bool>) {
        let mut watching = true;
        loop {
            changes.mark_unchanged();
            let pause = self.tend().await;
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                changed = changes.changed(), if watching => watching = changed.is_ok(),
                () = tokio::time::sleep(pause) => {}
            }
        }
        if let Some(endpoint) = self.endpoint.take() {
            endpoint.close().await;
        }
    }

    /// Checks and repairs the registration; returns the time until the next check.
    async fn tend(&mut self) -> Duration {
        match self.put_right().await {
            Ok(()) => {
                (self.pause, self.problem) = (FIRST_PAUSE, LastProblem::default());
                IDLE
            }
            Err(trouble) => {
                self.problem.complain(trouble, |trouble| {
                    let resource = self.manager.config.resource(&self.profile);
                    tracing::warn!(resource, "not registered: {trouble}; it is tried again");
                });
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                self.pause
            }
        }
    }

    async fn put_right(&mut self) -> Result<(), Trouble> {
        if !self.directory.is_dir() {
            self.forget_registration();
            return Err(Trouble::NoDirectory(self.directory.clone()));
        }
        let endpoint = self.serve().await?;
        let path = self.directory.join(api::KUBELET_SOCKET);
        let Some(kubelet) = Identity::of(&path) else {
            self.forget_registration();
            return Err(Trouble::NoKubelet(path));
        };
        if self.is_known(kubelet, endpoint) {
            return Ok(());
        }
        self.forget_registration();
        self.register(&path).await?;
        self.manager.counters.registration(&self.manager.config, &self.profile);
        self.registered = Some(Registered { kubelet, endpoint, heard: Instant::now() });
        tracing::info!(resource = self.manager.config.resource(&self.profile), "registered");
        Ok(())
    }

    fn forget_registration(&mut self) {
        self.registered = None;
        self.manager.counters.registered(&self.manager.config, &self.profile, false);
    }

    /// Opens the socket if it is missing.
    async fn serve(&mut self) -> Result<Identity, Trouble> {
        if let Some(endpoint) = self.endpoint.take_if(|endpoint| !endpoint.socket.is_there()) {
            endpoint.close().await;
        }
        if let Some(endpoint) = &self.endpoint {
            return Ok(endpoint.socket.identity());
        }
        let path = self.directory.join(self.file_name());
        let opened = Endpoint::open(Arc::clone(&self.manager), self.profile.clone(), &path);
        let endpoint = opened.map_err(|cause| Trouble::Serve { path, cause })?;
        Ok(self.endpoint.insert(endpoint).socket.identity())
    }

    /// Tests if this socket is registered at this kubelet, and a stream is open or was recently.
    fn is_known(&mut self, kubelet: Identity, endpoint: Identity) -> bool {
        let listened_to = self.endpoint.as_ref().is_some_and(Endpoint::is_listened_to);
        let Some(registered) = &mut self.registered else { return false };
        if listened_to {
            registered.heard = Instant::now();
        }
        let same = registered.kubelet == kubelet && registered.endpoint == endpoint;
        same && registered.heard.elapsed() < DEAFNESS
    }

    async fn register(&self, kubelet: &Path) -> Result<(), SocketError> {
        let request = api::RegisterRequest {
            version: api::VERSION.into(),
            endpoint: self.file_name(),
            resource_name: self.manager.config.resource(&self.profile),
            options: Some(OPTIONS),
        };
        let register = |channel| async move { RegistrationClient::new(channel).register(request).await };
        socket::ask(kubelet, register).await.map(drop)
    }

    fn file_name(&self) -> String {
        format!("{}_{}.sock", self.manager.config.resource_domain, self.profile)
    }
}

/// Half of the pause after the first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
