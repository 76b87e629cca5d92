//! A node for one test: a folder, a daemon, and the plugin between it and whichever kubelet a test starts.

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tranche_deviceplugin::config::Config;
use tranche_deviceplugin::serve::{Pace, ServeError, serve};

use crate::daemon::Daemon;

/// Longest wait for any step.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Patience of the plugin here: some times less than where it is installed.
pub const PACE: Pace = Pace { look: Duration::from_millis(300), grace: Duration::from_secs(4) };

/// Waits for something, not for ever.
pub async fn within<T>(what: &str, happens: impl Future<Output = T>) -> T {
    timeout(PATIENCE, happens).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

type Running = JoinHandle<Result<(), ServeError>>;

/// The node.
#[derive(Debug)]
pub struct Node {
    /// Its daemon.
    pub daemon: Daemon,
    plugin: Option<(oneshot::Sender<()>, Running)>,
    profiles: String,
    folder: TempDir,
}

impl Node {
    /// V100s, divided as the configuration says; the plugin is not started.
    pub fn new(gpus: u8, profiles: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("fakekubelet-").tempdir().unwrap();
        let daemon = Daemon::start(&folder.path().join("tranched.sock"), gpus);
        Self { daemon, plugin: None, profiles: profiles.into(), folder }
    }

    /// The kubelet's directory. It is made by the kubelet.
    pub fn kubelet_dir(&self) -> PathBuf {
        self.folder.path().join("device-plugins")
    }

    /// Socket on which the kubelet lists its pods.
    pub fn pods_socket(&self) -> PathBuf {
        self.folder.path().join("pods.sock")
    }

    /// Starts the plugin.
    pub fn start_plugin(&mut self) {
        let folder = self.folder.path().display();
        let places = format!(
            "tranched_socket = '{folder}/tranched.sock'\nkubelet_dir = '{folder}/device-plugins'\n\
             pod_resources_socket = '{folder}/pods.sock'\n"
        );
        let text = places + "recovery_s = 2\n" + &self.profiles;
        let config = Config::parse(&text, &self.folder.path().join("t.toml")).unwrap();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(serve(config, PACE, async move { drop(stopped.await) }));
        self.plugin = Some((stop, running));
    }

    /// Stops it as SIGTERM does.
    pub async fn stop_plugin(&mut self) -> Result<(), ServeError> {
        let (stop, running) = self.plugin.take().expect("the plugin was started");
        let _ = stop.send(());
        within("the plugin stops", running).await.expect("the plugin does not panic")
    }

    /// End of the process of its own accord.
    pub async fn plugin_end(&mut self) -> Result<(), ServeError> {
        let (_stop, running) = self.plugin.take().expect("the plugin was started");
        within("the plugin ends", running).await.expect("the plugin does not panic")
    }
}
