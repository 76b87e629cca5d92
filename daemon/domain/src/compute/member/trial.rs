//! Waits for the work that a slice had outstanding when it was closed.

use crate::compute::time::{Instant, Nanos};

/// Outcomes of the waits after its closings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trial {
    /// End of the longest wait after the last closing; `None` once judged.
    by: Option<Instant>,
    /// Closings after which its work outlasted the longest wait, less those in time: 0 to 4.
    overran: u8,
}

impl Trial {
    /// Begins after a closing. `None` if no work was outstanding then.
    pub(super) const fn begin(&mut self, by: Option<Instant>) {
        self.by = by;
    }

    /// Tests if the longest wait has passed.
    pub(super) fn is_over(self, now: Instant) -> bool {
        self.by.is_some_and(|by| now > by)
    }

    /// Judges the work: it is over, or `outlasts` the longest wait.
    pub(super) const fn settle(&mut self, outlasts: bool) {
        if self.by.take().is_some() {
            self.overran = match self.overran {
                most @ 4.. if outlasts => most,
                count if outlasts => count + 1,
                count => count.saturating_sub(1),
            };
        }
    }

    /// Time for which others wait, of the `longest`: the half for each such closing after the first.
    pub(super) fn patience(self, longest: Nanos) -> Nanos {
        longest.scaled(1, 1 << self.overran.saturating_sub(1))
    }
}
