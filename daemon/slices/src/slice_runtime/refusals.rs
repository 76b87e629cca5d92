//! Count of allocations that the shim refused. Processes count in their usage pages; the counts of processes that
//! have left are retained. As a value that tenants write, it is a hint, and no decision depends on it.

use std::sync::atomic::Ordering;

use tranche_domain::slice::Seat;
use tranche_shm::usage::Counter;

use super::{SliceRuntime, slot};

impl SliceRuntime {
    /// Total over all processes of the slice since this daemon started serving it.
    pub fn refusals(&self) -> u64 {
        // Pages are cleared under this lock, so each count enters once.
        let accounting = self.accounting();
        let kept = self.refusals.load(Ordering::Relaxed);
        accounting.members().map(|(seat, _)| self.refusals_of(seat)).fold(kept, u64::saturating_add)
    }

    /// Retains the count of a process before its page is cleared.
    pub(super) fn keep_refusals(&self, seat: Seat) {
        let counted = self.refusals_of(seat);
        let sum = self.refusals.load(Ordering::Relaxed).saturating_add(counted);
        self.refusals.store(sum, Ordering::Relaxed); // the caller holds the accounting lock
    }

    fn refusals_of(&self, seat: Seat) -> u64 {
        self.regions.usage().counter(slot(seat), Counter::Refusals).load(Ordering::Relaxed)
    }
}
