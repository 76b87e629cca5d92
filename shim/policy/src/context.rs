//! Contexts: the driver takes memory for each by itself, so a calibrated reserve is charged before it is made.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use tranche_shm::DeviceSlot;
use tranche_shm::crash::point;
use tranche_shm::credit::Units;

use crate::charge::{Daemon, Refused};
use crate::ledger::{Denied, Ledger, Owner};
use crate::table::{Cursor, Entry, Full, Kind};

/// How a context came to be, which decides what ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// By the device's primary context, or by a way that we did not see. One reserve is charged for all of them.
    Primary = 1,
    /// By the program; each has a reserve of its own.
    Created,
}

impl Ledger<'_> {
    /// Charges the reserve for the primary context of `device`, once until it ends.
    #[inline(always)]
    pub fn reserve_context(&self, device: DeviceSlot, daemon: &impl Daemon) -> Result<(), Refused> {
        let charge = self.context_charge(device);
        if charge.load(Acquire) != 0 {
            return Ok(());
        }
        self.reserve_first_context(device, daemon)
    }

    #[cold]
    fn reserve_first_context(&self, device: DeviceSlot, daemon: &impl Daemon) -> Result<(), Refused> {
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

    /// Who owns what is allocated in `context`, if we know it.
    #[inline(always)]
    pub fn known_owner(&self, context: u64) -> Option<Owner> {
        self.few.serial(Kind::Context, context).map(Owner)
    }

    /// Who owns what is allocated in `context`. One that we did not see made counts as primary: its reserve is
    /// charged now.
    #[inline(always)]
    pub fn owner(&self, context: u64, device: DeviceSlot, daemon: &impl Daemon) -> Result<Owner, Refused> {
        match self.known_owner(context) {
            Some(owner) => Ok(owner),
            None => self.new_owner(context, device, daemon),
        }
    }

    #[cold]
    fn new_owner(&self, context: u64, device: DeviceSlot, daemon: &impl Daemon) -> Result<Owner, Refused> {
        self.reserve_context(device, daemon)?;
        Ok(self.primary_opened(context, device))
    }

    /// The device's primary context is there. Its address may have been another's before: that one is gone.
    pub fn primary_opened(&self, context: u64, device: DeviceSlot) -> Owner {
        let entry = Entry { detail: Made::Primary as u64, ..self.entry(device, Units::ZERO) };
        let known = |before: &Entry| before.detail == Made::Primary as u64;
        let keep = |before: Option<Entry>| Some(before.filter(known).unwrap_or(entry));
        match self.few.change(Kind::Context, context, keep) {
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
        daemon: &impl Daemon,
        driver: impl FnOnce() -> Result<u64, E>,
        undo: impl FnOnce(u64),
    ) -> Result<u64, Denied<E>> {
        let units = self.context_units(device);
        let reserved = self.tenant.charge(device, units, daemon)?;
        let present = self.enter_present(device, daemon)?;
        let context = driver().map_err(Denied::Driver)?;
        let entry = Entry {
            detail: Made::Created as u64,
            link: present.place(),
            serial: present.serial(),
            ..self.entry(device, units)
        };
        match self.few.put(Kind::Context, context, entry) {
            Ok(before) => {
                reserved.keep(units);
                present.keep();
                self.show_more(device, units);
                before.into_iter().for_each(|gone| self.context_gone(gone));
                Ok(context)
            }
            Err(full) => {
                undo(context);
                Err(full.into())
            }
        }
    }

    /// `alias` is another name of the context that `context` names, and ends with it.
    pub fn context_alias(&self, context: u64, alias: u64) {
        let Some(entry) = self.few.find(Kind::Context, context) else { return };
        let _ = self.few.change(Kind::Context, alias, |known| {
            let alias = Entry { units: Units::ZERO, link: 0, ..entry };
            Some(known.filter(|known| known.serial == entry.serial).unwrap_or(alias))
        });
    }

    /// Lets `driver` destroy a context while no call is under way in it, then gives back what went with it.
    pub fn close<E>(
        &self,
        thread: u64,
        context: u64,
        daemon: &impl Daemon,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let stamp = self.table.stamp();
        let end = self.begin_end(thread, context, daemon);
        driver()?;
        self.work_gone(context);
        if let Some(entry) = self.few.take(Kind::Context, context, stamp) {
            self.context_gone(entry);
            if entry.detail == Made::Primary as u64 && end.is_alone {
                self.end_reserve(entry.device);
            }
        }
        Ok(())
    }

    /// Lets `driver` do what may end the primary context of `device` while no call is under way in that, and gives
    /// back what went with it if `is_gone` afterwards.
    pub fn close_primary<E>(
        &self,
        thread: u64,
        device: DeviceSlot,
        daemon: &impl Daemon,
        driver: impl FnOnce() -> Result<(), E>,
        is_gone: impl FnOnce() -> bool,
    ) -> Result<(), E> {
        let end = self.begin_device_end(thread, device, daemon);
        let done = driver();
        if is_gone() {
            let primary =
                |kind: Kind, entry: &Entry| kind == Kind::Context && self.is_primary_of(device, entry);
            let mut cursor = Cursor::default();
            while let Some((_, context, entry)) = self.few.take_next(&mut cursor, primary) {
                self.work_gone(context);
                self.forget_owner(Owner(entry.serial));
            }
            // A call that was not waited for may be about to make a context: that is charged already.
            if end.is_alone {
                self.end_reserve(device);
            }
        }
        done
    }

    /// Whether a context may be a device's primary one: the program has created no such context.
    pub fn may_be_primary(&self, context: u64) -> bool {
        self.few.find(Kind::Context, context).is_none_or(|entry| entry.detail == Made::Primary as u64)
    }

    /// The device of a context that we know.
    pub fn context_device(&self, context: u64) -> Option<DeviceSlot> {
        self.few.find(Kind::Context, context).map(|entry| entry.device)
    }

    /// Gives the reserve of the primary context back if there is none on the device.
    fn end_reserve(&self, device: DeviceSlot) {
        let _turn = self.device_lock(device).acquire();
        let primary = |kind: Kind, entry: &Entry| kind == Kind::Context && self.is_primary_of(device, entry);
        if self.few.next(&mut Cursor::default(), primary).is_some() {
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

    /// Whether an entry of [`Kind::Context`] is the primary one of `device`.
    pub(crate) fn is_primary_of(&self, device: DeviceSlot, entry: &Entry) -> bool {
        entry.device == device && entry.detail == Made::Primary as u64
    }

    fn context_gone(&self, gone: Entry) {
        self.forget_owner(Owner(gone.serial));
        if gone.link != 0 {
            self.leave_present(gone.link, gone.serial);
        }
        let same = |kind: Kind, entry: &Entry| kind == Kind::Context && entry.serial == gone.serial;
        let mut cursor = Cursor::default();
        let mut units = gone.units;
        while let Some((_, context, other)) = self.few.take_next(&mut cursor, same) {
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

    /// All that was under way in a context is over.
    fn work_gone(&self, context: u64) {
        self.graphs_gone(context);
        self.marks_gone(context);
    }

    fn context_units(&self, device: DeviceSlot) -> Units {
        self.tenant.control.limits(device).context
    }

    /// What of the charge is for contexts is shown to whoever looks at the slice.
    fn show_more(&self, device: DeviceSlot, units: Units) {
        let shown = self.tenant.usage.context(self.tenant.slot, device);
        let _ = shown.fetch_update(Relaxed, Relaxed, |all| Some(all.saturating_add(units.get().into())));
    }

    fn show_less(&self, device: DeviceSlot, units: Units) {
        let shown = self.tenant.usage.context(self.tenant.slot, device);
        let _ = shown.fetch_update(Relaxed, Relaxed, |all| Some(all.saturating_sub(units.get().into())));
    }
}
