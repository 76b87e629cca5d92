//! Physical memory by handle: charged from its creation until it is neither held nor mapped.

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use crate::charge::DaemonLink;
use crate::extent::{BLOCK_BYTES, Extent};
use crate::ledger::{Claim, ClaimDenied, Ledger};
use crate::link::{IMPORTED, MAPPING, MULTICAST, REFERENCE, SHARED};
use crate::table::{EntryKind, Full, TableEntry};

impl Ledger<'_> {
    /// Charges physical memory and lets `driver` create it; `undo` releases it again.
    pub fn create<E>(
        &self,
        claim: Claim,
        daemon: &impl DaemonLink,
        driver: impl FnOnce() -> Result<u64, E>,
        undo: impl FnOnce(u64),
    ) -> Result<u64, ClaimDenied<E>> {
        let units = claim.extent.worst();
        let reserved = self.tenant.charge(claim.device, units, daemon)?;
        let handle = driver().map_err(ClaimDenied::Driver)?;
        let entry = TableEntry { detail: REFERENCE, ..self.entry(claim.device, units) };
        let before = self.table.put(EntryKind::Physical, handle, entry).inspect_err(|_| undo(handle))?;
        reserved.keep(units);
        before.into_iter().for_each(|gone| self.forget(EntryKind::Physical, handle, gone));
        Ok(handle)
    }

    /// Counts a reference to the memory mapped around `address`, under the driver's `handle`.
    ///
    /// The driver may return another handle than at creation.
    pub fn retained(&self, handle: u64, address: u64) {
        if self.refer(handle) {
            return;
        }
        let Some(mapping) = self.mapping_around(address) else { return };
        if !self.refer(mapping.link) {
            return;
        }
        let blank = self.entry(mapping.device, Units::ZERO);
        let alias = TableEntry { detail: REFERENCE, link: mapping.link, ..blank };
        // An alias that finds no room keeps its memory charged: too much, never too little.
        let _ = self.table.put(EntryKind::Physical, handle, alias);
    }

    fn refer(&self, handle: u64) -> bool {
        let more = |entry: TableEntry| TableEntry { detail: entry.detail.saturating_add(REFERENCE), ..entry };
        self.table.alter(EntryKind::Physical, handle, more).is_some()
    }

    pub(crate) fn mapping_around(&self, address: u64) -> Option<TableEntry> {
        self.table.find(EntryKind::Mapping, address).or_else(|| {
            let mut all = self.table.entries(&[EntryKind::Mapping], |_| true);
            let around = all.find(|(_, start, entry)| (*start..start + entry.detail).contains(&address));
            around.map(|(_, _, entry)| entry)
        })
    }

    /// Enters a handle to memory of another process. It is charged when mapped, as its size shows only then.
    pub fn imported(&self, handle: u64, device: DeviceSlot) -> Result<(), Full> {
        if self.refer(handle) {
            return Ok(());
        }
        let entry = TableEntry { detail: REFERENCE, link: IMPORTED, ..self.entry(device, Units::ZERO) };
        self.table.put(EntryKind::Physical, handle, entry).map(drop)
    }

    /// Lets `driver` release one reference of the program.
    pub fn release<E>(&self, handle: u64, driver: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let stamp = self.table.stamp();
        driver()?;
        self.drop_part(handle, stamp, REFERENCE);
        Ok(())
    }

    /// Lets `driver` map `handle` and return the address; an imported handle is charged first.
    ///
    /// Handles without an entry pass through uncharged.
    pub fn map<E>(
        &self,
        handle: u64,
        bytes: u64,
        daemon: &impl DaemonLink,
        driver: impl FnOnce() -> Result<u64, E>,
    ) -> Result<u64, ClaimDenied<E>> {
        self.charge_import(handle, bytes, daemon)?;
        let found = self.pin(handle);
        let mapped = driver().map_err(ClaimDenied::Driver);
        let Some(physical) = found else { return mapped };
        let address = mapped.inspect_err(|_| self.drop_part(handle, physical.serial, MAPPING))?;
        let blank = self.entry(physical.device, Units::ZERO);
        let entry = TableEntry { detail: bytes, link: handle, ..blank };
        // A mapping that finds no room in the table keeps its handle charged: too much, never too little.
        if let Ok(Some(gone)) = self.table.put(EntryKind::Mapping, address, entry) {
            self.forget(EntryKind::Mapping, address, gone);
        }
        Ok(address)
    }

    /// Serial number for [`Ledger::view_gone`], to be taken before the driver is called.
    pub fn stamp(&self) -> u64 {
        self.table.stamp()
    }

    /// Ends the mapping that was at `address` by `stamp`. Mappings of imported memory end like plain memory.
    pub fn view_gone(&self, address: u64, stamp: u64) {
        if let Some(gone) = self.table.take(EntryKind::Mapping, address, stamp) {
            self.forget(EntryKind::Mapping, address, gone);
        }
    }

    /// Counts a mapping before it exists, because a release in between would end the charge too early.
    pub(crate) fn pin(&self, handle: u64) -> Option<TableEntry> {
        let more = |entry: TableEntry| TableEntry { detail: entry.detail.saturating_add(MAPPING), ..entry };
        self.table.alter(EntryKind::Physical, handle, more)
    }

    fn charge_import<E>(
        &self,
        handle: u64,
        bytes: u64,
        daemon: &impl DaemonLink,
    ) -> Result<(), ClaimDenied<E>> {
        let imported = |entry: &TableEntry| entry.link == IMPORTED;
        let Some(known) = self.table.find(EntryKind::Physical, handle).filter(imported) else {
            return Ok(());
        };
        let wanted = Extent::blocks(bytes).ok_or(ClaimDenied::OutOfMemory)?.worst();
        let missing = wanted.saturating_sub(known.units);
        if missing == Units::ZERO {
            return Ok(());
        }
        let reserved = self.tenant.charge(known.device, missing, daemon)?;
        let raised = |entry: TableEntry| TableEntry { units: entry.units.max(wanted), ..entry };
        if let Some(before) = self.table.alter(EntryKind::Physical, handle, raised) {
            reserved.keep(wanted.saturating_sub(before.units));
        }
        Ok(())
    }

    /// Lets `driver` unmap all mappings in the range.
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
            let length = match self.table.take(EntryKind::Mapping, at, stamp) {
                Some(entry) => {
                    self.forget(EntryKind::Mapping, at, entry);
                    entry.detail.max(1)
                }
                None => BLOCK_BYTES,
            };
            at = at.saturating_add(length);
        }
        Ok(())
    }

    /// Ends a mapping; its memory was entered before it.
    pub(crate) fn drop_mapping(&self, mapping: TableEntry) {
        self.drop_part(mapping.link, mapping.serial, MAPPING);
    }

    /// Takes a reference or a mapping from memory entered by `stamp`; the last one ends the charge.
    pub(crate) fn drop_part(&self, handle: u64, stamp: u64, part: u64) {
        let mut last = None;
        let _ = self.table.change(EntryKind::Physical, handle, |entry| {
            let entry = entry?;
            let holds = if part == REFERENCE { entry.detail >= REFERENCE } else { entry.detail as u32 > 0 };
            if entry.serial > stamp || !holds {
                return Some(entry);
            }
            let detail = entry.detail - part;
            last = (detail == 0).then_some(entry);
            (detail > 0).then_some(TableEntry { detail, ..entry })
        });
        if let Some(entry) = last {
            self.forget(EntryKind::Physical, handle, entry);
            match entry.link {
                0 | IMPORTED => {}
                MULTICAST => self.unbind_all(handle),
                link if link & SHARED != 0 => {}
                other_name => self.drop_part(other_name, entry.serial, REFERENCE),
            }
        }
    }
}
