//! Contexts: the driver takes memory for them by itself, so a calibrated reserve is charged before the first.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use crate::charge::{Daemon, Refused};
use crate::ledger::{Ledger, Owner};
use crate::table::{Cursor, Entry, Full, Kind};

/// How a context came to be, which decides what ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// By the device's primary context, or by a way that we did not see.
    Primary = 1,
    /// By the program.
    Created,
}

impl Ledger<'_> {
    /// Charges the reserve for contexts on `device` once per process, however many there will be.
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
        let units = self.tenant.control.limits(device).context;
        self.tenant.charge(device, units, daemon)?.keep(units);
        self.tenant.usage.context(self.tenant.slot, device).store(u64::from(units.get()), Release);
        charge.store(u64::from(units.get()) + 1, Release);
        Ok(())
    }

    /// Who owns what is allocated in `context`; one that we did not see made counts as primary.
    #[inline(always)]
    pub fn owner(&self, context: u64, device: DeviceSlot) -> Owner {
        match self.few.serial(Kind::Context, context) {
            Some(serial) => Owner(serial),
            None => self.opened(context, device, Made::Primary),
        }
    }

    /// A context is there. Its address may have been another's before: that one is gone.
    #[cold]
    pub fn opened(&self, context: u64, device: DeviceSlot, made: Made) -> Owner {
        let entry = Entry { detail: made as u64, ..self.entry(device, Units::ZERO) };
        let known = |before: &Entry| made == Made::Primary && before.detail == Made::Primary as u64;
        let keep = |before: Option<Entry>| Some(before.filter(known).unwrap_or(entry));
        match self.few.change(Kind::Context, context, keep) {
            Ok(Some(before)) if known(&before) => Owner(before.serial),
            Ok(before) => {
                before.into_iter().for_each(|gone| self.forget_owner(Owner(gone.serial)));
                Owner(entry.serial)
            }
            Err(Full) => Owner::NOBODY,
        }
    }

    /// Lets `driver` destroy a context, then gives back what went with it.
    pub fn close<E>(&self, context: u64, driver: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let stamp = self.table.stamp();
        driver()?;
        if let Some(entry) = self.few.take(Kind::Context, context, stamp) {
            self.forget_owner(Owner(entry.serial));
            self.end_reserve(entry.device);
        }
        Ok(())
    }

    /// The primary context of `device` is no more.
    pub fn primary_closed(&self, device: DeviceSlot) {
        let primary = |kind: Kind, entry: &Entry| {
            kind == Kind::Context && entry.device == device && entry.detail == Made::Primary as u64
        };
        let mut cursor = Cursor::default();
        while let Some((_, _, entry)) = self.few.take_next(&mut cursor, primary) {
            self.forget_owner(Owner(entry.serial));
        }
        self.end_reserve(device);
    }

    /// Gives the reserve back if no context is left on the device.
    pub fn end_reserve(&self, device: DeviceSlot) {
        let _turn = self.device_lock(device).acquire();
        let on_device = |kind: Kind, entry: &Entry| kind == Kind::Context && entry.device == device;
        if self.few.next(&mut Cursor::default(), on_device).is_some() {
            return;
        }
        if let Some(units) = self.context_charge(device).swap(0, AcqRel).checked_sub(1) {
            self.tenant.usage.context(self.tenant.slot, device).store(0, Release);
            self.tenant.release(device, Units::new(units as u32));
        }
    }
}
