//! A node with its own daemon, and the programs that are measured on it.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use serde::Deserialize;
use tempfile::TempDir;

use crate::client::Client;
use crate::stage::{Driver, Stage};
use crate::variant::Variant;
use crate::{Result, cpu, interrupt};

/// Bytes in a MiB.
pub const MIB: f64 = (1 << 20) as f64;

/// The slice in which [`Variant::Ours`] runs.
pub const SLICE: &str = "bench";

/// A GPU as NVML reports it.
#[derive(Clone, Debug, Deserialize)]
pub struct Seen {
    /// Product name of the GPU.
    pub name: String,
    uuid: String,
    /// Use of the GPU, in percent.
    #[serde(rename = "utilization_percent", default)]
    pub utilization: f64,
    /// Processes that compute on the GPU, as NVML lists them.
    pub processes: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct NvmlView {
    gpus: Vec<Seen>,
}

/// A node with its daemon. Dropping it kills the daemon and removes its files.
#[derive(Debug)]
pub struct Node {
    stage: Stage,
    driver: Driver,
    daemon: RefCell<Child>,
    uuid: String,
    dir: TempDir,
}

impl Node {
    /// Starts a node with one slice of a share of the GPU, for [`Variant::Ours`].
    ///
    /// # Errors
    /// As for [`Self::bare`].
    pub fn start(stage: &Stage, driver: Driver, share: &str) -> Result<Self> {
        let node = Self::empty(stage, driver)?;
        node.create(SLICE, &["-g", share])?;
        Ok(node)
    }

    /// Starts a node without slices.
    ///
    /// # Errors
    /// If the simulated GPU cannot be created, or no daemon starts that shows a GPU.
    pub fn empty(stage: &Stage, driver: Driver) -> Result<Self> {
        Self::configured(stage, driver, "")
    }

    /// Starts a node without slices, with further keys in its daemon's configuration.
    ///
    /// # Errors
    /// As for [`Self::empty`].
    pub fn configured(stage: &Stage, driver: Driver, keys: &str) -> Result<Self> {
        Self::begin(stage, driver, ("h200x1", &env::temp_dir()), keys)
    }

    /// Starts a node without slices, with the simulated GPUs of a preset and its files below `within`.
    ///
    /// # Errors
    /// As for [`Self::empty`].
    pub fn of(stage: &Stage, driver: Driver, preset: &str, within: &Path) -> Result<Self> {
        Self::begin(stage, driver, (preset, within), "")
    }

    /// Starts a simulated node of a preset without slices, with further keys in its daemon's configuration.
    ///
    /// # Errors
    /// As for [`Self::empty`].
    pub fn simulated(stage: &Stage, preset: &str, keys: &str) -> Result<Self> {
        Self::begin(stage, Driver::Simulated, (preset, &env::temp_dir()), keys)
    }

    fn begin(stage: &Stage, driver: Driver, place: (&str, &Path), keys: &str) -> Result<Self> {
        let (preset, within) = place;
        let dir = tempfile::Builder::new().prefix("bench-").tempdir_in(within);
        let dir = dir.map_err(|error| error.to_string())?;
        interrupt::goes_with_us(dir.path());
        if driver != Driver::Real {
            let create = ["create", "--preset", preset];
            run(Command::new(stage.root.join("bin/simgpu")).args(create).arg(dir.path().join("gpus")))?;
        }
        fs::write(dir.path().join("config.toml"), configuration(stage, driver) + keys)
            .map_err(|error| error.to_string())?;
        let daemon = RefCell::new(begin(&mut daemon(stage, driver, dir.path()))?);
        let mut node = Self { stage: stage.clone(), driver, daemon, uuid: String::new(), dir };
        node.uuid = node.first_uuid()?;
        Ok(node)
    }

    /// Creates a slice on the node's first GPU; it stays until it is deleted.
    ///
    /// # Errors
    /// The daemon's refusal.
    pub fn create(&self, slice: &str, options: &[&str]) -> Result<()> {
        run(self.tranche().args(["slice", "create", slice]).args(options)).map(drop)
    }

    /// Deletes a slice and ends the processes in it.
    ///
    /// # Errors
    /// The daemon's refusal.
    pub fn delete(&self, slice: &str) -> Result<()> {
        run(self.tranche().args(["slice", "delete", "--force", slice])).map(drop)
    }

    /// Changes a slice by options of `tranche slice resize`.
    ///
    /// # Errors
    /// The daemon's refusal.
    pub fn resize(&self, slice: &str, options: &[&str]) -> Result<()> {
        run(self.tranche().args(["slice", "resize", slice]).args(options)).map(drop)
    }

    /// Kills the daemon and reaps it.
    ///
    /// # Errors
    /// If it cannot be killed or waited for.
    pub fn kill_daemon(&self) -> Result<()> {
        let mut daemon = self.daemon.borrow_mut();
        daemon.kill().and_then(|()| daemon.wait()).map(drop).map_err(|error| error.to_string())
    }

    /// True while the node's daemon runs.
    pub fn daemon_lives(&self) -> bool {
        matches!(self.daemon.borrow_mut().try_wait(), Ok(None))
    }

    /// Starts the next daemon and waits until it answers.
    ///
    /// # Errors
    /// If it cannot be started, or does not answer within 20 seconds.
    pub fn start_daemon(&self) -> Result<()> {
        *self.daemon.borrow_mut() = begin(&mut daemon(&self.stage, self.driver, self.dir.path()))?;
        self.first_uuid().map(drop)
    }

