//! Options that all benches have.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::Result;
use crate::stage::Stage;

/// Folders of the built programs.
#[derive(Clone, Debug, Args)]
pub struct Places {
    /// The staged tree. Default: the one this program is in, else target/stage.
    #[arg(long)]
    pub stage: Option<PathBuf>,
    /// The folder of `tranched` and `tranche`. Default: the staged ones, which are a dev build.
    #[arg(long)]
    pub programs: Option<PathBuf>,
}

impl Places {
    /// The staged tree, which has the measured program.
    ///
    /// # Errors
    /// If it was not built.
    pub fn stage(&self) -> Result<Stage> {
        let beside = env::current_exe().ok().and_then(|program| Some(program.parent()?.parent()?.to_owned()));
        let beside = beside.filter(|root| root.join("bench/client").exists());
        let root = self.stage.clone().or(beside).unwrap_or_else(|| "target/stage".into());
        let root = root
            .canonicalize()
            .map_err(|_| format!("{} is not there: run make build first", root.display()))?;
        let programs = self.programs.clone().unwrap_or_else(|| root.join("bin"));
        let stage = Stage { root, programs };
        match stage.client().exists() {
            true => Ok(stage),
            false => Err(format!("{} is not there: run make build first", stage.client().display())),
        }
    }

    /// Build profile of the daemon, for reports.
    pub fn built(&self) -> &'static str {
        if self.programs.is_some() { "release" } else { "dev" }
    }
}

/// Commit that is checked out, for reports; of a carried tree, the one in its file `commit`.
pub fn commit(stage: &Stage) -> String {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let hash = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let text = hash.map(|hash| String::from_utf8_lossy(&hash).into_owned());
    let text = text.or_else(|| std::fs::read_to_string(stage.root.join("commit")).ok());
    text.map_or_else(|| "unknown".into(), |text| text.trim().into())
}

/// Cores of this machine, for reports.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
