//! `tranche play`: a shell on a private node with the daemon running.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tranche_ctl::cli::DemoGpu;
use tranche_ctl::client::Daemon;
use tranche_ctl::jobs::PROJECT_FILE;

use crate::error::DemoError;
use crate::lab::Lab;
use crate::narrator::Narrator;
use crate::{interrupt, sweep};

/// Time for jobs to end after the shell.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time for a program to notice the end of its children.
const NOTICE: Duration = Duration::from_secs(2);

/// Opens the user's shell on the simulated node, which is removed when the shell ends.
///
/// # Errors
/// If the node or the shell could not be started. The shell's exit status is ignored.
pub fn play() -> Result<(), DemoError> {
    interrupt::watch();
    let lab = Lab::set_up(DemoGpu::Sim)?;
    let (daemon, mut client, view) = lab.start_daemon()?;
    let narrator = Narrator::new();
    narrator.quote(&format!(
        "\nA SIMULATED node: {} x {}. Kernels take time here and compute nothing.\n\
         The daemon is running. Some things to try:\n\n  \
           tranche smi\n  \
           tranche run -g 0.5 -- workload --fill --beyond 1Mi --seconds 2\n  \
           tranche run -g 0.3 -- workload --nvml\n  \
           tranche slice create train -g 0.25 && tranche slice list\n  \
           tranche project create toys --quota 4 && tranche submit hello -g 0.5 -- workload --seconds 60\n  \
           tranche doctor\n\n\
         `exit` ends the node and takes everything of it away.\n",
        view.gpus.len(),
        lab.ground.gpu.name
    ));
    let shell = shell(&lab);
    end_jobs(&mut client);
    end_slices(&mut client);
    drop(daemon);
    for pid in left_behind(lab.folder()) {
        narrator
            .line(&format!("process {pid}, started in that shell, still runs; the node under it is gone"));
    }
    lab.tear_down();
    shell
}

/// Processes left although their slices ended and their parents had time to notice.
fn left_behind(folder: &Path) -> Vec<u32> {
    sweep::end_members(folder);
    let end = Instant::now() + NOTICE;
    loop {
        let there = sweep::processes_of(folder);
        if there.is_empty() || Instant::now() >= end {
            return there;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Deletes jobs, which would be restarted if only their slices ended.
fn end_jobs(client: &mut Daemon) {
    for job in client.jobs(None, None).unwrap_or_default() {
        let _ = client.delete_job(&job.project, &job.name);
    }
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end && client.jobs(None, None).is_ok_and(|jobs| !jobs.is_empty()) {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Deletes all slices with their processes; an ended daemon has none.
fn end_slices(client: &mut Daemon) {
    for slice in client.snapshot().map(|view| view.slices).unwrap_or_default() {
        let _ = client.delete(&slice.name, true);
    }
}

fn shell(lab: &Lab) -> Result<(), DemoError> {
    let shell = env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or("/bin/sh".into());
    let mut command = Command::new(&shell);
    command.envs(lab.environment()).env("PATH", path(lab)).env("TRANCHE_PLAY", "simulated");
    command.env(PROJECT_FILE, lab.folder().join("project"));
    command.status().map(drop).map_err(DemoError::io(format!("starting {}", shell.display())))
}

/// PATH with Tranche's programs first.
fn path(lab: &Lab) -> OsString {
    let rest = env::var_os("PATH").unwrap_or_default();
    let folders = lab.parts.path().into_iter().chain(env::split_paths(&rest));
    env::join_paths(folders).unwrap_or_else(|_| rest.clone())
}
