//! Error of the demonstration.

use std::path::PathBuf;
use std::time::Duration;

use tranche_ctl::errors::Failure;

/// Reason for which the demonstration failed.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A binary or library is missing beside this one.
    #[error("cannot find {}: take a release, or what `make build` makes as a whole", .0.display())]
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
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |cause| Self::Io { what, cause }
    }
}
