//! Arguments of `tranche smi`, `events` and `doctor`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use tranche_domain::id::SliceName;

use super::output::OutputArgs;
use super::quantity;

/// `tranche smi`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").args(["json", "query_slice", "query_gpu", "help_query_slice", "help_query_gpu"]))]
#[command(group = ArgGroup::new("query").args(["query_slice", "query_gpu"]))]
pub struct SmiArgs {
    /// Print everything as JSON
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
    /// Format of a query: csv, optionally with noheader and nounits
    #[arg(
        long,
        value_name = "csv[,noheader][,nounits]",
        value_delimiter = ',',
        value_enum,
        requires = "query"
    )]
    pub format: Vec<Format>,
    /// Repeat at this interval: seconds, or a duration such as 500ms; at least 100ms
    #[arg(short = 'l', long = "loop", value_name = "SECS", value_parser = quantity::repetition)]
    pub every: Option<Duration>,
}

/// An element of `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Comma-separated values, the only format
    Csv,
    /// Leave out the header line
    #[value(name = "noheader")]
    NoHeader,
    /// Leave out MiB, W, C and % after values
    #[value(name = "nounits")]
    NoUnits,
}

/// `tranche events`.
#[derive(Args, Debug)]
pub struct EventsArgs {
    /// Follow new events until interrupted
    #[arg(short = 'f', long)]
    pub follow: bool,
    /// Events of this slice only
    #[arg(long, value_name = "NAME")]
    pub slice: Option<SliceName>,
    /// Limit to this time until now, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = quantity::time)]
    pub since: Option<Duration>,
    /// Output format: JSON is one object for each event, each on a line of its own
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Write a new archive with everything that a bug report needs, and list its content
    #[arg(long, value_name = "FILE.tar.gz", conflicts_with = "json")]
    pub bundle: Option<PathBuf>,
    /// List what this host needs for slices, what of it is there, and the commands for the rest
    #[arg(long, conflicts_with = "bundle")]
    pub setup: bool,
    /// Run those commands, as root, and list what is left
    #[arg(long, requires = "setup")]
    pub apply: bool,
    /// Output format: text or JSON
    #[command(flatten)]
    pub output: OutputArgs,
}
