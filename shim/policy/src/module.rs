//! Modules and libraries: device code and its global variables.
//!
//! The calibrated reserve of a context covers one small module. The first of a process on a device is therefore
//! charged only for what it has beyond one block of code; each further one in full.

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use crate::charge::Daemon;
use crate::extent::BLOCK;
use crate::image::ImageSize;
use crate::ledger::{Denied, Ledger, Owner};
use crate::table::{Entry, Kind};

/// An entry of [`Kind::Module`] with this detail uses the allowance.
const ALLOWED: u64 = 1;

impl Ledger<'_> {
    /// Charges a module and lets `driver` load it; `undo` unloads it again.
    pub fn load_module<E>(
        &self,
        size: ImageSize,
        (device, owner): (DeviceSlot, Owner),
        daemon: &impl Daemon,
        driver: impl FnOnce() -> Result<u64, E>,
        undo: impl FnOnce(u64),
    ) -> Result<u64, Denied<E>> {
        let all = size.units().ok_or(Denied::OutOfMemory)?;
        let allowance = Allowance::take(self, device);
        let units = if allowance.is_some() { all.saturating_sub(BLOCK) } else { all };
        let reserved = self.tenant.charge(device, units, daemon)?;
        let module = driver().map_err(Denied::Driver)?;
        let detail = if allowance.is_some() { ALLOWED } else { 0 };
        let entry = Entry { detail, link: owner.0, ..self.entry(device, units) };
        match self.table.add(Kind::Module, module, entry) {
            Ok(before) => {
                reserved.keep(units);
                allowance.into_iter().for_each(Allowance::keep);
                before.into_iter().for_each(|gone| self.forget(Kind::Module, module, gone));
                Ok(module)
            }
            Err(full) => {
                undo(module);
                Err(full.into())
            }
        }
    }

    /// Another module may be loaded without charge.
    pub(crate) fn return_allowance(&self, device: DeviceSlot) {
        self.few.take(Kind::Allowance, device.index() as u64, u64::MAX);
    }
}

/// The one small module that a context's reserve covers, in use: given back when dropped.
struct Allowance<'a> {
    ledger: Ledger<'a>,
    device: DeviceSlot,
}

impl<'a> Allowance<'a> {
    fn take(ledger: &Ledger<'a>, device: DeviceSlot) -> Option<Self> {
        let taken = |before: Option<Entry>| Some(before.unwrap_or(ledger.entry(device, Units::ZERO)));
        let before = ledger.few.change(Kind::Allowance, device.index() as u64, taken);
        (before == Ok(None)).then(|| Self { ledger: *ledger, device })
    }

    fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Allowance<'_> {
    fn drop(&mut self) {
        self.ledger.return_allowance(self.device);
    }
}
