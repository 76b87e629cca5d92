//! Openings that were announced to a slice, and that come by themselves.

use crate::compute::terms::NextLease;
use crate::compute::time::{Instant, Nanos};
use crate::compute::verdict::{Opening, SliceDecision};

/// Least change of a likely time that is announced.
const MOVED: Nanos = Nanos::millis(1);

/// Announcement to the threads of a slice.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::compute) struct Announcement {
    /// Next opening, which comes by itself.
    next: Option<Opening>,
    /// Lease as it was published.
    published: Option<NextLease>,
    /// The opening has come since the last decision.
    began: bool,
}

impl Announcement {
    /// Time of the next opening, if that comes by itself.
    pub(in crate::compute) fn begins_at(&self) -> Option<Instant> {
        self.next.map(|next| next.at)
    }

    /// Takes the opening, if its time has come.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Opening> {
        let next = self.next.filter(|next| next.at <= now)?;
        *self = Self { began: true, ..Self::default() };
        Some(next)
    }

    /// Takes in what a decision announces. Returns it if it is another than before.
    pub(in crate::compute) fn replace(&mut self, verdict: &SliceDecision) -> Option<Option<NextLease>> {
        self.next = verdict.next;
        let opening = verdict.next.map(|next| NextLease { lease: next.lease, at: next.at });
        let likely = || verdict.likely.map(|at| NextLease { lease: verdict.lease, at });
        let next = opening.or_else(likely);
        let is_same = match (self.published, next) {
            (Some(before), Some(next)) if before.lease == next.lease && !next.lease.open => {
                before.at.since(next.at).max(next.at.since(before.at)) < MOVED
            }
            (before, next) => before == next,
        };
        (!is_same).then(|| {
            self.published = next;
            next
        })
    }

    /// Tests if the opening has come since the last decision, once.
    pub(super) fn take_begun(&mut self) -> bool {
        core::mem::take(&mut self.began)
    }
}
