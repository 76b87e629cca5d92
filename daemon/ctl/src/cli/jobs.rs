//! Arguments of `tranche project`, `submit`, `list` and the other job commands.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use tranche_domain::compute::{Latency, Priority};
use tranche_domain::jobs::{Affinity, Cpus, IdlePolicy, JobName, MilliGpus, ReportKey, Warning};
use tranche_domain::request::Share;
use tranche_domain::units::{Bytes, Permille};

pub use tranche_domain::jobs::ProjectName;

use super::container::ContainerArgs;
use super::output::{ListingArgs, OutputArgs};
use super::quantity;
use super::service::ServiceArgs;

/// `tranche project`.
#[derive(Debug, Subcommand)]
pub enum ProjectCommand {
    /// Create a project with quota and members
    Create(ProjectSettings),
    /// List the projects with quota, use and queue
    #[command(visible_alias = "ls")]
    List(ListingArgs),
    /// Show quota, use and members of a project
    Show(ProjectArgs),
    /// Change the quota, GPUs, limits or members of a project
    Update(ProjectSettings),
    /// Delete a project that has no jobs
    #[command(visible_alias = "rm")]
    Delete(ProjectArgs),
    /// Select the default project
    Set(ProjectArgs),
}

/// Selection of a project.
#[derive(Args, Debug)]
pub struct ProjectArgs {
    /// Name of the project
    #[arg(value_name = "PROJECT")]
    pub name: ProjectName,
    /// Output format: text or JSON
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche project create` and `update`.
#[derive(Args, Debug)]
pub struct ProjectSettings {
    /// Name of the project
    #[arg(value_name = "PROJECT")]
    pub name: ProjectName,
    /// Quota: GPUs available to the project at any time, such as 4 or 2.5
    #[arg(short = 'q', long, value_name = "GPUS", allow_negative_numbers = true)]
    pub quota: Option<MilliGpus>,
    /// Weight in the division of idle GPUs [default: the quota]
    #[arg(long, value_name = "GPUS", allow_negative_numbers = true)]
    pub weight: Option<MilliGpus>,
    /// GPUs for its training jobs, such as 0,1; any: all
    #[arg(long, value_name = "GPU,...", value_parser = gpus)]
    pub training_gpus: Option<Affinity>,
    /// GPUs for its interactive jobs, such as 0,1; any: all
    #[arg(long, value_name = "GPU,...", value_parser = gpus)]
    pub interactive_gpus: Option<Affinity>,
    /// Maximum runtime of an interactive job, such as 8h; 0s: unlimited
    #[arg(long, value_name = "DURATION", value_parser = quantity::project_limit)]
    pub interactive_limit: Option<Duration>,
    /// Maximum time of an interactive job without use of GPU time, such as 30m; 0s: unlimited
    #[arg(long, value_name = "DURATION", value_parser = quantity::project_limit)]
    pub idle_limit: Option<Duration>,
    /// Consequence for its jobs and slices that do not use their GPUs
    #[arg(long = "idle", value_name = "POLICY", value_parser = quantity::choice(&IDLE_POLICIES))]
    pub idle_policy: Option<IdlePolicy>,
    /// Users who may submit jobs to the project and see them, by name or uid
    #[arg(long = "add-member", visible_alias = "member", value_name = "USER", value_delimiter = ',')]
    pub add: Vec<String>,
    /// Users to remove from the members
    #[arg(long = "remove-member", value_name = "USER", value_delimiter = ',')]
    pub remove: Vec<String>,
    /// Accept quotas whose sum exceeds the node's GPUs
    #[arg(long)]
    pub beyond_capacity: bool,
    /// Output format: text or JSON
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Consequence for what has used no GPU time for `idle_after_s`.
const IDLE_POLICIES: [(&str, &str, IdlePolicy); 4] = [
    ("report", "They are named in lists, metrics and events", IdlePolicy::Report),
    ("alert", "A note for the operator as well", IdlePolicy::Alert),
    ("preempt-first", "They are preempted before others", IdlePolicy::PreemptFirst),
    ("end", "Jobs fail, and slices are ended", IdlePolicy::End),
];

/// Indices of GPUs; empty permits all.
fn gpus(text: &str) -> Result<Affinity, String> {
    if text == "any" {
        return Ok(Affinity::new());
    }
    let indices: Result<Affinity, _> = text.split(',').map(str::parse).collect();
    indices.map_err(|_| format!("{text:?} is no list of GPUs: write their indices, such as 0,1, or any"))
}

/// `tranche submit`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("size").args(["share", "memory", "file"]).required(true).multiple(true))]
pub struct SubmitArgs {
    /// Name of the job, unique in the project [default: that of the program, with a number if it is taken]
    #[arg(value_name = "NAME")]
    pub name: Option<JobName>,
    /// Project whose quota applies [default: that of `tranche project set`] [env: TRANCHE_PROJECT]
    #[arg(short = 'p', long, value_name = "PROJECT")]
    pub project: Option<ProjectName>,
    /// For each member, part of one GPU, such as 0.5, 50% or 1/2, or whole GPUs of one island
    #[arg(short = 'g', long = "gpus", value_name = "SHARE", allow_negative_numbers = true, value_parser = quantity::share)]
    pub share: Option<Share>,
    /// File with jobs, in TOML: a table `[[job]]` for each, with the long names of these options as keys
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with_all = ["name", "share", "memory", "command"])]
    pub file: Option<PathBuf>,
    /// GPU memory of each member, such as 16Gi, instead of the share's; alone, compute follows from it
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = quantity::memory)]
    pub memory: Option<Bytes>,
    /// Compute of each member, such as 30% or 0.3, instead of the share's
    #[arg(long, value_name = "SHARE", value_parser = quantity::compute)]
    pub compute: Option<Permille>,
    /// Processors that each member can use, such as 2.5
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub cpus: Option<Cpus>,
    /// Memory on the host that each member can use, such as 8Gi; beyond it, it is ended
    #[arg(long = "mem", value_name = "SIZE", allow_hyphen_values = true, value_parser = quantity::host_memory)]
    pub host_memory: Option<Bytes>,
    /// Interactive job: never preempted, and must fit within the project's quota
    #[arg(long)]
    pub interactive: bool,
    /// Allow preemption and restart, and so borrowing; always true for training
    #[arg(long)]
    pub preemptible: bool,
    /// Service, and the check of its health
    #[command(flatten)]
    pub service: ServiceArgs,
    /// Position in the project's queue, -128 to 127, higher first
    #[arg(long, value_name = "N", value_parser = quantity::priority, allow_negative_numbers = true, default_value_t)]
    pub priority: Priority,
    /// Longest wait of a member for the GPU within its share, 2ms to 10s; longer ones are counted
    #[arg(long, value_name = "DURATION", value_parser = quantity::latency)]
    pub latency: Option<Latency>,
    /// Members wait for each other, as ranks do: all run, and have their turns on the GPU, or none does
    #[arg(long)]
    pub gang: bool,
    /// Jobs of the project that have to succeed before it starts; if one fails, so does it
    #[arg(long, value_name = "JOB", value_delimiter = ',')]
    pub after: Vec<JobName>,
    /// Container of the job's members
    #[command(flatten)]
    pub container: ContainerArgs,
    /// Variables to set; a name alone takes its value from this environment
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Start with these variables and PATH, HOME, USER, LANG only, instead of this whole environment
    #[arg(long, conflicts_with = "image")]
    pub clean_env: bool,
    /// Working directory [default: the current one, or the image's]
    #[arg(short = 'w', long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// Maximum number of members that run at once; each has its number in TRANCHE_JOB_INDEX
    #[arg(long, value_name = "N", default_value_t = NonZeroU32::MIN, value_parser = quantity::members, allow_negative_numbers = true)]
    pub parallelism: NonZeroU32,
    /// Number of members that have to succeed [default: the parallelism]
    #[arg(long, value_name = "N", value_parser = quantity::members, allow_negative_numbers = true)]
    pub completions: Option<NonZeroU32>,
    /// Maximum runtime of a member, such as 12h; at least 1s
    #[arg(long, value_name = "DURATION", value_parser = quantity::runtime)]
    pub max_runtime: Option<Duration>,
    /// Number of restarts of a member that fails
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = quantity::count, allow_negative_numbers = true)]
    pub retries: u32,
    /// Signal sent before termination, to save a checkpoint: USR1, USR2, HUP or INT
    #[arg(long, value_name = "SIGNAL")]
    pub warn: Option<Warning>,
    /// Time between SIGTERM and SIGKILL, and between the warning signal and SIGTERM
    #[arg(long, value_name = "DURATION", value_parser = quantity::time, default_value = "10s")]
    pub grace: Duration,
    /// Output format: text or JSON
    #[command(flatten)]
    pub output: OutputArgs,
    /// The program and its arguments [default with an image: the image's]
    #[arg(required_unless_present_any = ["file", "image"], last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// `tranche list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Jobs of this project [default: that of `tranche project set`, or all] [env: TRANCHE_PROJECT]
    #[arg(short = 'p', long, value_name = "PROJECT")]
    pub project: Option<ProjectName>,
    /// Jobs of all projects
    #[arg(short = 'A', long, conflicts_with = "project")]
    pub all: bool,
    /// Repeat every second until interrupted
    #[arg(long)]
    pub watch: bool,
    /// Form, order and filters of the list
    #[command(flatten)]
    pub listing: ListingArgs,
}

