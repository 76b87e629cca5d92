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

/// The machine: made for one test, gone with it.
#[derive(Debug)]
pub struct Node {
    stage: Stage,
    daemon: Option<Process>,
    /// What the daemon is.
    program: PathBuf,
    variables: Vec<(&'static str, OsString)>,
    /// The cgroup of the daemon, where that made it.
    leaf: Option<PathBuf>,
    /// Last, so that it goes after all that uses it.
    dir: TempDir,
}

impl Node {
    /// A machine of GPUs as the preset names them, with its daemon running.
    #[track_caller]
    pub fn simulated(preset: &str) -> Self {
        let mut node = Self::without_daemon(preset);
        node.start_daemon();
        node
    }

    /// The same with another simulated driver, such as `610`.
    #[track_caller]
    pub fn with_driver(preset: &str, key: &str) -> Self {
        let mut node = Self::with_stage(Stage::find().with_driver(key), preset);
        node.start_daemon();
        node
    }

    /// The same, with a daemon that is configured so.
    #[track_caller]
    pub fn configured(preset: &str, configuration: &str) -> Self {
        let mut node = Self::without_daemon(preset);
        node.configure(configuration);
        node.start_daemon();
        node
    }

    /// Configures the next daemon.
    #[track_caller]
    pub fn configure(&self, configuration: &str) {
        fs::write(self.configuration(), configuration).expect("the directory can be written");
    }

    /// A machine whose daemon has not been started.
    #[track_caller]
    pub fn without_daemon(preset: &str) -> Self {
        Self::with_stage(Stage::find(), preset)
    }

    /// The same with another tree installed, such as that of an earlier release.
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

    /// Folder of its files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Path of its daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.dir().join("run/tranched.sock")
    }

    /// Folder of its daemon's state.
    pub fn state_dir(&self) -> PathBuf {
        self.dir().join("state")
    }

    /// Installs another tree: the next daemon and the next commands are its.
    pub fn install(&mut self, stage: Stage) {
        self.program = stage.daemon();
        self.stage = stage;
    }

    /// What was installed on it.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// The file that its simulated GPUs are.
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

    /// From its next start on, the daemon is that program, with these variables beside the usual ones.
    pub fn set_daemon(&mut self, program: PathBuf, variables: Vec<(&'static str, OsString)>) {
        (self.program, self.variables) = (program, variables);
    }

    /// Starts the daemon and waits until it answers.
    #[track_caller]
    pub fn start_daemon(&mut self) {
        if let Err(complaint) = self.try_start_daemon() {
            panic!("tranched does not answer: {complaint}");
        }
    }

    /// The same, with a daemon that may end instead.
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

    /// Tests if the daemon runs.
    pub fn daemon_runs(&mut self) -> bool {
        self.daemon.as_mut().is_some_and(Process::runs)
    }

    /// Ends the daemon with SIGKILL.
    #[track_caller]
    pub fn kill_daemon(&mut self) {
        self.end_daemon(Signal::SIGKILL);
    }

    /// Ends the daemon as an operator would.
    #[track_caller]
    pub fn stop_daemon(&mut self) -> Outcome {
        self.end_daemon(Signal::SIGTERM)
    }

    /// Stops the daemon where it is, until [`Node::resume_daemon`].
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

    /// Lets a paused daemon go on; one that is gone stays so.
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

    /// The daemon's pid.
    #[track_caller]
    pub fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().expect("the daemon was started").pid()
    }

