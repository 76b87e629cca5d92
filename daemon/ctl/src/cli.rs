//! Definition of the command line, the source of parsing, help, completions and man pages.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use tranche_domain::compute::{GangName, Priority};
use tranche_domain::id::{GpuSelector, SliceName};
use tranche_domain::request::{ComputeMode, Share, SliceRequest};
use tranche_domain::units::{Bytes, Permille};

use crate::demo::DemoArgs;

mod gpu;
mod jobs;
mod looking;
mod quantity;
mod slice;

pub use gpu::{CordonArgs, DrainArgs, GpuCommand, UncordonArgs};
pub use jobs::{
    By, DeleteJobsArgs, DescribeArgs, ExecArgs, HistoryArgs, JobArgs, ListArgs, LogsArgs, ProjectArgs,
    ProjectCommand, ProjectName, ProjectSettings, SubmitArgs,
};
pub use looking::{DoctorArgs, EventsArgs, Format, SmiArgs};
pub use slice::{CreateArgs, DeleteArgs, LabelArgs, PodArgs, ResizeArgs, ShowArgs, SliceCommand};

/// Share GPUs: run programs in slices, submit jobs, and show GPUs and their users
#[derive(Debug, Parser)]
#[command(name = "tranche", version, disable_help_subcommand = true)]
pub struct Cli {
    /// The daemon's socket. [default: $XDG_RUNTIME_DIR/tranche/tranched.sock of your own daemon, else
    /// /run/tranche/tranched.sock] [env: TRANCHE_SOCKET]
    // Not read by clap's `env`, which would show the option in every usage line as if it were required.
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Command to carry out
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of `tranche`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program in a slice that ends with the program's last process
    Run(RunArgs),
    /// Create, list, show, resize, freeze, label and delete slices
    #[command(subcommand)]
    Slice(SliceCommand),
    /// List, cordon, drain and uncordon GPUs
    #[command(subcommand)]
    Gpu(GpuCommand),
    /// Submit a job, which starts when the quota scheduler selects it
    Submit(Box<SubmitArgs>),
    /// List jobs: their GPUs, and the reasons for which they wait
    List(ListArgs),
    /// Show a job in detail
    Describe(DescribeArgs),
    /// Show a job's output
    Logs(LogsArgs),
    /// Run a program in the slice of a running job
    Exec(ExecArgs),
    /// Open a shell in the slice of a running job
    Bash(JobArgs),
    /// Stop a job until it is resumed
    Suspend(DescribeArgs),
    /// Resume a suspended job
    Resume(DescribeArgs),
    /// Stop and delete jobs
    Delete(DeleteJobsArgs),
    /// Show the use of GPUs over time
    History(HistoryArgs),
    /// Create, list, show, update and delete projects, or select a default
    #[command(subcommand)]
    Project(ProjectCommand),
    /// Show GPUs, their slices and the processes in them
    Smi(SmiArgs),
    /// Show events: slices created and deleted, rejected requests, faults and violations
    Events(EventsArgs),
    /// Run two programs on one GPU, and check what each of them sees
    Demo(DemoArgs),
    /// Open a shell on a simulated node with a daemon of its own
    Play,
    /// Show the configuration of the daemon, or reload it
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Check what works on this machine, what does not, and what to do about it
    Doctor(DoctorArgs),
    /// Write shell completions or man pages
    #[command(hide = true)]
    Generate(GenerateArgs),
}

