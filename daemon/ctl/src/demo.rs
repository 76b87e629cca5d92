//! `tranche demo`: two programs share one GPU, and the view of each is measured.
//!
//! It uses public interfaces only: it starts a daemon in a private folder, runs programs through `tranche
//! run`, and takes its measurements from the daemon's socket and from NVML outside the slices.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::errors::Failure;

mod claims;
mod ground;
mod interrupt;
mod lab;
mod narrator;
mod observer;
mod owned;
mod parts;
mod play;
mod story;
mod sweep;
mod tenant;

pub use play::play;

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

/// Reason for which the demonstration failed.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A binary or library is missing beside this one.
    #[error("{} is missing: the demonstration needs the whole tree that `make build` makes", .0.display())]
    Missing(PathBuf),
    /// No real GPU is idle.
    #[error(
        "there is no real GPU that nobody else uses ({0}); `tranche demo --gpu sim` uses a simulated one"
    )]
    NoFreeGpu(String),
    /// A system call failed.
    #[error("{what}: {cause}")]
    Io {
        /// Operation that was attempted.
        what: String,
        /// Error of the system call.
        cause: std::io::Error,
    },
    /// A program ended early.
    #[error("{who} ended too early{last_words}")]
    Ended {
        /// Name of the program.
        who: String,
        /// Its last output, on a new line, if any.
        last_words: String,
    },
    /// A program or effect timed out.
    #[error("waited {} s in vain for {what}", .waited.as_secs())]
    InVain {
        /// Event that was awaited.
        what: String,
        /// Time for which it was awaited.
        waited: Duration,
    },
    /// A program replied unexpectedly.
    #[error("{who} answered {question:?} with {answer}")]
    Strange {
        /// Name of the program.
        who: String,
        /// Request that the program received.
        question: String,
        /// Reply that was not expected.
        answer: String,
    },
    /// The daemon rejected a request.
    #[error("the demonstration's own daemon: {0}")]
    Daemon(Box<Failure>),
    /// The user interrupted the demonstration.
    #[error("interrupted; everything it started has been ended")]
    Interrupted,
    /// A measured value missed its goal.
    #[error("not as promised: {}", .0.join(", "))]
    NotAsPromised(Vec<String>),
}

impl From<Failure> for DemoError {
    fn from(failure: Failure) -> Self {
        Self::Daemon(Box::new(failure))
    }
}

impl DemoError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |cause| Self::Io { what, cause }
    }
}

/// Runs the demonstration, and prints each step.
///
/// # Errors
/// If a step failed, or a goal was missed; the report is written in the latter case too.
pub fn run(args: &DemoArgs) -> Result<(), DemoError> {
    let outcome = story::tell(args.gpu)?;
    if let Some(path) = &args.report {
        outcome.write(path)?;
    }
    outcome.verdict()
}
