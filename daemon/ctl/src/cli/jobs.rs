//! `tranche project`, `submit`, `list` and the like, word by word.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use tranche_domain::compute::Priority;
use tranche_domain::jobs::{JobName, MilliGpus, Warning};
use tranche_domain::request::Share;

pub use tranche_domain::jobs::ProjectName;

use super::{OutputArgs, quantity};

/// `tranche project`.
#[derive(Debug, Subcommand)]
pub enum ProjectCommand {
    /// Create a project
    Create(ProjectSettings),
    /// List the projects: what each is promised, has and waits for
    #[command(visible_alias = "ls")]
    List(OutputArgs),
    /// Show one project
    Show(ProjectArgs),
    /// Change a project
    Update(ProjectSettings),
    /// Delete a project that has no jobs
    #[command(visible_alias = "rm")]
    Delete(ProjectArgs),
    /// Choose the project that is meant where none is named
    Set(ProjectArgs),
}

/// A project.
#[derive(Args, Debug)]
pub struct ProjectArgs {
    /// Its name
    #[arg(value_name = "PROJECT")]
    pub name: ProjectName,
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche project create` and `update`.
#[derive(Args, Debug)]
pub struct ProjectSettings {
    /// Its name
    #[arg(value_name = "PROJECT")]
    pub name: ProjectName,
    /// GPUs that it can have whenever it wants, such as 4 or 2.5
    #[arg(short = 'q', long, value_name = "GPUS", allow_negative_numbers = true)]
    pub quota: Option<MilliGpus>,
    /// Its share of what is idle, beside the others' weights [default: the quota]
    #[arg(long, value_name = "GPUS", allow_negative_numbers = true)]
    pub weight: Option<MilliGpus>,
    /// The GPUs that its training may be on, such as 0,1; any: all
    #[arg(long, value_name = "GPU,...", value_parser = gpus)]
    pub training_gpus: Option<Gpus>,
    /// The GPUs that its interactive jobs may be on, such as 0,1; any: all
    #[arg(long, value_name = "GPU,...", value_parser = gpus)]
    pub interactive_gpus: Option<Gpus>,
    /// How long an interactive job may run, such as 8h; 0s: for ever
    #[arg(long, value_name = "DURATION", value_parser = quantity::time)]
    pub interactive_limit: Option<Duration>,
    /// How long an interactive job may use no GPU time, such as 30m; 0s: for ever
    #[arg(long, value_name = "DURATION", value_parser = quantity::time)]
    pub idle_limit: Option<Duration>,
    /// Users who may submit to it and see its jobs, by name or uid
    #[arg(long = "add-member", visible_alias = "member", value_name = "USER", value_delimiter = ',')]
    pub add: Vec<String>,
    /// Users who are not to any more
    #[arg(long = "remove-member", value_name = "USER", value_delimiter = ',')]
    pub remove: Vec<String>,
    /// Even if the quotas together are more than the node has
    #[arg(long)]
    pub beyond_capacity: bool,
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Indices of GPUs; none: any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpus(pub Vec<u32>);

fn gpus(text: &str) -> Result<Gpus, String> {
    if text == "any" {
        return Ok(Gpus(Vec::new()));
    }
    let indices: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
    indices
        .map(Gpus)
        .map_err(|_| format!("{text:?} is no list of GPUs: write their indices, such as 0,1, or any"))
}

/// `tranche submit`.
#[derive(Args, Debug)]
pub struct SubmitArgs {
    /// Its name, unique in the project
    #[arg(value_name = "NAME")]
    pub name: JobName,
    /// Under whose quota [default: the project chosen by `tranche project set`]
    #[arg(short = 'p', long, env = "TRANCHE_PROJECT", hide_env_values = true, value_name = "PROJECT")]
    pub project: Option<ProjectName>,
    /// Part of one GPU, such as 0.5, or whole GPUs of one island, such as 2; each member gets as much
    #[arg(short = 'g', long = "gpus", value_name = "SHARE", allow_negative_numbers = true)]
    pub share: Share,
    /// Somebody sits before it: it stays within the quota, and nobody else ends it
    #[arg(long)]
    pub interactive: bool,
    /// It may be stopped for others and begun again, and may borrow; training always may
    #[arg(long)]
    pub preemptible: bool,
    /// Its place in its project's queue, -128 to 127: the higher goes first
    #[arg(long, value_name = "N", value_parser = quantity::priority, allow_negative_numbers = true, default_value_t)]
    pub priority: Priority,
    /// Variables to set; with a name alone, as it is here
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Start with these variables and PATH, HOME, USER, LANG alone, instead of all that are set here
    #[arg(long)]
    pub clean_env: bool,
    /// Where it starts [default: here]
    #[arg(short = 'w', long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// How many members may run at once; TRANCHE_JOB_INDEX tells each which it is
    #[arg(long, value_name = "N", default_value_t = NonZeroU32::MIN, allow_negative_numbers = true)]
    pub parallelism: NonZeroU32,
    /// How many members there are [default: the parallelism]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub completions: Option<NonZeroU32>,
    /// How long a member may run, such as 12h
    #[arg(long, value_name = "DURATION", value_parser = quantity::time)]
    pub max_runtime: Option<Duration>,
    /// How often a member that fails is started again
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub retries: u32,
    /// A signal that comes before it is stopped, so that it can save where it is: USR1, USR2, HUP or INT
    #[arg(long, value_name = "SIGNAL")]
    pub warn: Option<Warning>,
    /// How long it has between being told to stop and being killed, and after the warning as well
    #[arg(long, value_name = "DURATION", value_parser = quantity::time, default_value = "10s")]
    pub grace: Duration,
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// `tranche list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Jobs of this project [default: the one chosen by `tranche project set`, or all]
    #[arg(short = 'p', long, env = "TRANCHE_PROJECT", hide_env_values = true, value_name = "PROJECT")]
    pub project: Option<ProjectName>,
    /// Jobs of all projects
    #[arg(short = 'A', long, conflicts_with = "project")]
    pub all: bool,
    /// Go on showing them, until interrupted
    #[arg(long)]
    pub watch: bool,
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
}

