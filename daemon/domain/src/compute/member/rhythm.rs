//! Busy and idle times of a slice, by turns.

use crate::compute::rules::Rules;
use crate::compute::time::{Instant, Nanos};

/// Number of turns with work at their end after which an idle moment is forgotten.
const MOMENTS: u8 = 4;

/// Means of the busy and idle times of a slice, in which the last counts a quarter.
#[derive(Clone, Copy, Debug)]
pub(in crate::compute) struct Rhythm {
    /// Last time at which it became idle.
    pub(super) idle_since: Instant,
    /// Mean length of its idle times.
    pub(in crate::compute) gap: Nanos,
    /// Mean length of its busy times.
    pub(in crate::compute) stint: Nanos,
    /// Mean length of its idle times above [`Rules::hysteresis`], up to [`Rules::about`] each.
    ///
    /// It fades with each turn that ends with work.
    pause: Nanos,
    /// Turns in which it was idle, less those in which it was not: 0 to [`MOMENTS`].
    dries: u8,
}

impl Rhythm {
    pub(super) const fn new(now: Instant) -> Self {
        Self { idle_since: now, gap: Nanos::ZERO, stint: Nanos::ZERO, pause: Nanos::ZERO, dries: 0 }
    }

    /// Takes in that its work ended and none of its threads waits.
    pub(super) const fn dry(&mut self) {
        self.dries = MOMENTS;
    }

    /// Takes in the end of a busy time that began at `busy_since`.
    pub(super) fn rest(&mut self, at: Instant, busy_since: Instant) {
        self.idle_since = at;
        self.stint = mean(self.stint, at.since(busy_since));
    }

    /// Takes in the end of an idle time.
    pub(super) fn wake(&mut self, now: Instant, rules: &Rules) {
        let idle = now.since(self.idle_since);
        self.gap = mean(self.gap, idle);
        if idle > rules.hysteresis {
            self.pause = mean(self.pause, idle.min(rules.about));
        }
    }

    /// Takes in a turn that ended with work.
    pub(super) fn last(&mut self) {
        self.dries = self.dries.saturating_sub(1);
        self.pause = mean(self.pause, Nanos::ZERO);
    }

    /// Tests if it was idle in one of its last turns.
    pub(super) const fn has_moments(self) -> bool {
        self.dries > 0
    }

    /// Time since it wanted the GPU last, within which it is expected back, `late` more than usual.
    pub(in crate::compute) fn patience(self, late: Nanos, rules: &Rules) -> Nanos {
        (self.pause.scaled(4, 1) + late).min(rules.about)
    }
}

fn mean(before: Nanos, time: Nanos) -> Nanos {
    before.scaled(3, 4) + time.scaled(1, 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_idle_moment_is_forgotten_by_turns_with_work_at_their_end() {
        let rules = Rules::default();
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut rhythm = Rhythm::new(at(0));
        rhythm.dry();
        rhythm.rest(at(10), at(0));
        rhythm.wake(at(50), &rules);
        let patience = |rhythm: Rhythm| rhythm.patience(Nanos::ZERO, &rules);
        assert_eq!((rhythm.gap, patience(rhythm)), (Nanos::millis(10), Nanos::millis(40)));
        assert_eq!(rhythm.stint, Nanos::micros(2_500));
        let mut serving = rhythm;
        (0..40).for_each(|_| {
            serving.rest(at(60), at(50));
            serving.wake(at(61), &rules);
        });
        assert_eq!(patience(serving), patience(rhythm), "waits within a request are no pauses");
        (0..4).for_each(|_| rhythm.last());
        assert!(!rhythm.has_moments() && patience(rhythm) < Nanos::millis(13), "{rhythm:?}");
        assert_eq!(rhythm.gap, Nanos::millis(10));
        rhythm.rest(at(100), at(50));
        rhythm.wake(at(100_000), &rules);
        assert_eq!(patience(rhythm), rules.about, "it is about for no longer");
    }
}
