//! Arguments of `tranche gpu`.

use std::time::Duration;

use clap::{Args, Subcommand};
use tranche_domain::cordon::Reason;
use tranche_domain::id::GpuSelector;

use super::output::{ListingArgs, OutputArgs};
use super::quantity;

/// `tranche gpu`.
#[derive(Debug, Subcommand)]
pub enum GpuCommand {
    /// List the GPUs, their slices, and the reasons for which they take none
    #[command(visible_alias = "ls")]
    List(GpuListArgs),
    /// Keep new slices off GPUs; existing slices stay
    Cordon(CordonArgs),
    /// Cordon GPUs and wait until no slice and no process is left on them
    Drain(DrainArgs),
    /// Allow new slices on GPUs again
    Uncordon(UncordonArgs),
    /// Discard the observed and the measured context reserves. The measured ones apply again at once, until the
    /// next start of the daemon measures anew
    ForgetReserves,
}

/// `tranche gpu list`.
#[derive(Args, Debug)]
pub struct GpuListArgs {
    /// Fail if the node has no GPU, as a readiness probe
    #[arg(long)]
    pub require: bool,
    /// With --require: longest time to wait for the daemon and a GPU
    #[arg(long, value_name = "DURATION", requires = "require", value_parser = quantity::time)]
    pub wait: Option<Duration>,
    /// Selection, order and format
    #[command(flatten)]
    pub listing: ListingArgs,
}

/// `tranche gpu cordon`.
#[derive(Args, Debug)]
pub struct CordonArgs {
    /// GPUs, by index or UUID
    #[arg(value_name = "GPU", required = true, value_delimiter = ',')]
    pub gpus: Vec<GpuSelector>,
    /// Reason, shown to users whose requests are affected
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<Reason>,
    /// Output format: text or JSON
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche gpu uncordon`.
#[derive(Args, Debug)]
pub struct UncordonArgs {
    /// GPUs, by index or UUID
    #[arg(value_name = "GPU", required = true, value_delimiter = ',')]
    pub gpus: Vec<GpuSelector>,
    /// Output format: text or JSON
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche gpu drain`.
#[derive(Args, Debug)]
pub struct DrainArgs {
    /// GPUs to drain, and the reason shown to users
    #[command(flatten)]
    pub cordon: CordonArgs,
    /// Park the slices that can be, first of all: their programs wait until `tranche slice unpark`
    #[arg(long)]
    pub park: bool,
    /// Time for slices and processes to end by themselves, such as 10m. [default: unlimited; with
    /// --delete-slices 0s]
    #[arg(long, value_name = "DURATION", value_parser = quantity::time)]
    pub timeout: Option<Duration>,
    /// After the timeout, end the slices by force. Their processes receive SIGTERM; after the grace period the
    /// remaining slices are deleted and their processes killed
    #[arg(long)]
    pub delete_slices: bool,
    /// Time between SIGTERM and SIGKILL, at most a day
    #[arg(long, value_name = "DURATION", default_value = "30s", requires = "delete_slices")]
    pub grace: humantime::Duration,
}