/// Selection of a job.
#[derive(Args, Clone, Debug)]
pub struct JobArgs {
    /// Name of the job
    #[arg(value_name = "NAME")]
    pub name: JobName,
    /// Project of the job [default: the one selected by `tranche project set`] [env: TRANCHE_PROJECT]
    #[arg(short = 'p', long, value_name = "PROJECT")]
    pub project: Option<ProjectName>,
}

/// `tranche describe`, `suspend` and `resume`.
#[derive(Args, Debug)]
pub struct DescribeArgs {
    /// Job, by name and project
    #[command(flatten)]
    pub job: JobArgs,
    /// Output format: text or JSON
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche logs`.
#[derive(Args, Debug)]
pub struct LogsArgs {
    /// Job with the output
    #[command(flatten)]
    pub job: JobArgs,
    /// Follow the output until the member ends
    #[arg(short = 'f', long)]
    pub follow: bool,
    /// Number of the member, from 0
    #[arg(short = 'm', long, value_name = "INDEX", default_value_t = 0, value_parser = quantity::count, allow_negative_numbers = true)]
    pub member: u32,
    /// Number of last lines to show
    #[arg(long, value_name = "LINES", value_parser = quantity::count, allow_negative_numbers = true)]
    pub tail: Option<u32>,
}

/// `tranche exec`.
#[derive(Args, Debug)]
pub struct ExecArgs {
    /// Job whose slice the program runs in
    #[command(flatten)]
    pub job: JobArgs,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

/// `tranche delete`.
#[derive(Args, Debug)]
pub struct DeleteJobsArgs {
    /// Names of the jobs
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<JobName>,
    /// Project of the jobs [default: the one selected by `tranche project set`] [env: TRANCHE_PROJECT]
    #[arg(short = 'p', long, value_name = "PROJECT")]
    pub project: Option<ProjectName>,
    /// Output format: text or JSON
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche history`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("form").args(["csv", "svg", "json"]))]
pub struct HistoryArgs {
    /// Group the use of GPUs by project or by job
    #[arg(long, value_enum, default_value_t = By::Project)]
    pub by: By,
    /// Limit to this time until now, such as 1h
    #[arg(long, value_name = "DURATION", value_parser = quantity::time)]
    pub since: Option<Duration>,
    /// Print comma-separated values instead of lines of text
    #[arg(long)]
    pub csv: bool,
    /// Print an SVG chart
    #[arg(long)]
    pub svg: bool,
    /// Print JSON instead of lines of text
    #[arg(long)]
    pub json: bool,
}