/// Size, place and bounds of a slice.
#[derive(Args, Clone, Debug)]
pub struct SizeArgs {
    /// Part of one GPU, such as 0.5, or whole GPUs, such as 2
    #[arg(short = 'g', long = "gpus", value_name = "SHARE", allow_negative_numbers = true)]
    pub share: Option<Share>,
    /// Memory on each GPU, such as 16Gi; alone, the compute share follows from it
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = quantity::memory)]
    pub memory: Option<Bytes>,
    /// Compute on each GPU, such as 30% or 0.3
    #[arg(long, value_name = "SHARE", value_parser = quantity::compute)]
    pub compute: Option<Permille>,
    /// Compute limit on each GPU, such as 60% [default: by the mode]
    #[arg(long, value_name = "SHARE", value_parser = quantity::compute)]
    pub limit: Option<Permille>,
    /// Scheduling priority on a GPU, -128 to 127, higher first
    #[arg(long, value_name = "N", value_parser = quantity::priority, allow_negative_numbers = true, default_value_t)]
    pub priority: Priority,
    /// Gang of the slice: those of one owner and gang have their turns on the GPU at the same time
    #[arg(long, value_name = "NAME")]
    pub gang: Option<GangName>,
    /// Use of compute beyond the request
    #[arg(long = "compute-mode", alias = "mode", value_name = "MODE", value_enum, default_value_t = Mode::Fair)]
    pub mode: Mode,
    /// GPU to use, an index or a UUID; with several, such as 0,3, the slice has its part of each
    #[arg(long, value_name = "GPU", value_delimiter = ',')]
    pub gpu: Vec<GpuSelector>,
    /// Longest wait for room, such as 30s or 5m
    #[arg(long, value_name = "DURATION", value_parser = quantity::time)]
    pub wait: Option<Duration>,
}

impl SizeArgs {
    /// The size of an existing slice: none is given.
    pub const fn of_another() -> Self {
        Self {
            share: None,
            memory: None,
            compute: None,
            limit: None,
            priority: Priority::DEFAULT,
            gang: None,
            mode: Mode::Fair,
            gpu: Vec::new(),
            wait: None,
        }
    }

    /// Request for a slice of this size that is not ephemeral. Memory alone is a share of its own.
    pub fn request(&self, name: Option<SliceName>) -> SliceRequest {
        let (share, memory) = match (self.share, self.memory) {
            (Some(share), memory) => (share, memory),
            (None, Some(memory)) => (Share::Memory(memory), None),
            (None, None) => unreachable!("the command line requires a share or memory"),
        };
        SliceRequest {
            name,
            share,
            memory,
            compute: self.compute,
            limit: self.limit,
            mode: self.mode.into(),
            priority: self.priority,
            gang: self.gang.clone(),
            gpus: self.gpu.clone(),
            ephemeral: false,
            pod: None,
        }
    }
}

/// Ids of the options that describe a new slice.
const SIZE: [&str; 10] =
    ["share", "memory", "compute", "limit", "priority", "gang", "mode", "gpu", "wait", "name"];

/// `tranche run`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("size").args(["share", "memory", "slice"]).required(true).multiple(true))]
pub struct RunArgs {
    /// Size and place of the slice
    #[command(flatten)]
    pub size: SizeArgs,
    /// Name of the slice; chosen by the daemon if absent
    #[arg(long, value_name = "NAME")]
    pub name: Option<SliceName>,
    /// Run in this existing slice instead of creating one
    #[arg(long, value_name = "NAME", conflicts_with_all = SIZE)]
    pub slice: Option<SliceName>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `tranche config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show every key with its value and origin
    Show(OutputArgs),
    /// Reload the configuration; lists the keys that need a restart
    Reload,
}

/// Choice between text and JSON output.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputArgs {
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// `tranche generate`.
#[derive(Args, Debug)]
pub struct GenerateArgs {
    /// Kind of files to write
    #[arg(value_enum)]
    pub what: Artefact,
    /// Folder to write to, created if absent
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Files generated from the definition of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Artefact {
    /// Completions for bash, zsh and fish.
    Completions,
    /// Man pages of section 1, one for each command.
    Man,
}

/// Use of compute beyond the request of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// At least the request, plus a share of idle time, up to the limit
    Fair,
    /// The request and never more
    Strict,
    /// No request: idle time only
    BestEffort,
}

impl From<Mode> for ComputeMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Fair => Self::Fair,
            Mode::Strict => Self::Strict,
            Mode::BestEffort => Self::BestEffort,
        }
    }
}
