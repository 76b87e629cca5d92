//! Arguments of the demonstration.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Arguments of `tranche demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// GPU to use: an idle real one if there is one, else the simulated node (auto)
    #[arg(long, value_enum, default_value_t = DemoGpu::Auto)]
    pub gpu: DemoGpu,
    /// Write a machine-readable report to this file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Kind of GPU for the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DemoGpu {
    /// An idle real GPU, else the simulated node
    Auto,
    /// The simulated node of eight V100s
    Sim,
    /// An idle real GPU only
    Real,
}
