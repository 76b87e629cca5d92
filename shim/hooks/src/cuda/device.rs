//! Devices: only the slice's, in the order in which the driver shows them, as large as the slice.

use core::ffi::c_int;

use tranche_policy::Ledger;

use super::abi::{INVALID_DEVICE, SUCCESS, SYSTEM_NOT_READY, Width, checked, code};
use super::current::current_device;
use super::ledger::ledger;
use super::{driver, reclaim, slots, visible};
use crate::attach;
use crate::driver_call::number;
use crate::launch::be_present;

pub(crate) fn init(real: impl FnOnce() -> c_int) -> c_int {
    match attach::ledger() {
        Ok(ledger) => visible::within(&ledger, real),
        Err(attach::Outside) => SYSTEM_NOT_READY,
    }
}

/// The slice's devices, in the driver's order. Others are left out, though the variable already hides them.
fn shown(ledger: &Ledger<'static>) -> Result<impl Iterator<Item = c_int>, c_int> {
    let ledger = *ledger;
    Ok(driver::devices()?.filter(move |device| slots::slot(&ledger, *device).is_ok()))
}

pub(crate) unsafe fn count(real: impl FnOnce() -> c_int, count: *mut c_int) -> c_int {
    let result = real();
    if result != SUCCESS || count.is_null() {
        return result;
    }
    let devices = ledger().and_then(|ledger| shown(&ledger).map(Iterator::count));
    // SAFETY: not null, and writable by the hook's contract.
    unsafe { *count = devices.unwrap_or(0) as c_int };
    SUCCESS
}

/// Device by its ordinal among the slice's, for which the driver's own function is not called.
pub(crate) fn get(_real: impl Fn(*mut c_int) -> c_int, ordinal: c_int) -> Result<c_int, c_int> {
    let nth = |devices: &mut dyn Iterator<Item = c_int>| devices.nth(usize::try_from(ordinal).ok()?);
    ledger().and_then(|ledger| nth(&mut shown(&ledger)?).ok_or(INVALID_DEVICE))
}

pub(crate) fn by_bus_id(real: impl Fn(*mut c_int) -> c_int) -> Result<c_int, c_int> {
    let found = number(real)()?;
    let ledger = ledger()?;
    slots::slot(&ledger, found).map(|_| found)
}

pub(crate) fn total_memory<W: Width>(real: impl Fn(*mut W) -> c_int, device: c_int) -> Result<W, c_int> {
    let whole = number(real)()?;
    let ledger = ledger()?;
    let slot = slots::slot(&ledger, device)?;
    Ok(W::narrow(ledger.tenant().view(slot).total.min(whole.wide())))
}

pub(crate) unsafe fn memory_info<W: Width>(
    real: unsafe extern "C" fn(*mut W, *mut W) -> c_int,
    free: *mut W,
    total: *mut W,
) -> c_int {
    be_present();
    let (mut real_free, mut real_total) = (W::default(), W::default());
    // The driver decides which of the two may be null.
    let in_place = |program: *mut W, local: *mut W| if program.is_null() { program } else { local };
    // SAFETY: `real` writes to locals where the program wants results. Only pointers that are not null are written,
    // which are writable by the contract of the driver's function.
    unsafe {
        code(
            checked(real(in_place(free, &raw mut real_free), in_place(total, &raw mut real_total))).and_then(
                |()| {
                    let (ledger, device) = current_device()?;
                    reclaim::settle(&ledger);
                    let view = ledger.tenant().view(device);
                    if !free.is_null() {
                        *free = W::narrow(view.free.min(real_free.wide()));
                    }
                    if !total.is_null() {
                        *total = W::narrow(view.total.min(real_total.wide()));
                    }
                    Ok(())
                },
            ),
        )
    }
}
