//! Contexts: a calibrated reserve is charged before the driver makes one, for the memory that it takes.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use tranche_shm::DeviceSlot;
use tranche_shm::crash::point;
use tranche_shm::credit::Units;

use crate::charge::{Charged, DaemonLink};
use crate::ledger::{ClaimDenied, Ledger, Owner};
use crate::order::Announced;
use crate::table::{EntryKind, Full, TableEntry};

/// Origin of a context, which decides what ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// The device's primary context, or one of unknown origin. One reserve is charged for all of them.
    Primary = 1,
    /// Created by the program; each has a reserve of its own.
    Created,
}

impl Ledger<'_> {
    /// Charges the reserve for the primary context of `device`, once until it ends.
    #[inline(always)]
    pub fn reserve_context(&self, device: DeviceSlot, daemon: &impl DaemonLink) -> Charged<()> {
        let charge = self.context_charge(device);
        if charge.load(Acquire) != 0 {
            return Ok(());
        }
        self.reserve_first_context(device, daemon)
    }

    #[cold]
    fn reserve_first_context(&self, device: DeviceSlot, daemon: &impl DaemonLink) -> Charged<()> {
        let charge = self.context_charge(device);
        let _turn = self.device_lock(device).acquire();
        if charge.load(Acquire) != 0 {
            return Ok(());
        }
        let units = self.context_units(device);
        let reserved = self.tenant.charge(device, units, daemon)?;
        self.enter_primary(device, daemon)?;
        reserved.keep(units);
        point("context: charged");
        self.show_more(device, units);
        point("context: noted");
        charge.store(u64::from(units.get()) + 1, Release);
        Ok(())
    }

    /// Owner of allocations in `context`; `None` if the context has no entry.
    #[inline(always)]
    pub fn known_owner(&self, context: u64) -> Option<Owner> {
        self.few.serial(EntryKind::Context, context).map(Owner)
    }

    /// Owner of allocations in `context`.
    ///
    /// A context without an entry counts as primary, and its reserve is charged now.
    #[inline(always)]
    pub fn owner(&self, context: u64, device: DeviceSlot, daemon: &impl DaemonLink) -> Charged<Owner> {
        match self.known_owner(context) {
            Some(owner) => Ok(owner),
            None => self.new_owner(context, device, daemon),
        }
    }

    #[cold]
    fn new_owner(&self, context: u64, device: DeviceSlot, daemon: &impl DaemonLink) -> Charged<Owner> {
        self.reserve_context(device, daemon)?;
        Ok(self.primary_opened(context, device))
    }

    /// Enters a device's primary context. If another context had its address before, that one has ended.
    pub fn primary_opened(&self, context: u64, device: DeviceSlot) -> Owner {
        let entry = TableEntry { detail: Made::Primary as u64, ..self.entry(device, Units::ZERO) };
        let known = |before: &TableEntry| before.detail == Made::Primary as u64;
        let keep = |before: Option<TableEntry>| Some(before.filter(known).unwrap_or(entry));
        match self.few.change(EntryKind::Context, context, keep) {
            Ok(Some(before)) if known(&before) => Owner(before.serial),
            Ok(before) => {
                before.into_iter().for_each(|gone| self.context_gone(gone));
                Owner(entry.serial)
            }
            Err(Full) => Owner::NOBODY,
        }
    }

    /// Charges a reserve and lets `driver` create a context; `undo` destroys it again.
    pub fn create_context<E>(
        &self,
        device: DeviceSlot,
        daemon: &impl DaemonLink,
        driver: impl FnOnce() -> Result<u64, E>,
        undo: impl FnOnce(u64),
    ) -> Result<u64, ClaimDenied<E>> {
        let units = self.context_units(device);
        let reserved = self.tenant.charge(device, units, daemon)?;
        let present = self.enter_present(device, daemon)?;
        let context = driver().map_err(ClaimDenied::Driver)?;
        let entry = TableEntry {
            detail: Made::Created as u64,
            link: present.place(),
            serial: present.serial(),
            ..self.entry(device, units)
        };
        let before = self.few.put(EntryKind::Context, context, entry).inspect_err(|_| undo(context))?;
        reserved.keep(units);
        present.keep();
        self.show_more(device, units);
        before.into_iter().for_each(|gone| self.context_gone(gone));
        Ok(context)
    }

    /// Enters `alias` as another name of `context`, which ends with it.
    pub fn context_alias(&self, context: u64, alias: u64) {
        let Some(entry) = self.few.find(EntryKind::Context, context) else { return };
        let _ = self.few.change(EntryKind::Context, alias, |known| {
            let alias = TableEntry { units: Units::ZERO, link: 0, ..entry };
            Some(known.filter(|known| known.serial == entry.serial).unwrap_or(alias))
        });
    }

    /// Lets `driver` destroy a context while no call is under way in it, then releases its charges.
    pub fn close<E>(
        &self,
        thread: u64,
        context: u64,
        daemon: &impl DaemonLink,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let stamp = self.table.stamp();
        let end = self.begin_end(thread, Announced::context(context), daemon);
        driver()?;
        self.work_gone(context);
        if let Some(entry) = self.few.take(EntryKind::Context, context, stamp) {
            self.context_gone(entry);
            if entry.detail == Made::Primary as u64 && end.is_alone {
                self.end_reserve(entry.device);
            }
        }
        Ok(())
    }

    /// Lets `driver` run what may end the primary context of `device`, while no call is under way in it.
    ///
    /// Its charges are released if `is_gone` returns true afterwards.
    pub fn close_primary<E>(
        &self,
        thread: u64,
        device: DeviceSlot,
        daemon: &impl DaemonLink,
        driver: impl FnOnce() -> Result<(), E>,
        is_gone: impl FnOnce() -> bool,
    ) -> Result<(), E> {
        let end = self.begin_end(thread, Announced::device(device), daemon);
        let done = driver();
        if is_gone() {
            let primary = |entry: &TableEntry| self.is_primary_of(device, entry);
            for (_, context, entry) in self.few.drain(&[EntryKind::Context], primary) {
                self.work_gone(context);
                self.forget_owner(Owner(entry.serial));
            }
            // A call that outlasted the wait may be about to make a context, whose reserve is charged already.
            if end.is_alone {
                self.end_reserve(device);
            }
        }
        done
    }

    /// True if a context may be a device's primary one: the program has created no such context.
    pub fn may_be_primary(&self, context: u64) -> bool {
        self.few.find(EntryKind::Context, context).is_none_or(|entry| entry.detail == Made::Primary as u64)
    }

    /// Device of a context; `None` if the context has no entry.
    pub fn context_device(&self, context: u64) -> Option<DeviceSlot> {
        self.few.find(EntryKind::Context, context).map(|entry| entry.device)
    }

    /// Releases the reserve of the primary context if there is none on the device.
    fn end_reserve(&self, device: DeviceSlot) {
        let _turn = self.device_lock(device).acquire();
        let primary = |entry: &TableEntry| self.is_primary_of(device, entry);
        if self.few.entries(&[EntryKind::Context], primary).next().is_some() {
            return;
        }
        if let Some(units) = self.context_charge(device).swap(0, AcqRel).checked_sub(1) {
            self.leave_primary(device);
            let units = Units::new(units as u32);
            self.show_less(device, units);
            point("context: ended");
            self.tenant.release(device, units);
        }
    }

    /// True if an entry of [`EntryKind::Context`] is the primary one of `device`.
    pub(crate) fn is_primary_of(&self, device: DeviceSlot, entry: &TableEntry) -> bool {
        entry.device == device && entry.detail == Made::Primary as u64
    }

    fn context_gone(&self, gone: TableEntry) {
        self.forget_owner(Owner(gone.serial));
        if gone.link != 0 {
            self.leave_present(gone.link, gone.serial);
        }
        let mut units = gone.units;
        let same = |entry: &TableEntry| entry.serial == gone.serial;
        for (_, context, other) in self.few.drain(&[EntryKind::Context], same) {
            self.work_gone(context);
            if other.link != 0 {
                self.leave_present(other.link, other.serial);
            }
            units = units.saturating_add(other.units);
        }
        if units > Units::ZERO {
            self.show_less(gone.device, units);
            self.tenant.release(gone.device, units);
        }
    }

    /// Ends all work that was under way in an ended context.
    fn work_gone(&self, context: u64) {
        self.graphs_gone(context);
        self.marks_gone(context);
    }

    fn context_units(&self, device: DeviceSlot) -> Units {
        self.tenant.control.limits(device).context
    }

    /// Adds to the part of the charge that the usage region shows as contexts.
    fn show_more(&self, device: DeviceSlot, units: Units) {
        let shown = self.tenant.usage.context(self.tenant.slot, device);
        let _ = shown.fetch_update(Relaxed, Relaxed, |all| Some(all.saturating_add(units.get().into())));
    }

    fn show_less(&self, device: DeviceSlot, units: Units) {
        let shown = self.tenant.usage.context(self.tenant.slot, device);
        let _ = shown.fetch_update(Relaxed, Relaxed, |all| Some(all.saturating_sub(units.get().into())));
    }
}
