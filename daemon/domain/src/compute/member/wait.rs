//! Waits of a slice with a latency target.

use crate::compute::latency::{Latency, Waits};
use crate::compute::time::Instant;

/// Present wait of a slice, and counts of those before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TargetWait {
    /// Moment at which it began to want the GPU; `None` once it may launch.
    since: Option<Instant>,
    /// It began within the slice's share.
    is_due: bool,
    /// Moment at which the slice began to want the GPU; `None` once it wants nothing.
    asked: Option<Instant>,
    counts: Waits,
}

impl TargetWait {
    /// Begins a wait. One that is due, within the slice's share, counts when it ends.
    pub(super) const fn begin(&mut self, now: Instant, is_due: bool) {
        (self.since, self.is_due, self.asked) = (Some(now), is_due, Some(now));
    }

    /// Ends the request: the slice wants nothing.
    pub(super) const fn settle(&mut self) {
        self.asked = None;
    }

    /// Moment at which the present request began, if there is one.
    pub(super) const fn asked(self) -> Option<Instant> {
        self.asked
    }

    /// Ends the wait, and counts it if it was due and there is a target for it.
    pub(super) fn end(&mut self, now: Instant, target: Option<Latency>) {
        if let Some((since, target)) = self.since.take().zip(target.filter(|_| self.is_due)) {
            self.counts.add(now.since(since), target);
        }
    }

    pub(super) const fn is_on(self) -> bool {
        self.since.is_some()
    }

    pub(super) const fn counts(self) -> Waits {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_that_began_beyond_the_share_does_not_count() {
        let ms = |time: u64| Instant::from_nanos(time * 1_000_000);
        let target = Some(Latency::LEAST);
        let mut wait = TargetWait::default();
        wait.begin(ms(0), false);
        wait.end(ms(500), target);
        assert_eq!(wait.counts(), Waits::default());
        wait.begin(ms(600), true);
        wait.end(ms(605), target);
        assert!(!wait.is_on());
        assert_eq!(wait.counts(), Waits { count: 1, late: 1, longest_us: 5_000 });
        wait.end(ms(700), target);
        assert_eq!(wait.counts().count, 1);
    }
}
