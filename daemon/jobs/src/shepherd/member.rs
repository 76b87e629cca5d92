//! One run of a member, from its order to its end.

use std::cell::Cell;
use std::io;

use tranche_jobs::flock::{Line, Order, Outcome};

use crate::book::Book;
use crate::log::Log;
use crate::tend;

/// Runs the command to its end and writes down how that was; `ended` is given it first, and whether the command was told
/// to end.
pub(crate) fn run(
    order: Order,
    mut book: Book,
    log: Log,
    ended: impl FnOnce(&Outcome, bool),
) -> io::Result<()> {
    // A signal to stop from now on ends the command.
    let pen = tend::Pen::new()?;
    book.write(&Line::Ran)?;
    let told = Cell::new(false);
    let outcome = pen.run(order, log, || {
        told.set(true);
        let _ = book.write(&Line::Told);
    });
    let outcome = outcome.unwrap_or_else(|error| Outcome::NotStarted(error.to_string()));
    ended(&outcome, told.get());
    book.write(&Line::Ended(outcome))
}
