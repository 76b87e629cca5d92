//! Memory of pools in other processes, lent out of the pool's charge and charged to the slice once.
//!
//! Like all shared memory it is charged until its last holder is gone. An entry of [`EntryKind::Alias`] among the few
//! holds in its detail the share's key, in its units the loan and in its link the pool. When the pointer is freed,
//! its pool may keep the memory, and an importer may hold it too. So the loan ends at once, but the share is dropped
//! only when the pool's charge covers all that the pool keeps.

use tranche_shm::credit::Units;
use tranche_shm::message::ShareKey;

use crate::charge::{ChargeRefused, Charged, DaemonLink};
use crate::ledger::Ledger;
use crate::mark::{Behind, Mark, Marks};
use crate::pool::{PoolUse, lent, target, with_lent};
use crate::share::alias;
use crate::table::{EntryKind, TableEntry};

impl Ledger<'_> {
    /// Lends a pool's memory at a pointer under the key `share`; call it after the driver's export.
    ///
    /// Memory that cannot be lent is left as it is: each importer is charged for it in full.
    ///
    /// # Errors
    /// The table has no room for the loan.
    pub fn export_streamed(&self, pointer: u64, share: ShareKey, daemon: &impl DaemonLink) -> Charged<()> {
        let _turn = self.sharing().acquire();
        let name = alias(EntryKind::Streamed, pointer);
        let known = self.few.find(EntryKind::Alias, name).is_some()
            || self.table.find(EntryKind::Shared, share.0).is_some();
        let Some(entry) = self.table.find(EntryKind::Streamed, pointer).filter(|_| !known) else {
            return Ok(());
        };
        let (pool, units) = (entry.link, Units::new(entry.detail as u32));
        let held = TableEntry { detail: 1, ..self.entry(entry.device, units) };
        let loan = TableEntry { detail: share.0, link: pool, ..self.entry(entry.device, units) };
        self.table.put(EntryKind::Shared, share.0, held).map_err(|_| ChargeRefused)?;
        let lent = self.few.put(EntryKind::Alias, name, loan).is_ok() && self.lend(pool, units);
        if !lent {
            self.few.take(EntryKind::Alias, name, u64::MAX);
            self.table.take(EntryKind::Shared, share.0, u64::MAX);
            return Ok(());
        }
        self.say_exported(entry.device, share, units, daemon);
        Ok(())
    }

    /// Moves units from a pool's charge to its loans; false if it is charged less.
    fn lend(&self, pool: u64, units: Units) -> bool {
        let mut done = false;
        self.few.alter(EntryKind::Pool, pool, |entry| {
            done = entry.units >= units && units > Units::ZERO;
            if !done {
                return entry;
            }
            let left = TableEntry { units: entry.units.saturating_sub(units), ..entry };
            with_lent(left, lent(&entry).saturating_add(units))
        });
        done
    }

    /// Ends the loan of a freed pointer: its pool is charged for all that it keeps again.
    pub(crate) fn end_loan(&self, pointer: u64, freed: &TableEntry) {
        let Some(loan) = self.few.find(EntryKind::Alias, alias(EntryKind::Streamed, pointer)) else { return };
        self.few.alter(EntryKind::Pool, freed.link, |entry| {
            let ended = loan.serial > freed.serial && entry.serial < loan.serial;
            if ended { with_lent(entry, lent(&entry).saturating_sub(loan.units)) } else { entry }
        });
    }

    /// Drops shares of freed pointers, as far as their pools can be charged for what they keep.
    pub fn return_lent(&self, daemon: &impl DaemonLink, keeps: &impl PoolUse) {
        for (_, name, loan) in self.few.entries(&[EntryKind::Alias], |_| true) {
            let pointer = name & !alias(EntryKind::Streamed, 0);
            // The driver may have returned the address again since.
            let is_freed =
                self.table.find(EntryKind::Streamed, pointer).is_none_or(|now| now.serial > loan.serial);
            if is_freed && self.cover(&loan, daemon, keeps) {
                self.few.take(EntryKind::Alias, name, loan.serial);
                self.let_go(ShareKey(loan.detail));
            }
        }
    }

    /// Raises the charge of a loan's pool to what it keeps; true if it is covered now.
    fn cover(&self, loan: &TableEntry, daemon: &impl DaemonLink, keeps: &impl PoolUse) -> bool {
        let _turn = self.device_lock(loan.device).acquire();
        let of_loan = |pool: &TableEntry| pool.serial < loan.serial;
        let Some(entry) = self.few.find(EntryKind::Pool, loan.link).filter(of_loan) else { return false };
        let owed = target(&entry, keeps.reserved(loan.link)).saturating_sub(entry.units);
        let Ok(reserved) = self.tenant.charge(loan.device, owed, daemon) else { return false };
        self.few.alter(EntryKind::Pool, loan.link, |entry| {
            with_lent(TableEntry { units: entry.units.saturating_add(owed), ..entry }, lent(&entry))
        });
        reserved.keep(owed);
        true
    }

    /// Drops the loans of a pool that was made at `stamp` or later and has ended.
    ///
    /// Only other processes can still hold its memory.
    pub(crate) fn drop_lent(&self, pool: u64, stamp: u64) {
        let present = self.few.find(EntryKind::Pool, pool).map_or(u64::MAX, |pool| pool.serial);
        let of_gone = |loan: &TableEntry| loan.link == pool && (stamp..present).contains(&loan.serial);
        for (_, _, loan) in self.few.drain(&[EntryKind::Alias], of_gone) {
            self.let_go(ShareKey(loan.detail));
        }
    }

    /// True if memory of another process is open at a pointer.
    pub fn is_opened(&self, pointer: u64) -> bool {
        self.table.find(EntryKind::Opened, pointer).is_some()
    }

    /// Lets `driver` close memory opened at `pointer` in the order of a stream, which `mark` shows.
    pub fn close_in_order<E>(
        &self,
        pointer: u64,
        marks: &impl Marks,
        mark: impl FnOnce() -> Mark,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let opened = self.table.find(EntryKind::Opened, pointer);
        driver()?;
        if let Some(opened) = opened {
            self.leave_behind(Behind::Opened(pointer), opened.device, mark(), marks);
        }
        Ok(())
    }
}
