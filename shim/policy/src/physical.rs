//! Physical memory by handle: charged from its creation until it is neither held nor mapped.

use tranche_shm::credit::Units;

use crate::charge::Daemon;
use crate::extent::BLOCK_BYTES;
use crate::ledger::{Claim, Denied, Ledger};
use crate::table::{Entry, Kind};

/// An entry of [`Kind::Physical`] counts in its detail: references in the upper half, mappings in the lower.
pub(crate) const REFERENCE: u64 = 1 << 32;
const MAPPING: u64 = 1;

impl Ledger<'_> {
    /// Charges physical memory and lets `driver` create it; `undo` releases it again.
    pub fn create<E>(
        &self,
        claim: Claim,
        daemon: &impl Daemon,
        driver: impl FnOnce() -> Result<u64, E>,
        undo: impl FnOnce(u64),
    ) -> Result<u64, Denied<E>> {
        let units = claim.extent.worst();
        let reserved = self.tenant.charge(claim.device, units, daemon)?;
        let handle = driver().map_err(Denied::Driver)?;
        let entry = Entry { detail: REFERENCE, ..self.entry(claim.device, units) };
        match self.table.put(Kind::Physical, handle, entry) {
            Ok(gone) => {
                reserved.keep(units);
                gone.into_iter().for_each(|gone| self.forget(Kind::Physical, handle, gone));
                Ok(handle)
            }
            Err(full) => {
                undo(handle);
                Err(full.into())
            }
        }
    }

    /// The program took another reference to `handle`.
    pub fn retained(&self, handle: u64) {
        let _ = self.table.change(Kind::Physical, handle, |entry| {
            entry.map(|entry| Entry { detail: entry.detail.saturating_add(REFERENCE), ..entry })
        });
    }

    /// Lets `driver` give up a reference.
    pub fn release<E>(&self, handle: u64, driver: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let stamp = self.table.stamp();
        driver()?;
        self.drop_part(handle, stamp, REFERENCE);
        Ok(())
    }

    /// Lets `driver` map `handle` at `address`. Handles that we did not see made are not ours to count.
    pub fn map<E>(
        &self,
        address: u64,
        bytes: u64,
        handle: u64,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut found = None;
        // Counted before the driver maps it, or a release in between would give the charge back too early.
        let _ = self.table.change(Kind::Physical, handle, |entry| {
            found = entry;
            entry.map(|entry| Entry { detail: entry.detail.saturating_add(MAPPING), ..entry })
        });
        let mapped = driver();
        let Some(physical) = found else { return mapped };
        if mapped.is_err() {
            self.drop_part(handle, physical.serial, MAPPING);
            return mapped;
        }
        let blank = self.entry(physical.device, Units::ZERO);
        let entry = Entry { detail: bytes, link: handle, ..blank };
        // A mapping that finds no room in the table keeps its handle charged: too much, never too little.
        if let Ok(Some(gone)) = self.table.put(Kind::Mapping, address, entry) {
            self.forget(Kind::Mapping, address, gone);
        }
        mapped
    }

    /// Lets `driver` unmap everything in the range.
    pub fn unmap<E>(
        &self,
        address: u64,
        bytes: u64,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let stamp = self.table.stamp();
        driver()?;
        let end = address.saturating_add(bytes);
        let mut at = address;
        while at < end {
            let length = match self.table.take(Kind::Mapping, at, stamp) {
                Some(entry) => {
                    self.forget(Kind::Mapping, at, entry);
                    entry.detail.max(1)
                }
                None => BLOCK_BYTES,
            };
            at = at.saturating_add(length);
        }
        Ok(())
    }

    /// A mapping is gone; what it mapped was entered before it.
    pub(crate) fn drop_mapping(&self, mapping: Entry) {
        self.drop_part(mapping.link, mapping.serial, MAPPING);
    }

    /// Takes a reference or a mapping from physical memory entered by `stamp`; the last one ends the charge.
    fn drop_part(&self, handle: u64, stamp: u64, part: u64) {
        let mut last = None;
        let _ = self.table.change(Kind::Physical, handle, |entry| {
            let entry = entry?;
            let holds = if part == REFERENCE { entry.detail >= REFERENCE } else { entry.detail as u32 > 0 };
            if entry.serial > stamp || !holds {
                return Some(entry);
            }
            let detail = entry.detail - part;
            last = (detail == 0).then_some(entry);
            (detail > 0).then_some(Entry { detail, ..entry })
        });
        if let Some(entry) = last {
            self.forget(Kind::Physical, handle, entry);
        }
    }
}
