//! Slots of the driver's devices in the slice.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tranche_policy::Ledger;
use tranche_shm::DeviceSlot;

use super::abi::INVALID_DEVICE;
use super::driver;
use crate::attach;
use crate::root::Root;

/// Cached value of a device outside the slice.
const STRANGER: u64 = u64::MAX;

/// Slot of the driver's `device`; an error for one outside the slice. UUIDs never change during a process.
#[inline(always)]
pub(crate) fn slot(ledger: &Ledger<'static>, device: c_int) -> Result<DeviceSlot, c_int> {
    let known = usize::try_from(device).ok().and_then(|number| Root::get()?.device(number));
    match known.map_or(0, |word| word.load(Relaxed)) {
        0 => {}
        STRANGER => return Err(INVALID_DEVICE),
        index => return DeviceSlot::new(index as usize - 1).ok_or(INVALID_DEVICE),
    }
    find_slot(ledger, device, known)
}

#[cold]
fn find_slot(
    ledger: &Ledger<'static>,
    device: c_int,
    known: Option<&'static AtomicU64>,
) -> Result<DeviceSlot, c_int> {
    let uuid = driver::uuid(device)?;
    let control = ledger.tenant().control;
    let found = control.devices().find(|slot| control.limits(*slot).uuid == uuid);
    if let Some(word) = known {
        word.store(found.map_or(STRANGER, |slot| slot.index() as u64 + 1), Relaxed);
    }
    found.ok_or(INVALID_DEVICE)
}

/// The driver's number of one of the slice's devices, if the driver shows it.
pub(crate) fn number(wanted: DeviceSlot) -> Option<c_int> {
    let ledger = attach::ledger().ok()?;
    driver::devices().ok()?.find(|device| slot(&ledger, *device) == Ok(wanted))
}