    fn first_uuid(&self) -> Result<String> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match run(self.tranche().args(["smi", "--json"])) {
                Ok(text) => {
                    let at = text.find("GPU-").ok_or("the daemon shows no GPU")?;
                    return Ok(text[at..].chars().take_while(|sign| *sign != '"').collect());
                }
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// A command outside any slice, with the node's driver and first GPU in its environment.
    pub fn bare(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        set_driver(&mut command, &self.stage, self.driver, self.dir.path());
        command.env_remove("LD_PRELOAD").env("CUDA_VISIBLE_DEVICES", &self.uuid);
        command
    }

    /// The command `tranche`, connected to this node's daemon.
    pub fn tranche(&self) -> Command {
        let mut command = self.bare(self.stage.programs.join("tranche"));
        command.arg("--socket").arg(self.socket());
        command
    }

    /// Path of the daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("run/tranched.sock")
    }

    /// A command that runs a program in a slice.
    pub fn in_slice(&self, slice: &str, program: impl AsRef<Path>) -> Command {
        let mut command = self.tranche();
        command.args(["run", "--slice", slice, "--"]).arg(program.as_ref());
        command
    }

    /// A command that runs a program under a variant.
    pub fn program(&self, variant: &Variant, program: impl AsRef<Path>) -> Command {
        match variant {
            Variant::Native => self.bare(program),
            Variant::Ours => self.in_slice(SLICE, program),
            Variant::Peer { library, variables } => {
                let mut command = self.bare(program);
                command.env("LD_PRELOAD", library).envs(variables.iter().cloned());
                command
            }
        }
    }

    /// Starts the program whose calls are measured; it has initialized the driver and waits for orders.
    ///
    /// # Errors
    /// If it cannot be started, or its initialization fails.
    pub fn client(&self, variant: &Variant) -> Result<Client> {
        let mut client = Client::start(self.program(variant, self.stage.client()).arg("serve"))?;
        client.ask("begin")?;
        Ok(client)
    }

    /// Pid of the daemon that was started last.
    pub fn daemon_pid(&self) -> u32 {
        self.daemon.borrow().id()
    }

    /// Processor time that the daemon has used, in microseconds; 0 after its end.
    pub fn daemon_cpu_us(&self) -> f64 {
        cpu::used(self.daemon_pid()).map_or(0.0, |used| used.as_secs_f64() * 1e6)
    }

    /// Bytes that all processes hold on the simulated GPU, by its own count.
    ///
    /// # Errors
    /// If there is no simulated GPU.
    pub fn device_used(&self) -> Result<f64> {
        let mut command = self.bare(self.stage.root.join("bin/simgpu"));
        let text = run(command.args(["show", "--json"]).arg(self.simulation()))?;
        let shown: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let used = shown.pointer("/gpus/0/used_mib").and_then(serde_json::Value::as_f64);
        used.map(|mib| mib * MIB).ok_or_else(|| format!("no used_mib in {text}"))
    }

    /// Reads the node's GPU through NVML.
    ///
    /// # Errors
    /// If NVML fails, or does not list the GPU.
    pub fn seen(&self) -> Result<Seen> {
        let text = run(self.bare(self.stage.root.join("bin/workload")).arg("--nvml"))?;
        let all: NvmlView = serde_json::from_str(&text).map_err(|error| format!("{error} in {text}"))?;
        let ours = all.gpus.into_iter().find(|gpu| gpu.uuid == self.uuid);
        ours.ok_or_else(|| format!("NVML does not show {}", self.uuid))
    }

    /// Driver that programs and the daemon load.
    pub const fn driver(&self) -> Driver {
        self.driver
    }

    /// The staged build that is measured.
    pub const fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Path of a file of the caller that is removed with the node.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Path of the simulated GPUs' file.
    pub fn simulation(&self) -> PathBuf {
        self.dir.path().join("gpus")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // After an error there is nothing left to try.
        let daemon = self.daemon.get_mut();
        let _ = daemon.kill();
        let _ = daemon.wait();
    }
}

fn configuration(stage: &Stage, driver: Driver) -> String {
    let shim = stage.root.join("lib/tranche/libtranche_preload.so").display().to_string();
    // A context costs nothing on the stub, and the daemon would charge an estimate.
    let reserve = if driver == Driver::Real { "" } else { "context_reserve_mib = 64\n" };
    format!("{reserve}log = \"error\"\nshim = {shim:?}\n")
}

fn daemon(stage: &Stage, driver: Driver, dir: &Path) -> Command {
    let mut command = Command::new(stage.programs.join("tranched"));
    command.arg("--config").arg(dir.join("config.toml"));
    command.arg("--runtime-dir").arg(dir.join("run")).arg("--state-dir").arg(dir.join("state"));
    set_driver(&mut command, stage, driver, dir);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn begin(command: &mut Command) -> Result<Child> {
    interrupt::start(command).map_err(|error| format!("cannot start {command:?}: {error}"))
}

fn set_driver(command: &mut Command, stage: &Stage, driver: Driver, dir: &Path) {
    if let Some(libraries) = driver.libraries(stage) {
        command.env("SIMGPU_NODE", dir.join("gpus")).env("LD_LIBRARY_PATH", libraries);
        // A GPU waits for no processor.
        command.env(simgpu::REAL_TIME_VARIABLE, "on");
    }
}

/// Runs a command to its end; returns its standard output.
///
/// # Errors
/// If it cannot be started or fails.
pub fn run(command: &mut Command) -> Result<String> {
    let child = begin(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let output =
        child.wait_with_output().map_err(|error| format!("cannot read from {command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{command:?}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}
