//! How often the shim told programs that there is no memory: processes count it in their pages, and what those counted
//! that have left is kept. Like all that tenants write, it is a hint and nothing is decided by it.

use std::sync::atomic::Ordering;

use tranche_domain::slice::Seat;
use tranche_shm::usage::Counter;

use super::{Tenancy, slot};

impl Tenancy {
    /// Over all processes that the slice has had since this daemon knows it.
    pub(crate) fn refusals(&self) -> u64 {
        // Nobody's page is emptied meanwhile, so that what it says is counted once.
        let books = self.books();
        let seats = books.life.occupants().cloned().unwrap_or_default().members.into_keys();
        let kept = self.refusals.load(Ordering::Relaxed);
        seats.map(|seat| self.refusals_of(seat)).fold(kept, u64::saturating_add)
    }

    /// Keeps what a process counted whose page is emptied.
    pub(super) fn keep_refusals(&self, seat: Seat) {
        let counted = self.refusals_of(seat);
        let sum = self.refusals.load(Ordering::Relaxed).saturating_add(counted);
        self.refusals.store(sum, Ordering::Relaxed); // under the books' lock, as all that empties pages
    }

    fn refusals_of(&self, seat: Seat) -> u64 {
        self.regions.usage().counter(slot(seat), Counter::Refusals).load(Ordering::Relaxed)
    }
}
