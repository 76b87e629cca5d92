//! Modules: device code and its global variables, in one context.
//!
//! A driver that loads functions lazily takes their memory when the first handle of one is requested
//! (`cuModuleGetFunction`). Until then a module is charged one block of code; before such a call it is charged all of
//! it, because no driver reports the memory of a single function.
//!
//! The calibrated reserve of a context covers one small module. The first of a process on a device is therefore
//! charged only for its size beyond one block of code; each further one in full.

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use crate::charge::{Charged, DaemonLink};
use crate::extent::BLOCK;
use crate::image::ImageSize;
use crate::ledger::{ClaimDenied, Ledger, Owner};
use crate::table::{EntryKind, TableEntry};

/// Set in the detail of an entry of [`EntryKind::Module`] that uses the allowance.
const ALLOWED: u64 = 1;

/// Charge that is deferred until a function of the entry is needed: the upper half of its detail.
pub(crate) const fn deferred(entry: &TableEntry) -> Units {
    Units::new((entry.detail >> 32) as u32)
}

/// Detail of an entry with this deferred charge.
pub(crate) const fn deferring(units: Units) -> u64 {
    (units.get() as u64) << 32
}

/// True if an entry of [`EntryKind::Module`] uses the allowance.
pub(crate) const fn is_allowed(entry: &TableEntry) -> bool {
    entry.detail & ALLOWED != 0
}

impl Ledger<'_> {
    /// Charges a module and lets `driver` load it; `undo` unloads it again.
    pub fn load_module<E>(
        &self,
        size: ImageSize,
        (device, owner): (DeviceSlot, Owner),
        daemon: &impl DaemonLink,
        driver: impl FnOnce() -> Result<u64, E>,
        undo: impl FnOnce(u64),
    ) -> Result<u64, ClaimDenied<E>> {
        let all = size.units().ok_or(ClaimDenied::OutOfMemory)?;
        let later = size.later().ok_or(ClaimDenied::OutOfMemory)?;
        let allowance = Allowance::take(self, device);
        let units = if allowance.is_some() { all.saturating_sub(BLOCK) } else { all };
        let reserved = self.tenant.charge(device, units, daemon)?;
        let module = driver().map_err(ClaimDenied::Driver)?;
        let detail = deferring(later) | if allowance.is_some() { ALLOWED } else { 0 };
        let entry = TableEntry { detail, link: owner.0, ..self.entry(device, units) };
        let before = self.table.add(EntryKind::Module, module, entry).inspect_err(|_| undo(module))?;
        reserved.keep(units);
        allowance.into_iter().for_each(Allowance::keep);
        before.into_iter().for_each(|gone| self.forget(EntryKind::Module, module, gone));
        Ok(module)
    }

    /// Charges the deferred part of a module, before a function of it is loaded.
    pub fn need_module(&self, module: u64, daemon: &impl DaemonLink) -> Charged<()> {
        let due = || self.table.find(EntryKind::Module, module).filter(|entry| deferred(entry) > Units::ZERO);
        if due().is_none() {
            return Ok(());
        }
        // Another thread that needs it has to wait until it is charged.
        let _turn = self.loading().acquire();
        let Some(seen) = due() else { return Ok(()) };
        let units = deferred(&seen);
        let reserved = self.tenant.charge(seen.device, units, daemon)?;
        let mut is_there = false;
        self.table.alter(EntryKind::Module, module, |known| {
            is_there = known.serial == seen.serial;
            let (units, detail) = (known.units.saturating_add(units), known.detail & ALLOWED);
            if is_there { TableEntry { units, detail, ..known } } else { known }
        });
        if is_there {
            reserved.keep(units);
        }
        Ok(())
    }

    /// Makes the allowance available to another module.
    pub(crate) fn return_allowance(&self, device: DeviceSlot) {
        self.few.take(EntryKind::Allowance, device.index() as u64, u64::MAX);
    }
}

/// Use of the allowance, the small module that a context's reserve covers: returned when dropped.
pub(crate) struct Allowance<'a> {
    ledger: Ledger<'a>,
    device: DeviceSlot,
}

impl<'a> Allowance<'a> {
    pub(crate) fn take(ledger: &Ledger<'a>, device: DeviceSlot) -> Option<Self> {
        let taken = |before: Option<TableEntry>| Some(before.unwrap_or(ledger.entry(device, Units::ZERO)));
        let before = ledger.few.change(EntryKind::Allowance, device.index() as u64, taken);
        (before == Ok(None)).then(|| Self { ledger: *ledger, device })
    }

    pub(crate) fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Allowance<'_> {
    fn drop(&mut self) {
        self.ledger.return_allowance(self.device);
    }
}
