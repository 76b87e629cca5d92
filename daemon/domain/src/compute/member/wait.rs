//! Waits of a slice with a latency target.

use crate::compute::latency::{Latency, Waits};
use crate::compute::time::{Instant, Nanos};

/// Present wait of a slice, and counts of those before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TargetWait {
    /// Moment at which it began to want the GPU; `None` once it may launch.
    since: Option<Instant>,
    counts: Waits,
}

impl TargetWait {
    pub(super) const fn begin(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// Ends the wait, and counts it if there is a target for it.
    pub(super) fn end(&mut self, now: Instant, target: Option<Latency>) {
        if let Some((since, target)) = self.since.take().zip(target) {
            self.counts.add(now.since(since), target);
        }
    }

    pub(super) const fn is_on(self) -> bool {
        self.since.is_some()
    }

    /// Length of the present wait, if any.
    pub(super) fn length(self, now: Instant) -> Option<Nanos> {
        Some(now.since(self.since?))
    }

    pub(super) const fn counts(self) -> Waits {
        self.counts
    }
}
