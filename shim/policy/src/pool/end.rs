//! End of pools, whose memory in use stays charged.

use tranche_shm::credit::Units;

use super::{ANYWHERE, live, on_device};
use crate::ledger::Ledger;
use crate::table::{EntryKind, TableEntry};

impl Ledger<'_> {
    /// Lets `driver` destroy a pool.
    ///
    /// While a pointer of it is in use, the driver keeps its memory, which stays charged: after the destruction, no
    /// query returns the amount.
    pub fn destroy_pool<E>(&self, pool: u64, driver: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let stamp = self.table.stamp();
        driver()?;
        if self.pool_gone(EntryKind::ForeignPool, pool, stamp).is_some_and(|gone| gone.detail == ANYWHERE) {
            for device in self.tenant.control.devices() {
                self.end_pool(on_device(pool, device), stamp);
            }
        }
        self.end_pool(pool, stamp);
        Ok(())
    }

    fn end_pool(&self, pool: u64, stamp: u64) {
        match self.few.take(EntryKind::Pool, pool, stamp) {
            Some(entry) if live(&entry) > 0 => self.keep_gone(pool, entry),
            Some(entry) => {
                self.forget(EntryKind::Pool, pool, entry);
                self.drop_lent(pool, entry.serial);
            }
            None => {}
        }
    }

    /// Ends the entry of a pool that has ended and whose handle was returned again.
    pub(super) fn forget_pool(&self, pool: u64, stamp: u64) {
        self.pool_gone(EntryKind::ForeignPool, pool, stamp);
        self.pool_gone(EntryKind::Pool, pool, stamp);
        if self.tenant.control.device_count() > 1 {
            for device in self.tenant.control.devices() {
                self.pool_gone(EntryKind::Pool, on_device(pool, device), stamp);
            }
        }
    }

    /// Another pool with this handle may be in use still: then both end when neither is.
    fn keep_gone(&self, pool: u64, gone: TableEntry) {
        // An entry that finds no room in the table stays charged: too much, never too little.
        let _ = self.few.change(EntryKind::GonePool, pool, |before| {
            let (units, other) = before.map_or((Units::ZERO, 0), |before| (before.units, before.detail));
            let units = gone.units.saturating_add(units);
            Some(TableEntry { units, detail: other.saturating_add(live(&gone).into()), ..gone })
        });
    }

    pub(super) fn shrink_gone(&self, pool: u64, live: u64) {
        let mut last = None;
        let _ = self.few.change(EntryKind::GonePool, pool, |entry| {
            let left = entry.map(|entry| TableEntry { detail: entry.detail.saturating_sub(live), ..entry });
            last = left.filter(|entry| entry.detail == 0);
            left.filter(|entry| entry.detail > 0)
        });
        if let Some(gone) = last {
            self.forget(EntryKind::GonePool, pool, gone);
            self.drop_lent(pool, 0);
        }
    }

    fn pool_gone(&self, kind: EntryKind, pool: u64, stamp: u64) -> Option<TableEntry> {
        let gone = self.few.take(kind, pool, stamp)?;
        self.forget(kind, pool, gone);
        Some(gone)
    }
}
