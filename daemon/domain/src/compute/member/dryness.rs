//! Times in which a slice ran out of work in its turn although more was waiting.

use crate::compute::time::Nanos;

/// Mean time in a turn from which a slice runs dry.
///
/// Its threads wake so late that the queue has ended before.
const DRY: Nanos = Nanos::micros(200);

/// Longest time without work that is no sign of it: a thread that wakes in time takes as long.
const PROMPT: Nanos = Nanos::micros(300);

/// Length from which a turn counts as several.
const LONG: Nanos = Nanos::millis(20);

/// Times of its turns in which a slice had no work while a thread of it waited at the open gate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dryness {
    /// In the present turn.
    turn: Nanos,
    /// The present time without work, so far.
    stretch: Nanos,
    /// Length of the present turn so far.
    length: Nanos,
    /// In those before, in the mean of about sixteen.
    mean: Nanos,
}

impl Dryness {
    /// Takes in a time of a turn.
    pub(super) fn add(&mut self, time: Nanos, dry: bool) {
        if dry {
            self.stretch += time;
        } else {
            let stretch = core::mem::take(&mut self.stretch);
            self.turn += if stretch > PROMPT { stretch } else { Nanos::ZERO };
        }
        self.length += time;
        if self.length >= LONG {
            self.end_turn();
        }
    }

    pub(super) fn end_turn(&mut self) {
        self.length = Nanos::ZERO;
        self.mean = self.mean.scaled(15, 16) + core::mem::take(&mut self.turn).scaled(1, 16);
    }

    /// Tests if it happens for long enough to need a longer queue.
    pub(super) fn is_much(self) -> bool {
        self.mean > DRY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dry_times_count_until_turns_without_them_came() {
        let mut dryness = Dryness::default();
        dryness.add(Nanos::millis(6), true);
        dryness.add(Nanos::millis(1), false);
        assert!(!dryness.is_much(), "the turn is not over");
        dryness.end_turn();
        assert!(dryness.is_much());
        (0..16).for_each(|_| dryness.end_turn());
        assert!(!dryness.is_much());
    }
}
