//! `tranche gpu`, word by word.

use std::time::Duration;

use clap::{Args, Subcommand};
use tranche_domain::cordon::Reason;
use tranche_domain::id::GpuSelector;

use super::OutputArgs;
use super::quantity;

/// `tranche gpu`.
#[derive(Debug, Subcommand)]
pub enum GpuCommand {
    /// List the GPUs, what of them is in slices, and why they take none
    #[command(visible_alias = "ls")]
    List(OutputArgs),
    /// Put no further slices on GPUs; those that are there stay
    Cordon(CordonArgs),
    /// Cordon GPUs and wait until no slice and no process is left on them
    Drain(DrainArgs),
    /// Put slices on GPUs again
    Uncordon(UncordonArgs),
    /// Forget what contexts were seen and measured to take: slices are charged the measured reserve again, and that is
    /// measured anew when the daemon starts next
    ForgetReserves,
}

/// `tranche gpu cordon`.
#[derive(Args, Debug)]
pub struct CordonArgs {
    /// The GPUs, by index or UUID
    #[arg(value_name = "GPU", required = true, value_delimiter = ',')]
    pub gpus: Vec<GpuSelector>,
    /// Why, for whoever asks for a slice there meanwhile
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<Reason>,
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche gpu uncordon`.
#[derive(Args, Debug)]
pub struct UncordonArgs {
    /// The GPUs, by index or UUID
    #[arg(value_name = "GPU", required = true, value_delimiter = ',')]
    pub gpus: Vec<GpuSelector>,
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche gpu drain`.
#[derive(Args, Debug)]
pub struct DrainArgs {
    /// Which GPUs and why
    #[command(flatten)]
    pub cordon: CordonArgs,
    /// How long everybody may take to go of their own accord, such as 10m [default: for ever; with
    /// --delete-slices 0s]
    #[arg(long, value_name = "DURATION", value_parser = quantity::time)]
    pub timeout: Option<Duration>,
    /// After that, send the processes of slices SIGTERM, and after the grace period delete what slices there are
    /// still and kill their processes
    #[arg(long)]
    pub delete_slices: bool,
    /// How long processes have between SIGTERM and SIGKILL, at most a day
    #[arg(long, value_name = "DURATION", default_value = "30s", requires = "delete_slices")]
    pub grace: humantime::Duration,
}
