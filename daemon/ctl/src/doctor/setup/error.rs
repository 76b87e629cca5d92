//! Errors of the setup, and the number of steps that are left.

/// Error of `tranche doctor --setup`.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Commands of the setup need root.
    #[error("cannot set this host up as an ordinary user: run `sudo tranche doctor --setup --apply`")]
    NotRoot,
    /// Nothing is installed that could be set up.
    #[error("cannot set this host up, as tranche's units are not installed: {remedy}")]
    NotInstalled {
        /// Advice for the administrator.
        remedy: String,
    },
    /// A command of the setup could not be started.
    #[error("cannot start `{command}`: {cause}; what was done before it stays")]
    Start {
        /// The program and its arguments, separated by spaces.
        command: String,
        /// Error of the start.
        cause: std::io::Error,
    },
    /// A command of the setup failed.
    #[error("`{command}` failed ({status}); what was done before it stays, and the setup can be repeated")]
    Command {
        /// The program and its arguments, separated by spaces.
        command: String,
        /// Exit status or signal of the program.
        status: std::process::ExitStatus,
    },
    /// Steps are left, which are printed already.
    #[error("{}", left(*.0))]
    StepsLeft(usize),
}

/// Number of steps that are left, in words.
pub(super) fn left(count: usize) -> String {
    match count {
        0 => "nothing is left to do".into(),
        1 => "1 step is left".into(),
        many => format!("{many} steps are left"),
    }
}
