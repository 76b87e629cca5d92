//! `simgpu`: makes simulated nodes, shows them, and does to their GPUs what goes wrong in life.
#![forbid(unsafe_code)]

mod failure;
mod show;
mod tenant;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use simgpu::{
    Blocks, ComputeMode, DRIVER_VARIABLE, MigMode, Needs, Node, NodeSpec, Presence, Setting, Virtualization,
};

use failure::{Failure, find};

#[derive(Parser)]
#[command(
    version,
    about = "Simulated GPUs, shared by processes through one file",
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a node; programs use it with SIMGPU_NODE=FILE
    Create {
        /// A preset's name (see `simgpu models`) or the path of a preset file
        #[arg(long, value_name = "NAME|PATH")]
        preset: String,
        /// The driver: 535, 550, 570, 580 or 610; else SIMGPU_DRIVER, else the preset's
        #[arg(long, value_name = "KEY")]
        driver: Option<String>,
        /// Replace FILE if it exists; programs that use the old one keep it
        #[arg(long)]
        force: bool,
        /// Path of the node's file, which must not exist
        file: PathBuf,
    },
    /// Show a node's GPUs, who holds what, and faults
    Show {
        /// Path of the node's file
        file: PathBuf,
        /// Print JSON instead of tables
        #[arg(long)]
        json: bool,
    },
    /// Print who really ran when: GPU, pid, context, from and until in nanoseconds (tab-separated)
    Log {
        /// Path of the node's file
        file: PathBuf,
        /// Of this GPU only
        #[arg(long, value_name = "INDEX")]
        gpu: Option<usize>,
    },
    /// Change a GPU's modes or make it fail
    Set(Set),
    /// Take memory for a process, as a driver does for purposes of its own
    Take(Take),
    /// List the models and presets that are built in
    Models,
    /// Hold memory and keep a GPU busy: for tests
    #[command(hide = true)]
    Tenant(tenant::Tenant),
}

/// Options that change something; at least one must be given.
const CHANGES: [&str; 11] = [
    "mig",
    "compute_mode",
    "xid",
    "lost",
    "needs",
    "virtualization",
    "context_mib",
    "linger_ms",
    "hangs",
    "full_images",
    "restored_hangs",
];

#[derive(Args)]
#[command(group(ArgGroup::new("change").required(true).multiple(true).args(CHANGES)))]
struct Set {
    /// Path of the node's file
    file: PathBuf,
    /// Index of the GPU
    #[arg(long, value_name = "INDEX")]
    gpu: usize,
    /// Multi-instance GPU mode (MIG)
    #[arg(long)]
    mig: Option<Switch>,
    /// Admission of contexts to the GPU
    #[arg(long)]
    compute_mode: Option<Mode>,
    /// Report a fault with this code, such as 79 (fallen off the bus)
    #[arg(long, value_name = "CODE")]
    xid: Option<u64>,
    /// Take the GPU off the bus, or put it back
    #[arg(long)]
    lost: Option<Switch>,
    /// Report that nothing but this helps any more
    #[arg(long)]
    needs: Option<Need>,
    /// Pretend to be inside a virtual machine
    #[arg(long)]
    virtualization: Option<Guest>,
    /// Memory cost of contexts made from now on
    #[arg(long, value_name = "MIB")]
    context_mib: Option<u64>,
    /// For how long dead processes keep what they hold and are listed
    #[arg(long, value_name = "MS")]
    linger_ms: Option<u64>,
    /// Have NVML not come back from questions about it, or answer again
    #[arg(long)]
    hangs: Option<Switch>,
    /// Have checkpoints take as much of the host's memory as they hold of the GPU's
    #[arg(long)]
    full_images: Option<Switch>,
    /// Have the end of a restored process take the node's GPUs down
    #[arg(long)]
    restored_hangs: Option<Switch>,
}

#[derive(Args)]
struct Take {
    /// Path of the node's file
    file: PathBuf,
    /// Index of the GPU
    #[arg(long, value_name = "INDEX")]
    gpu: usize,
    /// Pid of the process
    #[arg(long, value_name = "PID")]
    pid: u32,
    /// Size in whole blocks of 2 MiB
    #[arg(long, value_name = "MIB")]
    mib: u64,
    /// The process has a driver of its own in it, and begins now
    #[arg(long)]
    begin: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    Default,
    ExclusiveProcess,
    Prohibited,
}

#[derive(Clone, Copy, ValueEnum)]
enum Need {
    Nothing,
    Reset,
    Reboot,
}

