//! Definition of the command line, the source of parsing, help, completions and man pages.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use tranche_domain::id::SliceName;

mod container;
mod demo;
mod gpu;
mod jobs;
mod looking;
mod notify;
mod output;
mod quantity;
mod service;
mod size;
mod slice;
mod top;

pub use container::ContainerArgs;
pub use demo::{DemoArgs, DemoGpu};
pub use gpu::{CordonArgs, DrainArgs, GpuCommand, GpuListArgs, UncordonArgs};
pub use jobs::{
    By, DeleteJobsArgs, DescribeArgs, ExecArgs, HistoryArgs, JobArgs, ListArgs, LogsArgs, ProjectArgs,
    ProjectCommand, ProjectName, ProjectSettings, ReportArgs, SubmitArgs,
};
pub use looking::{DoctorArgs, EventsArgs, Format, SmiArgs};
pub use notify::{JobChange, NotifyArgs};
pub use output::{Condition, ListForm, ListingArgs, OutputArgs};
pub use service::ServiceArgs;
pub use size::SizeArgs;
pub use slice::{CreateArgs, DeleteArgs, LabelArgs, PodArgs, ResizeArgs, ShowArgs, SliceCommand, UnparkArgs};
pub use top::TopArgs;

/// Share GPUs: run programs in slices, submit jobs, and show GPUs and their users
#[derive(Debug, Parser)]
#[command(name = "tranche", version, disable_help_subcommand = true)]
pub struct Cli {
    /// The daemon's socket. [default: $XDG_RUNTIME_DIR/tranche/tranched.sock of your own daemon, else
    /// /run/tranche/tranched.sock] [env: TRANCHE_SOCKET]
    // Not read by clap's `env`, which would show the option in every usage line as if it were required.
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Show times in UTC instead of the local time zone
    #[arg(long, global = true)]
    pub utc: bool,
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
    #[command(aliases = ["ls", "ps", "get", "jobs", "queue"])]
    List(ListArgs),
    /// Show a job in detail
    #[command(alias = "show")]
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
    #[command(alias = "rm")]
    Delete(DeleteJobsArgs),
    /// Show the use of GPUs over time
    History(HistoryArgs),
    /// Sum up GPU-hours: held, used, left idle and borrowed
    Report(ReportArgs),
    /// Create, list, show, update and delete projects, or select a default
    #[command(subcommand)]
    Project(ProjectCommand),
    /// Show GPUs, their slices and the processes in them
    Smi(SmiArgs),
    /// Watch GPUs, slices and the queue on a full screen, and act on them
    Top(TopArgs),
    /// Show events: slices, rejected requests, faults and violations
    Events(EventsArgs),
    /// Report changes of jobs to a command, a webhook or by mail
    Notify(NotifyArgs),
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

/// Ids of the options that describe a new slice.
const SIZE: [&str; 14] = [
    "share",
    "memory",
    "compute",
    "limit",
    "priority",
    "latency",
    "gang",
    "project",
    "mode",
    "gpu",
    "park_idle",
    "rotate",
    "wait",
    "name",
];

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
