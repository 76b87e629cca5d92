//! Waits for the work that a slice had outstanding when it was closed.
//!
//! A collective ends when the last of its ranks has begun. Where that is in a slice of another GPU which waits for its own turn,
//! waiting for the end of the first means that both GPUs compute nothing.

use crate::compute::time::{Instant, Nanos};

/// Outcomes of the waits after its closings.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::compute) struct Trial {
    /// End of the longest wait after the last closing; `None` once judged.
    by: Option<Instant>,
    /// Closings after which its work outlasted the longest wait, less those in time: 0 to 4.
    overran: u8,
    /// Slice of another GPU with whose begin such work ended.
    partner: Option<usize>,
    /// Long waits that ended with a begin of that slice, less those that did not: 0 to 6.
    released: u8,
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

    /// Slice of another GPU for which its work may wait.
    pub(in crate::compute) const fn partner(self) -> Option<usize> {
        self.partner
    }

    /// Judges work that took long to end: with the begin of that slice of another GPU, or of none.
    pub(in crate::compute) fn release(&mut self, by: Option<usize>) {
        if by.is_some() && by == self.partner {
            self.released = (self.released + 1).min(6);
            self.by = None;
            return;
        }
        self.released = self.released.saturating_sub(1);
        if self.released == 0 {
            self.partner = by;
        }
    }

    /// Forgets the slices of other GPUs, which have other places now.
    pub(in crate::compute) const fn forget_partner(&mut self) {
        (self.partner, self.released) = (None, 0);
    }

    /// Time for which others wait, of the `longest`.
    ///
    /// It is half of that for each such closing after the first, and for each wait that a slice of another GPU ended.
    pub(super) fn patience(self, longest: Nanos) -> Nanos {
        longest.scaled(1, 1 << (self.overran.saturating_sub(1) + self.released))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time for which others wait, of a second, after waits that ended with begins of those slices.
    fn patience_after(ends: impl IntoIterator<Item = Option<usize>>) -> Nanos {
        let mut trial = Trial::default();
        ends.into_iter().for_each(|by| trial.release(by));
        trial.patience(Nanos::millis(1024))
    }

    #[test]
    fn work_that_one_slice_of_another_gpu_ends_each_time_is_waited_for_less_and_less() {
        assert_eq!(patience_after([Some(7); 1]), Nanos::millis(1024), "it may be chance");
        assert_eq!(patience_after([Some(7); 3]), Nanos::millis(256));
        assert_eq!(patience_after([Some(7); 50]), Nanos::millis(16));
        let no_more = [Some(7); 50].into_iter().chain([None; 6]);
        assert_eq!(patience_after(no_more), Nanos::millis(1024));
    }

    #[test]
    fn work_that_ends_as_others_begin_by_chance_is_waited_for_as_before() {
        // Turns of seven other GPUs, and one in four ends near a begin of the same slice.
        assert_eq!(patience_after((0..100).map(|end| Some(end % 7))), Nanos::millis(1024));
        assert_eq!(patience_after((0..100).map(|end| (end % 4 == 0).then_some(7))), Nanos::millis(1024));
    }
}
