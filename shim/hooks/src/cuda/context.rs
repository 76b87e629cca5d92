//! Contexts: the reserve is charged before the driver makes one.

use core::ffi::{c_int, c_void};

use tranche_policy::Made;

use super::{INVALID_VALUE, checked, code, device, driver, ledger, refused};
use crate::attach;
use crate::connection::Line;

pub(crate) unsafe fn create(
    real: unsafe extern "C" fn(*mut u64, u32, c_int) -> c_int,
    context: *mut u64,
    flags: u32,
    device: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    code(open(Made::Created, context, device, |context| unsafe { real(context, flags, device) }))
}

pub(crate) unsafe fn create_v3(
    real: unsafe extern "C" fn(*mut u64, *mut c_void, c_int, u32, c_int) -> c_int,
    context: *mut u64,
    affinity: *mut c_void,
    count: c_int,
    flags: u32,
    device: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    code(open(Made::Created, context, device, |context| unsafe {
        real(context, affinity, count, flags, device)
    }))
}

pub(crate) unsafe fn create_v4(
    real: unsafe extern "C" fn(*mut u64, *mut c_void, u32, c_int) -> c_int,
    context: *mut u64,
    parameters: *mut c_void,
    flags: u32,
    device: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    code(open(Made::Created, context, device, |context| unsafe { real(context, parameters, flags, device) }))
}

pub(crate) unsafe fn retain(
    real: unsafe extern "C" fn(*mut u64, c_int) -> c_int,
    context: *mut u64,
    device: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    code(open(Made::Primary, context, device, |context| unsafe { real(context, device) }))
}

fn open(
    made: Made,
    context: *mut u64,
    device: c_int,
    driver: impl FnOnce(*mut u64) -> c_int,
) -> Result<(), c_int> {
    if context.is_null() {
        return Err(INVALID_VALUE);
    }
    let ledger = ledger()?;
    let slot = device::slot(&ledger, device)?;
    ledger.reserve_context(slot, &Line).map_err(|_| refused(&ledger))?;
    if let Err(error) = checked(driver(context)) {
        ledger.end_reserve(slot);
        return Err(error);
    }
    // SAFETY: not null, and the driver has just written it.
    ledger.opened(unsafe { *context }, slot, made);
    // Another thread may have closed the last context before this one was entered, and given the reserve back.
    let _ = ledger.reserve_context(slot, &Line);
    Ok(())
}

pub(crate) unsafe fn destroy(real: unsafe extern "C" fn(u64) -> c_int, context: u64) -> c_int {
    // SAFETY: the program's own call.
    let driver = || checked(unsafe { real(context) });
    match attach::ledger() {
        Ok(ledger) => code(ledger.close(context, driver)),
        Err(attach::Outside) => code(driver()),
    }
}

/// Releasing or resetting a primary context; both may or may not end it.
pub(crate) unsafe fn release(real: unsafe extern "C" fn(c_int) -> c_int, device: c_int) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { real(device) };
    if result == super::SUCCESS
        && let Ok(ledger) = attach::ledger()
        && let Ok(slot) = device::slot(&ledger, device)
        && !is_active(device)
    {
        ledger.primary_closed(slot);
    }
    result
}

/// Whether the primary context is there; believed to be if the driver does not say.
fn is_active(device: c_int) -> bool {
    let (mut flags, mut active) = (0, 1);
    // SAFETY: writes two values into locals.
    let known = checked(unsafe { driver::cuDevicePrimaryCtxGetState(device, &mut flags, &mut active) });
    known.is_err() || active != 0
}
