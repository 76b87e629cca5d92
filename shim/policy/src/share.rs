//! Memory that several processes hold: charged to the slice once, from export to its last holder's end.
//!
//! The exporter's charge moves to the slice's common account in the daemon. From then on each process reports only
//! that it holds the memory, and that it has dropped it: once, however often it opens it. The detail of an entry of
//! [`EntryKind::Shared`] counts the openings. Memory that the slice did not export is charged to each process that opens
//! it, in full.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use tranche_shm::DeviceSlot;
use tranche_shm::crash::point;
use tranche_shm::credit::Units;
use tranche_shm::message::ShareKey;

use crate::charge::{ChargeRefused, Charged, DaemonLink, PATIENCE_NS, ShareReply, ShareReport};
use crate::extent::{BLOCK, touched};
use crate::ledger::{ClaimDenied, Ledger};
use crate::link::{REFERENCE, SHARED};
use crate::table::{EntryKind, TableEntry};

/// Link of an entry of [`EntryKind::Shared`]: the daemon counts this process among the holders.
const NOTED: u64 = 1;

impl Ledger<'_> {
    /// Moves the charge of exported memory to the slice under `share`; call it after the driver's export.
    ///
    /// `key` is an allocation ([`EntryKind::Memory`]) or physical memory ([`EntryKind::Physical`]). Memory without an entry, or
    /// shared by another key already, is left as it is: a process that opens it by this key is charged in full.
    ///
    /// # Errors
    /// A small allocation shares its block with others, so the block is charged once more, for importers; refused if
    /// the slice has no room for that.
    pub fn export(
        &self,
        kind: EntryKind,
        key: u64,
        share: ShareKey,
        daemon: &impl DaemonLink,
    ) -> Charged<()> {
        let _turn = self.sharing().acquire();
        let unshared = self.table.find(kind, key).filter(|entry| entry.link & SHARED == 0);
        let Some(entry) = unshared.filter(|_| self.table.find(EntryKind::Shared, share.0).is_none()) else {
            return Ok(());
        };
        let packed = if kind == EntryKind::Memory { blocks(key, entry.detail) } else { Units::ZERO };
        let units = entry.units.saturating_add(packed);
        if units == Units::ZERO {
            return Ok(());
        }
        let extra = self.tenant.charge(entry.device, packed, daemon)?;
        if !self.part_with_charge(kind, key, entry, share, units)? {
            return Ok(()); // freed meanwhile
        }
        extra.keep(packed);
        self.say_exported(entry.device, share, units, daemon);
        Ok(())
    }

    /// Reports an export. Without a reply, the memory stays charged here, and in full to each importer.
    pub(crate) fn say_exported(
        &self,
        device: DeviceSlot,
        share: ShareKey,
        units: Units,
        daemon: &impl DaemonLink,
    ) {
        point("export: parted");
        let told = self.say(ShareReport::Export(device, share, units), daemon);
        point("export: told");
        if told == ShareReply::Noted {
            self.table.alter(EntryKind::Shared, share.0, |held| TableEntry {
                units: held.units.saturating_sub(units),
                link: NOTED,
                ..held
            });
        }
    }

    /// Opens exported memory.
    ///
    /// It is at a pointer ([`EntryKind::Opened`]), or physical memory ([`EntryKind::Physical`]).
    /// Physical memory ends with its last release or unmapping. If the slice is charged for the memory already,
    /// nothing more is charged; otherwise this process is charged the units that `driver` returns, and `undo` closes
    /// it again if that is refused. Opening allocates nothing, so the charge may follow.
    ///
    /// # Errors
    /// The driver's, or that the slice is out of memory.
    pub fn import<E>(
        &self,
        kind: EntryKind,
        device: DeviceSlot,
        share: ShareKey,
        daemon: &impl DaemonLink,
        driver: impl FnOnce() -> Result<(u64, Units), E>,
        undo: impl FnOnce(u64),
    ) -> Result<u64, ClaimDenied<E>> {
        let noted = self.hold(device, share, daemon)?;
        point("import: held");
        let opened = driver().map_err(ClaimDenied::Driver).and_then(|(key, units)| {
            point("import: opened");
            let units = if noted { Units::ZERO } else { units };
            self.opened_share(kind, key, device, share, units, daemon).inspect_err(|_| undo(key))?;
            Ok(key)
        });
        if opened.is_err() {
            self.let_go(share);
            self.flush_shares(daemon);
        }
        opened
    }

    /// Lets `driver` close the memory opened at `pointer`, once.
    pub fn drop_import<E>(
        &self,
        pointer: u64,
        daemon: &impl DaemonLink,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let stamp = self.table.stamp();
        driver()?;
        self.close_opened(pointer, stamp);
        self.flush_shares(daemon);
        Ok(())
    }

    /// Reports dropped shares to the daemon; to be called after each free and release that succeeded.
    ///
    /// One load where there is nothing to report.
    #[inline(always)]
    pub fn flush_shares(&self, daemon: &impl DaemonLink) {
        if self.shares_due().load(Acquire) != 0 {
            self.tell_of_shares(daemon);
        }
    }

    #[cold]
    fn tell_of_shares(&self, daemon: &impl DaemonLink) {
        let _turn = self.sharing().acquire();
        self.shares_due().store(0, Relaxed);
        for (_, key, entry) in self.table.entries(&[EntryKind::Shared], |entry| entry.detail == 0) {
            if entry.link == NOTED
                && self.say_once(ShareReport::Drop(ShareKey(key)), daemon) == ShareReply::Away
            {
                self.shares_due().fetch_add(1, Relaxed); // reported at the next call
                return;
            }
            point("share: told");
            let _ = self.table.change(EntryKind::Shared, key, |now| now.filter(|now| now.detail > 0));
        }
    }

    /// Moves the charge of an entry to its share; false if the entry no longer existed.
    ///
    /// This process holds the share from then on.
    fn part_with_charge(
        &self,
        kind: EntryKind,
        key: u64,
        entry: TableEntry,
        share: ShareKey,
        units: Units,
    ) -> Charged<bool> {
        let held = TableEntry { detail: 1, ..self.entry(entry.device, units) };
        let known_by = TableEntry { detail: share.0, ..self.entry(entry.device, Units::ZERO) };
        self.table.put(EntryKind::Shared, share.0, held).map_err(|_| ChargeRefused)?;
        let aliased = self.table.put(EntryKind::Alias, alias(kind, key), known_by);
        let mut moved = false;
        let _ = self.table.change(kind, key, |now| {
            let same = now.filter(|now| now.serial == entry.serial && aliased.is_ok());
            moved = same.is_some();
            same.map(|now| TableEntry { units: Units::ZERO, link: now.link | SHARED, ..now }).or(now)
        });
        if !moved {
            self.table.take(EntryKind::Alias, alias(kind, key), u64::MAX);
            self.table.take(EntryKind::Shared, share.0, u64::MAX);
        }
        aliased.map(|_| moved).map_err(|_| ChargeRefused)
    }

    /// Counts this process as a holder of `share`; true if the slice is charged for it already.
    fn hold(&self, device: DeviceSlot, share: ShareKey, daemon: &impl DaemonLink) -> Charged<bool> {
        let _turn = self.sharing().acquire();
        let noted = match self.table.find(EntryKind::Shared, share.0) {
            Some(entry) => entry.link == NOTED || entry.units > Units::ZERO,
            None => self.say(ShareReport::Import(share), daemon) == ShareReply::Noted,
        };
        let fresh = TableEntry { link: if noted { NOTED } else { 0 }, ..self.entry(device, Units::ZERO) };
        let more = |entry: Option<TableEntry>| {
            let entry = entry.unwrap_or(fresh);
            Some(TableEntry { detail: entry.detail + 1, ..entry })
        };
        self.table.change(EntryKind::Shared, share.0, more).map_err(|_| ChargeRefused)?;
        Ok(noted)
    }

    /// Enters opened memory and charges `units` for it to the share.
    fn opened_share(
        &self,
        kind: EntryKind,
        key: u64,
        device: DeviceSlot,
        share: ShareKey,
        units: Units,
        daemon: &impl DaemonLink,
    ) -> Charged<()> {
        let reserved = self.tenant.charge(device, units, daemon)?;
        let blank = self.entry(device, Units::ZERO);
        if kind == EntryKind::Opened {
            let again = |entry: &TableEntry| entry.link == share.0;
            let add = |entry: Option<TableEntry>| {
                let entry = entry.filter(again).unwrap_or(TableEntry { link: share.0, ..blank });
                Some(TableEntry { detail: entry.detail + 1, ..entry })
            };
            let before = self.table.change(EntryKind::Opened, key, add).map_err(|_| ChargeRefused)?;
            // The driver has closed the memory that was here before, unless it returned the same address again.
            if let Some(gone) = before.filter(|entry| !again(entry)) {
                (0..gone.detail).for_each(|_| self.let_go(ShareKey(gone.link)));
            }
        } else {
            // The memory of this handle before is gone, unless the driver returned the same handle again.
            if let Some(gone) = self.table.take(kind, key, u64::MAX) {
                self.forget(kind, key, gone);
            }
            let known_by = TableEntry { detail: share.0, ..blank };
            self.table.put(EntryKind::Alias, alias(kind, key), known_by).map_err(|_| ChargeRefused)?;
            let entry = TableEntry { detail: REFERENCE, link: SHARED, ..blank };
            self.table.put(kind, key, entry).map_err(|_| ChargeRefused)?;
        }
        self.table.alter(EntryKind::Shared, share.0, |held| TableEntry {
            units: held.units.saturating_add(units),
            ..held
        });
        reserved.keep(units);
        Ok(())
    }

    /// Drops one opening of `share`; the last one releases this process's charge and must be reported.
    pub(crate) fn let_go(&self, share: ShareKey) {
        let _turn = self.sharing().acquire();
        let mut last = None;
        let _ = self.table.change(EntryKind::Shared, share.0, |entry| {
            let entry = entry?;
            if entry.detail != 1 {
                return Some(TableEntry { detail: entry.detail.saturating_sub(1), ..entry });
            }
            last = Some(entry);
            (entry.link == NOTED).then_some(TableEntry { detail: 0, units: Units::ZERO, ..entry })
        });
        let Some(entry) = last else { return };
        point("share: left");
        if entry.units > Units::ZERO {
            self.tenant.release(entry.device, entry.units);
        }
        if entry.link == NOTED {
            self.shares_due().fetch_add(1, Relaxed);
        }
    }

    /// Ends the share of an entry that left the table.
    pub(crate) fn forget_shared(&self, kind: EntryKind, key: u64) {
        if let Some(known_by) = self.table.take(EntryKind::Alias, alias(kind, key), u64::MAX) {
            self.let_go(ShareKey(known_by.detail));
        }
    }

    /// Repeats a report until a reply comes or patience ends.
    fn say(&self, say: ShareReport, daemon: &impl DaemonLink) -> ShareReply {
        let deadline_ns = daemon.now_ns().saturating_add(PATIENCE_NS);
        loop {
            match daemon.share(say, deadline_ns) {
                ShareReply::Away if daemon.now_ns() < deadline_ns => daemon.pause(),
                answer => return answer,
            }
        }
    }

    /// Sends a report once; one without a reply is repeated later.
    fn say_once(&self, say: ShareReport, daemon: &impl DaemonLink) -> ShareReply {
        daemon.share(say, daemon.now_ns().saturating_add(PATIENCE_NS))
    }
}

/// Cost of the blocks in which a small allocation lies, in units.
fn blocks(pointer: u64, bytes: u64) -> Units {
    touched(pointer, bytes).fold(Units::ZERO, |sum, _| sum.saturating_add(BLOCK))
}

/// Key of an alias. Pointers and handles are below 2^57, so that keys of two kinds never collide.
pub(crate) const fn alias(kind: EntryKind, key: u64) -> u64 {
    key | (kind as u64) << 58
}
