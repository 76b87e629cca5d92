//! A simulated GPU machine with a daemon of its own.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use tempfile::TempDir;
use tranche_domain::units::Bytes;

use crate::device::Device;
use crate::event::Event;
use crate::leaf;
use crate::outcome::Outcome;
use crate::process::{Process, sweep};
use crate::stage::Stage;
use crate::tenant::Tenant;
use crate::timeline::Timeline;
use crate::view::Snapshot;
use crate::wait::{eventually, until};
use crate::{PATIENCE, SliceView};

/// A machine that is made for one test. Dropping it ends its processes and removes its files.
#[derive(Debug)]
pub struct Node {
    stage: Stage,
    daemon: Option<Process>,
    /// Program that the next daemon is.
    program: PathBuf,
    variables: Vec<(&'static str, OsString)>,
    /// The cgroup that the daemon made for itself, if any.
    leaf: Option<PathBuf>,
    /// The last field, so that it is dropped after all that use it.
    dir: TempDir,
}

impl Node {
    /// A machine with the GPUs of a preset, and its daemon running.
    #[track_caller]
    pub fn simulated(preset: &str) -> Self {
        let mut node = Self::without_daemon(preset);
        node.start_daemon();
        node
    }

    /// As [`Node::simulated`], with another simulated driver, such as `610`.
    #[track_caller]
    pub fn with_driver(preset: &str, key: &str) -> Self {
        let mut node = Self::with_stage(Stage::find().with_driver(key), preset);
        node.start_daemon();
        node
    }

    /// As [`Node::simulated`], with a daemon that has this configuration.
    #[track_caller]
    pub fn configured(preset: &str, configuration: &str) -> Self {
        let mut node = Self::without_daemon(preset);
        node.configure(configuration);
        node.start_daemon();
        node
    }

    /// Writes the configuration of the next daemon.
    #[track_caller]
    pub fn configure(&self, configuration: &str) {
        fs::write(self.configuration(), configuration).expect("the directory can be written");
    }

    /// A machine whose daemon has not been started.
    #[track_caller]
    pub fn without_daemon(preset: &str) -> Self {
        Self::with_stage(Stage::find(), preset)
    }

    /// As [`Node::without_daemon`], with another tree installed, such as that of an earlier release.
    #[track_caller]
    pub fn with_stage(stage: Stage, preset: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("tranche-").tempdir().expect("a directory can be made");
        let program = stage.daemon();
        let node = Self { stage, daemon: None, program, variables: Vec::new(), leaf: None, dir };
        let mut create = vec!["create", "--preset", preset];
        create.extend(node.stage.driver_key().into_iter().flat_map(|key| ["--driver", key]));
        node.simgpu(&create, &[]).success();
        node
    }

    /// Directory of all files of the node.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Path of its daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.dir().join("run/tranched.sock")
    }

    /// Directory of its daemon's state.
    pub fn state_dir(&self) -> PathBuf {
        self.dir().join("state")
    }

    /// Installs another tree, which has the next daemon and the next commands.
    pub fn install(&mut self, stage: Stage) {
        self.program = stage.daemon();
        self.stage = stage;
    }

    /// The tree that is installed on it.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Path of the file in which its simulated GPUs are.
    pub fn gpus(&self) -> PathBuf {
        self.dir().join("gpus")
    }

    /// Path of the daemon's configuration, which is empty by default.
    fn configuration(&self) -> PathBuf {
        self.dir().join("tranched.toml")
    }

    fn log(&self) -> PathBuf {
        self.dir().join("tranched.log")
    }

    // ---- the daemon ----

