//! The command line's one definition: parsing, help, completions and man pages all come from it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use tranche_domain::compute::Priority;
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

/// Share GPUs: run programs in slices of them, and see who has what
#[derive(Debug, Parser)]
#[command(name = "tranche", version, disable_help_subcommand = true)]
pub struct Cli {
    /// The daemon's socket [default: /run/tranche/tranched.sock for root, else
    /// $XDG_RUNTIME_DIR/tranche/tranched.sock] [env: TRANCHE_SOCKET]
    // Read elsewhere: what clap reads itself it shows in every usage line as if it had to be given.
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program in a slice that ends with the program's last process
    Run(RunArgs),
    /// Create, list, show, resize, freeze, label and delete slices
    #[command(subcommand)]
    Slice(SliceCommand),
    /// List GPUs, keep further slices off them, and empty them
    #[command(subcommand)]
    Gpu(GpuCommand),
    /// Hand in a job: it runs when its project's turn comes
    Submit(Box<SubmitArgs>),
    /// List jobs: who has which GPUs, who waits and for what
    List(ListArgs),
    /// Show all there is to say about a job
    Describe(DescribeArgs),
    /// Show what a job printed
    Logs(LogsArgs),
    /// Run a program in the slice of a job that runs
    Exec(ExecArgs),
    /// Open a shell in the slice of a job that runs
    Bash(JobArgs),
    /// Stop a job until it is resumed
    Suspend(DescribeArgs),
    /// Let a suspended job go on
    Resume(DescribeArgs),
    /// End jobs and forget them
    Delete(DeleteJobsArgs),
    /// Show who had how many GPUs when
    History(HistoryArgs),
    /// Create, list, show, update and delete projects, or choose yours
    #[command(subcommand)]
    Project(ProjectCommand),
    /// Show GPUs, the slices in them and the processes in those
    Smi(SmiArgs),
    /// Show what happened: slices made and ended, refusals, faults, and who broke the rules
    Events(EventsArgs),
    /// Show two programs sharing one GPU, and check what each of them sees
    Demo(DemoArgs),
    /// Open a shell on a simulated node with a daemon of its own, for trying things out
    Play,
    /// Show how the daemon is configured, and have it read its configuration again
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Find out what works on this machine, what does not, and what to do about it
    Doctor(DoctorArgs),
    /// Write shell completions or man pages
    #[command(hide = true)]
    Generate(GenerateArgs),
}

/// How much, of what, under which bounds.
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
    /// The most compute on each GPU, such as 60%; the mode says it where this does not
    #[arg(long, value_name = "SHARE", value_parser = quantity::compute)]
    pub limit: Option<Permille>,
    /// Who goes first on a GPU, -128 to 127: the higher
    #[arg(long, value_name = "N", value_parser = quantity::priority, allow_negative_numbers = true, default_value_t)]
    pub priority: Priority,
    /// How compute is bounded
    #[arg(long = "compute-mode", alias = "mode", value_name = "MODE", value_enum, default_value_t = Mode::Fair)]
    pub mode: Mode,
    /// The GPU it must be on, an index or a UUID; with several, 0,3, it has its part of each of them
    #[arg(long, value_name = "GPU", value_delimiter = ',')]
    pub gpu: Vec<GpuSelector>,
    /// How long to wait for room, such as 30s or 5m
    #[arg(long, value_name = "DURATION", value_parser = quantity::time)]
    pub wait: Option<Duration>,
}

impl SizeArgs {
    /// Of a slice that is there already.
    pub const fn of_another() -> Self {
        Self {
            share: None,
            memory: None,
            compute: None,
            limit: None,
            priority: Priority::DEFAULT,
            mode: Mode::Fair,
            gpu: Vec::new(),
            wait: None,
        }
    }

    /// The request for a slice of this size that stays until it is deleted. Memory alone is a share by itself.
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
            gpus: self.gpu.clone(),
            ephemeral: false,
            pod: None,
        }
    }
}

/// What says how large a slice is and where.
const SIZE: [&str; 9] = ["share", "memory", "compute", "limit", "priority", "mode", "gpu", "wait", "name"];

/// `tranche run`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("size").args(["share", "memory", "slice"]).required(true).multiple(true))]
pub struct RunArgs {
    /// The slice's size and place
    #[command(flatten)]
    pub size: SizeArgs,
    /// Name of the slice; chosen by the daemon if absent
    #[arg(long, value_name = "NAME")]
    pub name: Option<SliceName>,
    /// Run in this slice, which exists already, instead of making one
    #[arg(long, value_name = "NAME", conflicts_with_all = SIZE)]
    pub slice: Option<SliceName>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `tranche config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show every key that is in force, and where its value came from
    Show(OutputArgs),
    /// Have the daemon read its configuration again; says what needs a restart
    Reload,
}

/// How to print.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `tranche generate`.
#[derive(Args, Debug)]
pub struct GenerateArgs {
    /// What to write
    #[arg(value_enum)]
    pub what: Artefact,
    /// The folder to write to, made if absent
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// What comes from this definition besides parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Artefact {
    /// For bash, zsh and fish.
    Completions,
    /// Section 1, one page for each command.
    Man,
}

/// How compute is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// At least the request, and its share of what is idle, up to the limit
    Fair,
    /// The request and never more
    Strict,
    /// No request: only what is idle
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
