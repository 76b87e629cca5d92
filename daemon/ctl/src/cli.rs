//! The command line's one definition: parsing, help, completions and man pages all come from it.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use tranche_domain::compute::Priority;
use tranche_domain::id::{GpuSelector, SliceName};
use tranche_domain::pod::{PodContainer, PodUid};
use tranche_domain::request::{ComputeMode, Fraction, Share, SliceRequest};
use tranche_domain::units::{Bytes, Permille};

use crate::demo::DemoArgs;

mod quantity;

/// Share GPUs: run programs in slices of them, and see who has what
#[derive(Debug, Parser)]
#[command(name = "tranche", version, disable_help_subcommand = true)]
pub struct Cli {
    /// The daemon's socket [default: /run/tranche/tranched.sock for root, else
    /// $XDG_RUNTIME_DIR/tranche/tranched.sock]
    #[arg(long, global = true, env = "TRANCHE_SOCKET", hide_env_values = true, value_name = "PATH")]
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
    #[arg(long, value_name = "SIZE", value_parser = quantity::memory)]
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
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub wait: Option<Duration>,
}

impl SizeArgs {
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
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `tranche slice`.
#[derive(Debug, Subcommand)]
pub enum SliceCommand {
    /// Create a slice that stays until it is deleted
    Create(CreateArgs),
    /// List the slices
    #[command(visible_alias = "ls")]
    List(OutputArgs),
    /// Show one slice
    Show(ShowArgs),
    /// Change a slice's size, limit or priority while it is in use
    Resize(ResizeArgs),
    /// Hold the launches of a slice's programs until it is thawed
    Freeze(ShowArgs),
    /// Let a frozen slice's programs go on
    Thaw(ShowArgs),
    /// Say which pod's container a slice is for
    Label(LabelArgs),
    /// Delete a slice
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
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

/// `tranche slice create`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("size").args(["share", "memory"]).required(true).multiple(true))]
pub struct CreateArgs {
    /// Name of the slice; chosen by the daemon if absent
    #[arg(value_name = "NAME")]
    pub name: Option<SliceName>,
    /// The same as NAME
    #[arg(long = "name", value_name = "NAME", conflicts_with = "name")]
    pub named: Option<SliceName>,
    /// The slice's size and place
    #[command(flatten)]
    pub size: SizeArgs,
    /// Whom it is for
    #[command(flatten)]
    pub pod: PodArgs,
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Which pod's container a slice is for.
#[derive(Args, Clone, Debug)]
pub struct PodArgs {
    /// The container that it is for
    #[arg(long = "pod", value_name = "NAMESPACE/POD/CONTAINER")]
    pub container: Option<PodContainer>,
    /// The uid of that pod
    #[arg(long = "pod-uid", value_name = "UID", requires = "container")]
    pub uid: Option<PodUid>,
}

impl PodArgs {
    /// Both together.
    pub fn pod(self) -> Option<PodContainer> {
        self.container.map(|container| PodContainer { uid: self.uid, ..container })
    }
}

/// `tranche slice label`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("label").args(["container", "remove"]).required(true))]
pub struct LabelArgs {
    /// Name of the slice
    pub name: SliceName,
    /// Whom it is for
    #[command(flatten)]
    pub pod: PodArgs,
    /// For nobody in particular
    #[arg(long)]
    pub remove: bool,
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche slice show`, `freeze` and `thaw`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Name of the slice
    pub name: SliceName,
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche slice resize`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("change").args(["fraction", "memory", "compute", "limit", "priority"]).required(true).multiple(true))]
pub struct ResizeArgs {
    /// Name of the slice
    pub name: SliceName,
    /// New part of its GPU, such as 0.3: memory and compute, where not given apart
    #[arg(short = 'g', long = "gpus", value_name = "SHARE", allow_negative_numbers = true, value_parser = quantity::fraction)]
    pub fraction: Option<Fraction>,
    /// New memory on each GPU, such as 16Gi
    #[arg(long, value_name = "SIZE", value_parser = quantity::memory)]
    pub memory: Option<Bytes>,
    /// New compute on each GPU, such as 30% or 0.3
    #[arg(long, value_name = "SHARE", value_parser = quantity::compute)]
    pub compute: Option<Permille>,
    /// New ceiling of compute on each GPU, such as 60%
    #[arg(long, value_name = "SHARE", value_parser = quantity::compute)]
    pub limit: Option<Permille>,
    /// New priority, -128 to 127
    #[arg(long, value_name = "N", value_parser = quantity::priority, allow_negative_numbers = true)]
    pub priority: Option<Priority>,
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche slice delete`.
#[derive(Args, Debug)]
pub struct DeleteArgs {
    /// Name of the slice
    pub name: SliceName,
    /// Kill the processes that use it first
    #[arg(long)]
    pub force: bool,
}

/// `tranche smi`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").args(["json", "query_slice", "query_gpu", "help_query_slice", "help_query_gpu"]))]
#[command(group = ArgGroup::new("query").args(["query_slice", "query_gpu"]))]
pub struct SmiArgs {
    /// Print JSON: everything, as the daemon says it
    #[arg(long)]
    pub json: bool,
    /// Print these fields of each slice on each of its GPUs
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',')]
    pub query_slice: Option<Vec<String>>,
    /// Print these fields of each GPU
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',')]
    pub query_gpu: Option<Vec<String>>,
    /// List the fields of --query-slice
    #[arg(long)]
    pub help_query_slice: bool,
    /// List the fields of --query-gpu
    #[arg(long)]
    pub help_query_gpu: bool,
    /// Form of a query's answer: csv, and with it noheader and nounits
    #[arg(
        long,
        value_name = "csv[,noheader][,nounits]",
        value_delimiter = ',',
        value_enum,
        requires = "query"
    )]
    pub format: Vec<Format>,
    /// Repeat every so many seconds
    #[arg(short = 'l', long = "loop", value_name = "SECONDS")]
    pub every: Option<NonZeroU32>,
}

/// A part of `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Comma-separated values.
    Csv,
    /// Without the line that names the fields.
    #[value(name = "noheader")]
    NoHeader,
    /// Without MiB, W, C and %.
    #[value(name = "nounits")]
    NoUnits,
}

/// `tranche events`.
#[derive(Args, Debug)]
pub struct EventsArgs {
    /// Go on with what happens from now on, until interrupted
    #[arg(short = 'f', long)]
    pub follow: bool,
    /// Only what happened to this slice or in it
    #[arg(long, value_name = "NAME")]
    pub slice: Option<SliceName>,
    /// Only what happened in this time until now, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub since: Option<Duration>,
    /// How to print: JSON is one object for each event, each on a line of its own
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
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