#[derive(Clone, Copy, ValueEnum)]
enum Guest {
    None,
    Vgpu,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Err(Failure::Write(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("simgpu: {failure}");
            ExitCode::FAILURE
        }
        Ok(()) => ExitCode::SUCCESS,
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Create { preset, driver, force, file } => create(&preset, driver, force, file),
        Command::Show { file, json } => show::node(&Node::attach(&file)?, json),
        Command::Log { file, gpu } => log(file, gpu),
        Command::Set(set) => apply(set),
        Command::Take(take) => take.apply(),
        Command::Models => show::models(),
        Command::Tenant(tenant) => tenant.run(),
    }
}

fn create(preset: &str, driver: Option<String>, force: bool, file: PathBuf) -> Result<(), Failure> {
    let spec = NodeSpec::preset(preset)?;
    let driver = driver.or_else(|| std::env::var(DRIVER_VARIABLE).ok()).filter(|key| !key.is_empty());
    let spec = match driver {
        Some(key) => spec.with_driver(&key)?,
        None => spec,
    };
    if force
        && let Err(source) = std::fs::remove_file(&file)
        && source.kind() != std::io::ErrorKind::NotFound
    {
        return Err(Failure::Remove { path: file, source });
    }
    Node::create(&file, &spec)?;
    Ok(())
}

fn log(file: PathBuf, only: Option<usize>) -> Result<(), Failure> {
    let node = Node::attach(&file)?;
    let gpus = match only {
        Some(index) => vec![find(&node, file, index)?],
        None => node.gpus().collect(),
    };
    show::log(&node, &gpus)
}

fn apply(set: Set) -> Result<(), Failure> {
    let node = Node::attach(&set.file)?;
    let gpu = find(&node, set.file.clone(), set.gpu)?;
    let model = &node.gpu_spec(gpu).model;
    if matches!(set.mig, Some(Switch::On)) && model.mig.instances == 0 {
        return Err(Failure::NoMig { gpu, model: model.name.clone() });
    }
    for setting in set.settings() {
        node.set(gpu, setting);
    }
    if let Some(code) = set.xid {
        node.raise_xid(gpu, code);
    }
    Ok(())
}

impl Take {
    fn apply(self) -> Result<(), Failure> {
        let node = Node::attach(&self.file)?;
        let gpu = find(&node, self.file.clone(), self.gpu)?;
        let begun = if self.begin { node.introduce(self.pid) } else { Some(Ok(())) };
        let blocks = Blocks::holding_mib(self.mib);
        let taken = begun.and_then(|begun| Some((begun, node.take_for(gpu, self.pid, blocks)?)));
        let (begun, taken) = taken.ok_or(Failure::NoProcess { file: self.file, pid: self.pid })?;
        Ok(begun.and(taken)?)
    }
}

impl Set {
    fn settings(&self) -> impl Iterator<Item = Setting> {
        let mig = self.mig.map(|switch| match switch {
            Switch::On => MigMode::Enabled,
            Switch::Off => MigMode::Disabled,
        });
        let presence = self.lost.map(|switch| match switch {
            Switch::On => Presence::Lost,
            Switch::Off => Presence::Present,
        });
        let compute_mode = self.compute_mode.map(|mode| match mode {
            Mode::Default => ComputeMode::Default,
            Mode::ExclusiveProcess => ComputeMode::ExclusiveProcess,
            Mode::Prohibited => ComputeMode::Prohibited,
        });
        let needs = self.needs.map(|need| match need {
            Need::Nothing => Needs::Nothing,
            Need::Reset => Needs::Reset,
            Need::Reboot => Needs::Reboot,
        });
        let guest = self.virtualization.map(|guest| match guest {
            Guest::None => Virtualization::None,
            Guest::Vgpu => Virtualization::Vgpu,
        });
        [
            mig.map(Setting::Mig),
            presence.map(Setting::Presence),
            needs.map(Setting::Needs),
            compute_mode.map(Setting::ComputeMode),
            guest.map(Setting::Virtualization),
            self.context_mib.map(|mib| Setting::Context(Blocks::holding_mib(mib))),
            self.linger_ms.map(|ms| Setting::Linger(Duration::from_millis(ms))),
            self.hangs.map(|switch| Setting::Hangs(matches!(switch, Switch::On))),
            self.full_images.map(|switch| Setting::FullImages(matches!(switch, Switch::On))),
            self.restored_hangs.map(|switch| Setting::RestoredHangs(matches!(switch, Switch::On))),
        ]
        .into_iter()
        .flatten()
    }
}