/// A job.
#[derive(Args, Clone, Debug)]
pub struct JobArgs {
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: JobName,
    /// Its project [default: the one chosen by `tranche project set`]
    #[arg(short = 'p', long, env = "TRANCHE_PROJECT", hide_env_values = true, value_name = "PROJECT")]
    pub project: Option<ProjectName>,
}

/// `tranche describe`, `suspend` and `resume`.
#[derive(Args, Debug)]
pub struct DescribeArgs {
    /// Which
    #[command(flatten)]
    pub job: JobArgs,
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche logs`.
#[derive(Args, Debug)]
pub struct LogsArgs {
    /// Which
    #[command(flatten)]
    pub job: JobArgs,
    /// Go on with what it prints, until it ends
    #[arg(short = 'f', long)]
    pub follow: bool,
    /// Which of its members, from 0
    #[arg(short = 'm', long, value_name = "INDEX", default_value_t = 0)]
    pub member: u32,
    /// Only so many of the last lines
    #[arg(long, value_name = "LINES")]
    pub tail: Option<u32>,
}

/// `tranche exec`.
#[derive(Args, Debug)]
pub struct ExecArgs {
    /// Which
    #[command(flatten)]
    pub job: JobArgs,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

/// `tranche delete`.
#[derive(Args, Debug)]
pub struct DeleteJobsArgs {
    /// Which
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<JobName>,
    /// Their project [default: the one chosen by `tranche project set`]
    #[arg(short = 'p', long, env = "TRANCHE_PROJECT", hide_env_values = true, value_name = "PROJECT")]
    pub project: Option<ProjectName>,
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche history`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("form").args(["csv", "svg", "json"]))]
pub struct HistoryArgs {
    /// Whose
    #[arg(long, value_enum, default_value_t = By::Project)]
    pub by: By,
    /// Only what happened in this time until now, such as 1h
    #[arg(long, value_name = "DURATION", value_parser = quantity::time)]
    pub since: Option<Duration>,
    /// Print comma-separated values
    #[arg(long)]
    pub csv: bool,
    /// Print a drawing
    #[arg(long)]
    pub svg: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Whose GPUs are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Each project's.
    Project,
    /// Each job's.
    Job,
}
