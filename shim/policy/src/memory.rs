//! Plain allocations and arrays: their sizes, and the blocks that small ones share.

use tranche_shm::DeviceSlot;
use tranche_shm::crash::point;
use tranche_shm::credit::Units;

use crate::charge::{DaemonLink, Reservation};
use crate::extent::{BLOCK, BLOCK_BYTES, Extent, touched};
use crate::ledger::{Claim, ClaimDenied, Ledger, Owner};
use crate::link::SHARED;
use crate::table::{EntryKind, Full, TableEntry};

/// A charge for memory that did not come to be, to be released once the driver has freed it.
enum Paid<'a> {
    Reserved(Reservation<'a>),
    Entered(TableEntry),
}

impl<'a> Ledger<'a> {
    /// Charges, lets `driver` allocate, and enters the result.
    ///
    /// The driver returns the address and, where it is known only then, the size; `undo` frees the memory again when
    /// the charge for that size is refused.
    #[inline(always)]
    pub fn allocate<E>(
        &self,
        kind: EntryKind,
        claim: Claim,
        daemon: &impl DaemonLink,
        driver: impl FnOnce() -> Result<(u64, Extent), E>,
        undo: impl FnOnce(u64),
    ) -> Result<u64, ClaimDenied<E>> {
        let reserved = self.tenant.charge_quickly(claim.device, claim.extent.worst(), daemon)?;
        let (key, extent) = driver().map_err(ClaimDenied::Driver)?;
        point("allocate: driver");
        match self.enter(kind, key, Claim { extent, ..claim }, reserved, daemon) {
            Ok(()) => Ok(key),
            Err(paid) => {
                undo(key);
                self.refund(kind, key, paid);
                Err(ClaimDenied::OutOfMemory)
            }
        }
    }

    #[cold]
    fn refund(&self, kind: EntryKind, key: u64, paid: Paid<'a>) {
        match paid {
            Paid::Reserved(reserved) => drop(reserved),
            Paid::Entered(entry) => self.forget(kind, key, entry),
        }
    }

    /// Lets `driver` free, then releases the charge.
    ///
    /// A pointer without an entry passes through and releases nothing.
    #[inline(always)]
    pub fn free<E>(
        &self,
        kind: EntryKind,
        key: u64,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let moment = self.table.moment(kind, key);
        driver()?;
        point("free: driver");
        if let Some(entry) = self.table.take_quickly(kind, key, moment) {
            point("free: taken");
            self.forget_quickly(kind, key, entry);
        }
        Ok(())
    }

    /// Releases every charge of a context that has ended.
    pub fn forget_owner(&self, owner: Owner) {
        const WITH_CONTEXT: &[EntryKind] =
            &[EntryKind::Memory, EntryKind::Leaving, EntryKind::Array, EntryKind::Module, EntryKind::Limit];
        let of_owner = |entry: &TableEntry| entry.link & !SHARED == owner.0 && owner != Owner::NOBODY;
        for (kind, key, entry) in self.table.drain(WITH_CONTEXT, of_owner) {
            self.forget(kind, key, entry);
        }
    }

    #[inline(always)]
    fn enter(
        &self,
        kind: EntryKind,
        key: u64,
        claim: Claim,
        mut reserved: Reservation<'a>,
        daemon: &impl DaemonLink,
    ) -> Result<(), Paid<'a>> {
        let entry = |units, detail| TableEntry {
            device: claim.device,
            serial: 0,
            units,
            detail,
            link: claim.owner.0,
        };
        match claim.extent {
            Extent::Whole { units } => {
                if reserved.grow(units, daemon).is_err() {
                    return Err(Paid::Reserved(reserved));
                }
                reserved.keep(units);
                self.add(kind, key, entry(units, 0))
            }
            Extent::Packed { bytes } => {
                let (packed, all) = self.enter_packed(claim.device, key, bytes, reserved, daemon)?;
                let entry = entry(Units::ZERO, packed);
                match all {
                    Ok(()) => self.add(kind, key, entry),
                    Err(Full) => Err(Paid::Entered(entry)),
                }
            }
        }
    }

    /// Enters an allocation that has been charged.
    #[inline(always)]
    fn add(&self, kind: EntryKind, key: u64, entry: TableEntry) -> Result<(), Paid<'a>> {
        let before = self.table.add(kind, key, entry);
        point("allocate: entered");
        match before {
            Ok(None) => {}
            // A call would have each allocation write its entry to memory first.
            Ok(Some(gone)) => self.forget_quickly(kind, key, gone),
            Err(Full) => return Err(Paid::Entered(entry)),
        }
        Ok(())
    }

    /// Charges the blocks in which a small allocation is the first.
    ///
    /// Returns how many of its bytes lie in blocks that count it, and whether all do.
    #[inline(always)]
    fn enter_packed(
        &self,
        device: DeviceSlot,
        key: u64,
        bytes: u64,
        mut reserved: Reservation<'a>,
        daemon: &impl DaemonLink,
    ) -> Result<(u64, Result<(), Full>), Paid<'a>> {
        // A later allocation in the same block does not pay for it, so it is charged before it is entered.
        let worst = touched(key, bytes).fold(Units::ZERO, |sum, _| sum.saturating_add(BLOCK));
        if reserved.grow(worst, daemon).is_err() {
            return Err(Paid::Reserved(reserved));
        }
        let (fresh, packed, all) = self.enter_blocks(device, key, bytes);
        point("allocate: blocks");
        reserved.keep(fresh);
        Ok((packed, all))
    }

    /// Counts a small allocation in the blocks it touches; returns the cost of newly touched blocks.
    ///
    /// If the table is full, also the number of bytes in blocks that were counted.
    fn enter_blocks(&self, device: DeviceSlot, pointer: u64, bytes: u64) -> (Units, u64, Result<(), Full>) {
        let mut fresh = Units::ZERO;
        for block in touched(pointer, bytes) {
            let more = |entry: Option<TableEntry>| {
                // The serial number of a block is never read.
                let counted =
                    entry.unwrap_or(TableEntry { device, serial: 0, units: BLOCK, detail: 0, link: 0 });
                Some(TableEntry { detail: counted.detail + 1, ..counted })
            };
            match self.table.change(EntryKind::Block, block, more) {
                Ok(None) => fresh = fresh.saturating_add(BLOCK),
                Ok(Some(_)) => {}
                Err(Full) => return (fresh, (block * BLOCK_BYTES).saturating_sub(pointer), Err(Full)),
            }
        }
        (fresh, bytes, Ok(()))
    }

    /// Removes a small allocation from its blocks and releases the charge of blocks that are empty then.
    pub(crate) fn leave_blocks(&self, device: DeviceSlot, pointer: u64, bytes: u64) {
        for block in touched(pointer, bytes) {
            if let Some(entry) = self.leave_block(block) {
                point("free: block left");
                self.tenant.release(device, entry.units);
            }
        }
    }

    fn leave_block(&self, block: u64) -> Option<TableEntry> {
        let mut last = None;
        let _ = self.table.change(EntryKind::Block, block, |entry| {
            last = entry.filter(|entry| entry.detail <= 1);
            entry
                .filter(|entry| entry.detail > 1)
                .map(|entry| TableEntry { detail: entry.detail - 1, ..entry })
        });
        last
    }
}