    /// Sets the program of the next daemon, and its variables beside the usual ones.
    pub fn set_daemon(&mut self, program: PathBuf, variables: Vec<(&'static str, OsString)>) {
        (self.program, self.variables) = (program, variables);
    }

    /// Starts the daemon and waits until it answers; fails if it does not.
    #[track_caller]
    pub fn start_daemon(&mut self) {
        if let Err(complaint) = self.try_start_daemon() {
            panic!("tranched does not answer: {complaint}");
        }
    }

    /// Starts the daemon and waits until it answers; returns an error if it ends or stays silent.
    #[track_caller]
    pub fn try_start_daemon(&mut self) -> Result<(), String> {
        for file in [self.log(), self.configuration()] {
            File::options().create(true).append(true).open(file).expect("the directory can be written");
        }
        let mut command = self.command("sh");
        // The shell gives the daemon its log and then becomes the daemon.
        let script = "exec \"$0\" --runtime-dir \"$1\" --state-dir \"$2\" --config \"$3\" >>\"$4\" 2>&1";
        command.args(["-c", script]).arg(&self.program);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.args([self.dir().join("run"), self.state_dir(), self.configuration(), self.log()]);
        let mut daemon = Process::start(&mut command);
        let answer = until(PATIENCE, || match daemon.runs() {
            false => Ok(Err("the daemon ended at once".to_string())),
            true => match self.tranche(&["smi", "--json"]) {
                outcome if outcome.code == Some(0) => Ok(Ok(())),
                outcome => Err(outcome.to_string()),
            },
        });
        self.leaf = leaf::leaf_of(daemon.pid()).or(self.leaf.take());
        self.daemon = Some(daemon);
        answer.unwrap_or_else(Err)
    }

    /// True if the daemon runs.
    pub fn daemon_runs(&mut self) -> bool {
        self.daemon.as_mut().is_some_and(Process::runs)
    }

    /// Ends the daemon with SIGKILL.
    #[track_caller]
    pub fn kill_daemon(&mut self) {
        self.end_daemon(Signal::SIGKILL);
    }

    /// Ends the daemon with SIGTERM, as an operator does.
    #[track_caller]
    pub fn stop_daemon(&mut self) -> Outcome {
        self.end_daemon(Signal::SIGTERM)
    }

    /// Stops the daemon until [`Node::resume_daemon`]; returns once it is stopped.
    #[track_caller]
    pub fn pause_daemon(&self) {
        let daemon = self.daemon.as_ref().expect("the daemon was started");
        daemon.signal(Signal::SIGSTOP);
        eventually("the daemon stands still", || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap_or_default();
            let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
            if state == Some(Some('T')) { Ok(()) } else { Err(stat) }
        });
    }

    /// Continues a paused daemon; without effect on one that has ended.
    pub fn resume_daemon(&self) {
        if let Some(daemon) = &self.daemon {
            daemon.signal(Signal::SIGCONT);
        }
    }

    #[track_caller]
    fn end_daemon(&mut self, signal: Signal) -> Outcome {
        let daemon = self.daemon.take().expect("the daemon was started");
        daemon.signal(signal);
        daemon.end()
    }

