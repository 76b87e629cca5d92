//! One run of a member, from its order to the recorded outcome.

use std::cell::Cell;
use std::io;

use tranche_jobs::runner_protocol::{CommandOrder, CommandOutcome, StatusLine};

use crate::status_file::StatusFile;
use crate::supervision::{CommandNotice, Site, Supervisor};

/// Runs the command and records its outcome. `ended` is called first, with the outcome and whether a stop was
/// requested.
pub(crate) fn run(
    order: CommandOrder,
    mut status: StatusFile,
    site: Site,
    ended: impl FnOnce(&CommandOutcome, bool),
) -> io::Result<()> {
    // From here on SIGTERM stops the command, not the runner.
    let supervisor = Supervisor::new()?;
    status.write(&StatusLine::Ran)?;
    let told = Cell::new(false);
    let outcome = supervisor.run(order, site, |notice| {
        told.set(told.get() || notice == CommandNotice::StopRequested);
        let line = match notice {
            CommandNotice::StopRequested => StatusLine::Told,
            CommandNotice::Healthy => StatusLine::Healthy,
        };
        let _ = status.write(&line);
    });
    let outcome = outcome.unwrap_or_else(|error| CommandOutcome::NotStarted(error.to_string()));
    ended(&outcome, told.get());
    status.write(&StatusLine::Ended(outcome))
}
