//! A private node: a folder, a daemon in it, and a GPU to serve.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tranche_ctl::cli::DemoGpu;
use tranche_ctl::client::Daemon;
use tranche_domain::view::NodeView;

use crate::error::DemoError;
use crate::ground::Ground;
use crate::interrupt;
use crate::owned::Owned;
use crate::parts::Parts;

/// Time for the daemon to start, which includes measuring the cost of contexts.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder, and the GPU that was chosen. Everything that runs in it has the folder's name in its environment.
#[derive(Debug)]
pub(crate) struct Lab {
    folder: TempDir,
    /// Programs and libraries of the build.
    pub(crate) parts: Parts,
    /// Selected GPU, with the variables for programs that use it.
    pub(crate) ground: Ground,
}

impl Lab {
    /// Makes the folder and chooses a GPU.
    pub(crate) fn set_up(gpu: DemoGpu) -> Result<Self, DemoError> {
        let parts = Parts::find()?;
        let folder = tempfile::Builder::new().prefix("tranche-demo-").tempdir();
        let folder = folder.map_err(DemoError::io("creating a private folder"))?;
        let ground = Ground::choose(gpu, &parts, folder.path())?;
        Ok(Self { folder, parts, ground })
    }

    /// Private folder, removed when this value is dropped.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn runtime_dir(&self) -> PathBuf {
        self.folder().join("run")
    }

    fn socket(&self) -> PathBuf {
        self.runtime_dir().join("tranched.sock")
    }

    /// Variables for programs that use the GPU and the daemon.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut environment = self.ground.environment.clone();
        environment.push(("TRANCHE_SOCKET".into(), self.socket().into()));
        environment
    }

    /// Starts the daemon and waits until it serves.
    pub(crate) fn start_daemon(&self) -> Result<(Owned, Daemon, NodeView), DemoError> {
        // The configuration of a daemon that is installed here is for real GPUs, and names groups and folders of the node.
        let configuration = self.folder().join("tranched.toml");
        fs::write(&configuration, "").map_err(DemoError::io("creating the daemon's configuration"))?;
        let mut command = Command::new(self.parts.program("tranched"));
        command.arg("--config").arg(configuration);
        command.arg("--runtime-dir").arg(self.runtime_dir());
        command.arg("--state-dir").arg(self.folder().join("state"));
        command.envs(self.environment()).stdin(Stdio::null()).stdout(Stdio::null());
        let mut process = Owned::start(&mut command, "tranched", self.folder())?;
        let socket = self.socket();
        let serves = || match process.ended() {
            Some(_) => Err(process.too_early()),
            None => Ok(Daemon::connect(&socket).and_then(|mut daemon| Ok((daemon.snapshot()?, daemon))).ok()),
        };
        let ((view, daemon), _) = interrupt::until("tranched to serve", PATIENCE, serves)?;
        Ok((process, daemon, view))
    }

    /// Output of another `tranche` command on this node.
    pub(crate) fn tranche(&self, arguments: &[&str]) -> Result<String, DemoError> {
        let mut command = Command::new(self.parts.program("tranche"));
        command.args(arguments).envs(self.environment()).stdin(Stdio::null());
        let what = format!("tranche {}", arguments.join(" "));
        let output = command.output().map_err(DemoError::io(format!("starting {what}")))?;
        if !output.status.success() {
            let last_words = format!(": {}", String::from_utf8_lossy(&output.stderr).trim());
            return Err(DemoError::Ended { who: what, last_words });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Removes the folder; returns its path for verification.
    pub(crate) fn tear_down(self) -> PathBuf {
        let path = self.folder().to_path_buf();
        drop(self);
        path
    }
}