    /// What the daemon has said so far.
    pub fn daemon_log(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// `tranched --open-gpus`, not yet started.
    pub fn open_gpus(&self) -> Command {
        let mut command = self.command(self.stage.daemon());
        command.args(["--open-gpus", "--runtime-dir"]).arg(self.dir().join("run"));
        command
    }

    // ---- commands ----

    /// A command on this machine: it finds the simulated driver and the daemon, and nothing else of ours.
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

    /// Runs a command to its end.
    #[track_caller]
    pub fn run(&self, command: &mut Command) -> Outcome {
        Process::start(command).end()
    }

    /// `tranche` with arguments, to its end.
    #[track_caller]
    pub fn tranche(&self, arguments: &[&str]) -> Outcome {
        self.run(self.command(self.stage.command()).args(arguments))
    }

    /// `simgpu VERB... FILE ARGUMENTS...`, to its end.
    #[track_caller]
    pub fn simgpu(&self, before: &[&str], after: &[&str]) -> Outcome {
        self.run(self.command(self.stage.simgpu()).args(before).arg(self.gpus()).args(after))
    }

    /// Has the driver of a GPU behave otherwise from now on: `simgpu set` with these options.
    #[track_caller]
    pub fn set_gpu(&self, gpu: usize, options: &[&str]) {
        self.simgpu(&["set"], &[&["--gpu", &gpu.to_string()], options].concat()).success();
    }

    /// Has the driver take memory of a GPU for a process, of its own accord.
    #[track_caller]
    pub fn driver_takes(&self, gpu: usize, pid: u32, memory: Bytes) {
        let (gpu, pid, mib) = (gpu.to_string(), pid.to_string(), memory.whole_mib().to_string());
        self.simgpu(&["take"], &["--gpu", &gpu, "--pid", &pid, "--mib", &mib]).success();
    }

    /// The same for a process that has a driver of its own in it, and begins to use the GPU thereby.
    #[track_caller]
    pub fn own_driver_takes(&self, gpu: usize, pid: u32, memory: Bytes) {
        let (gpu, pid, mib) = (gpu.to_string(), pid.to_string(), memory.whole_mib().to_string());
        let arguments = ["--gpu", &gpu, "--pid", &pid, "--mib", &mib, "--begin"];
        self.simgpu(&["take"], &arguments).success();
    }

    /// `tranche run OPTIONS -- PROGRAM ARGUMENTS`, not yet started.
    pub fn run_in_slice<A: AsRef<OsStr>>(&self, options: &[&str], program: &[A]) -> Command {
        let mut command = self.command(self.stage.command());
        command.arg("run").args(options).arg("--").args(program);
        command
    }

    /// A tenant in a slice of its own.
    #[track_caller]
    pub fn tenant(&self, options: &[&str]) -> Tenant {
        self.tenant_of(&mut self.run_in_slice(options, &[Tenant::program()]))
    }

    /// A tenant that a prepared command starts.
    #[track_caller]
    pub fn tenant_of(&self, command: &mut Command) -> Tenant {
        Tenant::talk_to(Process::start(command))
    }

    // ---- what there is to see ----

    /// What `tranche smi --json` shows.
    #[track_caller]
    pub fn smi(&self) -> Snapshot {
        let text = self.tranche(&["smi", "--json"]).success();
        match serde_json::from_str(&text) {
            Ok(snapshot) => snapshot,
            Err(error) => panic!("tranche smi --json: {error}\n{text}"),
        }
    }

    /// What it shows of one slice.
    #[track_caller]
    pub fn slice(&self, name: &str) -> SliceView {
        self.smi().slice(name).clone()
    }

    /// What `tranche events` shows.
    #[track_caller]
    pub fn events(&self) -> Vec<Event> {
        Event::read(&self.tranche(&["events", "--json"]).success())
    }

    /// Who ran on a GPU and when, as the GPU says itself.
    #[track_caller]
    pub fn timeline(&self, gpu: usize) -> Timeline {
        Timeline::read(&self.simgpu(&["log"], &["--gpu", &gpu.to_string()]).success())
    }

    /// What the devices hold, as they say themselves.
    #[track_caller]
    pub fn device(&self) -> Device {
        Device::read(&self.simgpu(&["show", "--json"], &[]).success())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- tranched said\n{}\n---", self.daemon_log());
        }
        self.daemon = None;
        sweep(&self.dir().to_string_lossy());
        if let Some(leaf) = self.leaf.take() {
            leaf::clear(&leaf, &mut self.open_gpus());
        }
    }
}
