//! `tranche demo`: two programs share one GPU, and what each of them sees is measured.
//!
//! It is an ordinary user of everything else: it starts a daemon of its own in a private folder, runs its
//! programs through `tranche run`, asks through the daemon's socket, and believes none of them: what counts is
//! what NVML says outside the slices.

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

/// What the demonstration may be told.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Which GPU to use: a real one that nobody else uses if there is one, else the simulated node (auto)
    #[arg(long, value_enum, default_value_t = DemoGpu::Auto)]
    pub gpu: DemoGpu,
    /// Write the machine-readable report to this file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
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
    /// A binary or library is not beside this one.
    #[error("{} is missing: the demonstration needs the whole tree that `make build` makes", .0.display())]
    Missing(PathBuf),
    /// No real GPU may be used.
    #[error(
        "there is no real GPU that nobody else uses ({0}); `tranche demo --gpu sim` uses a simulated one"
    )]
    NoFreeGpu(String),
    /// The kernel refused something.
    #[error("{what}: {cause}")]
    Io {
        /// What was attempted.
        what: String,
        /// What the kernel said.
        cause: std::io::Error,
    },
    /// A program ended when it should have gone on.
    #[error("{who} ended too early{last_words}")]
    Ended {
        /// Which.
        who: String,
        /// What it said last, on a new line, if anything.
        last_words: String,
    },
    /// A program did not answer, or something did not come about.
    #[error("waited {} s in vain for {what}", .waited.as_secs())]
    InVain {
        /// For what.
        what: String,
        /// How long.
        waited: Duration,
    },
    /// A program said what nobody expects of it.
    #[error("{who} answered {question:?} with {answer}")]
    Strange {
        /// Which.
        who: String,
        /// What it was asked.
        question: String,
        /// What it said.
        answer: String,
    },
    /// The daemon said no.
    #[error("the demonstration's own daemon: {0}")]
    Daemon(Box<Failure>),
    /// The person at the keyboard said stop.
    #[error("interrupted; everything it started has been ended")]
    Interrupted,
    /// It ran to its end, and something was not as promised.
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

/// Gives the demonstration. Prints as it goes.
///
/// # Errors
/// If nothing could be shown, or if a claim did not hold; the report is written in the latter case too.
pub fn run(args: &DemoArgs) -> Result<(), DemoError> {
    let outcome = story::tell(args.gpu)?;
    if let Some(path) = &args.report {
        outcome.write(path)?;
    }
    outcome.verdict()
}
