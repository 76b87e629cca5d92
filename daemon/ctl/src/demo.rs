//! `tranche demo`: two programs share one GPU, and what each of them sees is measured.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What the demonstration may be told.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Which GPU to use: a real one that nobody else uses if there is one, else the simulated node (auto)
    #[arg(long, value_enum, default_value_t = DemoGpu::Auto)]
    pub gpu: DemoGpu,
    /// Write the machine-readable report to this file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Start the daemon and open a shell on the node instead of showing anything
    #[arg(long)]
    pub play: bool,
}

/// Which kind of GPU the demonstration uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DemoGpu {
    /// A real GPU that nobody uses, else the simulated node.
    Auto,
    /// The simulated node.
    Sim,
    /// A real GPU or nothing.
    Real,
}

/// Why the demonstration could not be given, or did not hold.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// This build has none.
    #[error("this build of tranche has no demonstration")]
    Absent,
}

/// Gives the demonstration. Prints as it goes; an error means that a claim did not hold or nothing could be
/// shown.
pub fn run(_args: &DemoArgs) -> Result<(), DemoError> {
    Err(DemoError::Absent)
}
