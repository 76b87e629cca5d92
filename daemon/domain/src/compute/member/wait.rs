//! Waits of a slice with a latency target.

use crate::compute::latency::{Latency, Waits};
use crate::compute::time::{Instant, Nanos};

/// Present wait of a slice, and counts of those before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TargetWait {
    /// Moment at which it began to want the GPU; `None` once it may launch.
    since: Option<Instant>,
    /// It began within the slice's share.
    is_due: bool,
    /// Present request; `None` once the slice wants nothing.
    request: Option<Request>,
    counts: Waits,
}

/// Work of a slice from the moment when it begins to want the GPU until it wants nothing.
#[derive(Clone, Copy, Debug)]
struct Request {
    since: Instant,
    /// GPU time that the slice had used before it.
    used: Nanos,
}

impl TargetWait {
    /// Begins a request after a use of GPU time, with a wait.
    ///
    /// A wait that is due, within the slice's share, counts when it ends.
    pub(super) const fn begin(&mut self, now: Instant, used: Nanos, is_due: bool) {
        (self.since, self.is_due) = (Some(now), is_due);
        self.request = Some(Request { since: now, used });
    }

    /// Begins a wait in the midst of a request, whose time is the same.
    pub(super) const fn interrupt(&mut self, now: Instant) {
        (self.since, self.is_due) = (Some(now), true);
    }

    /// Ends the request: the slice wants nothing.
    pub(super) const fn settle(&mut self) {
        self.request = None;
    }

    /// Time by which the request should be done, and GPU time that it may use until that counts no longer.
    ///
    /// A request that uses twice its target, as endless work does, is due at no time.
    pub(super) fn due(self, used: Nanos, target: Latency) -> Option<(Instant, Nanos)> {
        let request = self.request?;
        let left = target.nanos().scaled(2, 1) - (used - request.used);
        (left > Nanos::ZERO).then_some((request.since + target.nanos(), left))
    }

    /// Ends the wait, and counts it if it was due and there is a target for it.
    pub(super) fn end(&mut self, now: Instant, target: Option<Latency>) {
        if let Some((since, target)) = self.since.take().zip(target.filter(|_| self.is_due)) {
            self.counts.add(now.since(since), target);
        }
    }

    pub(super) const fn counts(self) -> Waits {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Option<Latency> = Some(Latency::LEAST);

    fn ms(time: u64) -> Instant {
        Instant::from_nanos(time * 1_000_000)
    }

    #[test]
    fn wait_that_began_beyond_the_share_does_not_count() {
        let mut wait = TargetWait::default();
        wait.begin(ms(0), Nanos::ZERO, false);
        wait.end(ms(500), TARGET);
        assert_eq!(wait.counts(), Waits::default());
        wait.begin(ms(600), Nanos::ZERO, true);
        wait.end(ms(605), TARGET);
        assert_eq!(wait.counts(), Waits { count: 1, late: 1, longest_us: 5_000 });
        wait.end(ms(700), TARGET);
        assert_eq!(wait.counts().count, 1);
    }

    #[test]
    fn interrupted_request_is_due_as_before_until_it_uses_twice_its_target() {
        let mut wait = TargetWait::default();
        assert_eq!(wait.due(Nanos::ZERO, Latency::LEAST), None);
        wait.begin(ms(100), Nanos::millis(50), true);
        wait.end(ms(190), TARGET);
        wait.interrupt(ms(191));
        wait.end(ms(192), TARGET);
        assert_eq!(wait.due(Nanos::millis(53), Latency::LEAST), Some((ms(102), Nanos::millis(1))));
        assert_eq!(wait.due(Nanos::millis(54), Latency::LEAST), None);
        assert_eq!(wait.counts().count, 2);
        wait.settle();
        assert_eq!(wait.due(Nanos::millis(50), Latency::LEAST), None);
    }
}