    /// Pid of the running daemon; fails if there is none.
    #[track_caller]
    pub fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().expect("the daemon was started").pid()
    }

    /// Output of all daemons of the node so far.
    pub fn daemon_log(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// The command `tranched --open-gpus`, not yet started.
    pub fn open_gpus(&self) -> Command {
        let mut command = self.command(self.stage.daemon());
        command.args(["--open-gpus", "--runtime-dir"]).arg(self.dir().join("run"));
        command
    }

    // ---- commands ----

    /// A command on this machine, with its simulated driver and its daemon in the environment.
    ///
    /// Variables of the test process that concern a driver or Tranche are removed.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if ["TRANCHE_", "CUDA_", "NVIDIA_", "SIMGPU_", "LD_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
            {
                command.env_remove(name);
            }
        }
        command
            .env("LD_LIBRARY_PATH", self.stage.libraries())
            .env("SIMGPU_NODE", self.gpus())
            .env("TRANCHE_SOCKET", self.socket())
            .env("RUST_BACKTRACE", "1")
            .current_dir(self.dir());
        command
    }

    /// Runs a command until it ends.
    #[track_caller]
    pub fn run(&self, command: &mut Command) -> Outcome {
        Process::start(command).end()
    }

    /// Runs `tranche` with arguments until it ends.
    #[track_caller]
    pub fn tranche(&self, arguments: &[&str]) -> Outcome {
        self.run(self.command(self.stage.command()).args(arguments))
    }

    /// Runs `simgpu VERB... FILE ARGUMENTS...` until it ends.
    #[track_caller]
    pub fn simgpu(&self, before: &[&str], after: &[&str]) -> Outcome {
        self.run(self.command(self.stage.simgpu()).args(before).arg(self.gpus()).args(after))
    }

    /// Changes the behaviour of a GPU's driver by `simgpu set` with these options.
    #[track_caller]
    pub fn set_gpu(&self, gpu: usize, options: &[&str]) {
        self.simgpu(&["set"], &[&["--gpu", &gpu.to_string()], options].concat()).success();
    }

    /// Makes the driver take memory of a GPU for a process without a call of it.
    #[track_caller]
    pub fn driver_takes(&self, gpu: usize, pid: u32, memory: Bytes) {
        let (gpu, pid, mib) = (gpu.to_string(), pid.to_string(), memory.whole_mib().to_string());
        self.simgpu(&["take"], &["--gpu", &gpu, "--pid", &pid, "--mib", &mib]).success();
    }

    /// As [`Node::driver_takes`], for a process with a driver of its own that begins to use the GPU.
    #[track_caller]
    pub fn own_driver_takes(&self, gpu: usize, pid: u32, memory: Bytes) {
        let (gpu, pid, mib) = (gpu.to_string(), pid.to_string(), memory.whole_mib().to_string());
        let arguments = ["--gpu", &gpu, "--pid", &pid, "--mib", &mib, "--begin"];
        self.simgpu(&["take"], &arguments).success();
    }

    /// The command `tranche run OPTIONS -- PROGRAM ARGUMENTS`, not yet started.
    pub fn run_in_slice<A: AsRef<OsStr>>(&self, options: &[&str], program: &[A]) -> Command {
        let mut command = self.command(self.stage.command());
        command.arg("run").args(options).arg("--").args(program);
        command
    }

    /// Starts a tenant by `tranche run` with these options.
    #[track_caller]
    pub fn tenant(&self, options: &[&str]) -> Tenant {
        self.tenant_of(&mut self.run_in_slice(options, &[Tenant::program()]))
    }

    /// Starts a tenant by a prepared command.
    #[track_caller]
    pub fn tenant_of(&self, command: &mut Command) -> Tenant {
        Tenant::talk_to(Process::start(command))
    }

    // ---- state ----

    /// The output of `tranche smi --json`.
    #[track_caller]
    pub fn smi(&self) -> Snapshot {
        let text = self.tranche(&["smi", "--json"]).success();
        match serde_json::from_str(&text) {
            Ok(snapshot) => snapshot,
            Err(error) => panic!("tranche smi --json: {error}\n{text}"),
        }
    }

    /// One slice of it; fails if there is none of that name.
    #[track_caller]
    pub fn slice(&self, name: &str) -> SliceView {
        self.smi().slice(name).clone()
    }

    /// The output of `tranche events --json`.
    #[track_caller]
    pub fn events(&self) -> Vec<Event> {
        Event::read(&self.tranche(&["events", "--json"]).success())
    }

    /// The log of a simulated GPU: the process that had it at each time.
    #[track_caller]
    pub fn timeline(&self, gpu: usize) -> Timeline {
        Timeline::read(&self.simgpu(&["log"], &["--gpu", &gpu.to_string()]).success())
    }

    /// Memory that processes hold on the devices, as these report it themselves.
    #[track_caller]
    pub fn device(&self) -> Device {
        Device::read(&self.simgpu(&["show", "--json"], &[]).success())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of tranched\n{}\n---", self.daemon_log());
        }
        self.daemon = None;
        sweep(&self.dir().to_string_lossy());
        if let Some(leaf) = self.leaf.take() {
            leaf::clear(&leaf, &mut self.open_gpus());
        }
    }
}
