//! A node for one test: a folder, a daemon, and the plugin between it and the test's kubelet.

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

/// Intervals of the plugin here, shorter than where it is installed.
pub const PACE: Pace = Pace { look: Duration::from_millis(300), grace: Duration::from_secs(4) };

/// Waits for a result, and panics after [`PATIENCE`].
pub async fn within<T>(what: &str, happens: impl Future<Output = T>) -> T {
    timeout(PATIENCE, happens).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

type Running = JoinHandle<Result<(), ServeError>>;

/// Folder, daemon and plugin of one test.
#[derive(Debug)]
pub struct Node {
    /// Daemon that the plugin connects to.
    pub daemon: Daemon,
    plugin: Option<(oneshot::Sender<()>, Running)>,
    profiles: String,
    folder: TempDir,
}

impl Node {
    /// A node of V100s, divided by these profiles and layouts; the plugin is not started.
    pub fn new(gpus: u8, profiles: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("fakekubelet-").tempdir().unwrap();
        let daemon = Daemon::start(&folder.path().join("tranched.sock"), gpus);
        Self { daemon, plugin: None, profiles: profiles.into(), folder }
    }

    /// The kubelet's directory, which the kubelet creates.
    pub fn kubelet_dir(&self) -> PathBuf {
        self.folder.path().join("device-plugins")
    }

    /// Socket on which the kubelet lists its pods.
    pub fn pods_socket(&self) -> PathBuf {
        self.folder.path().join("pods.sock")
    }

    /// Starts the plugin with the profiles of this node.
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

    /// Stops the plugin as SIGTERM does, and returns its result.
    pub async fn stop_plugin(&mut self) -> Result<(), ServeError> {
        let (stop, running) = self.plugin.take().expect("the plugin was started");
        let _ = stop.send(());
        within("the plugin stops", running).await.expect("the plugin does not panic")
    }

    /// Waits until the plugin ends by itself, and returns its result.
    pub async fn plugin_end(&mut self) -> Result<(), ServeError> {
        let (_stop, running) = self.plugin.take().expect("the plugin was started");
        within("the plugin ends", running).await.expect("the plugin does not panic")
    }
}