/// `tranche report`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("form").args(["csv", "svg", "json"]))]
pub struct ReportArgs {
    /// Group by project, user, job or GPU; the column Use is time used in percent of that held
    #[arg(long, value_parser = quantity::choice(&GROUPINGS), default_value = "project")]
    pub by: ReportKey,
    /// Time until now, such as 12h or 30d; whole hours are included
    #[arg(long, value_name = "DURATION", value_parser = quantity::time, default_value = "30d")]
    pub since: Duration,
    /// Divide the time into periods of this many hours
    #[arg(long, value_name = "HOURS", value_parser = quantity::hours, allow_negative_numbers = true)]
    pub step: Option<u32>,
    /// Print comma-separated values, with times in UTC, instead of a table
    #[arg(long)]
    pub csv: bool,
    /// Print an SVG chart: one bar for each hour, or for each day of more than two
    #[arg(long)]
    pub svg: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Grouping of a report.
const GROUPINGS: [(&str, &str, ReportKey); 4] = [
    ("project", "One row for each project", ReportKey::Project),
    ("user", "One row for each user", ReportKey::User),
    ("job", "One row for each job, slice without a job, and pod", ReportKey::Job),
    ("gpu", "One row for each GPU", ReportKey::Gpu),
];

/// Grouping of GPU use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// One group for each project
    Project,
    /// One group for each job
    Job,
}
