//! Contexts: the reserve is charged before the driver makes one.

use core::ffi::{c_int, c_void};

use tranche_policy::Hush;

use super::{INVALID_VALUE, SUCCESS, checked, code, device, driver, ledger, refused, with_reclaim};
use crate::attach;
use crate::connection::Line;
use crate::launch;

pub(crate) unsafe fn create(
    real: unsafe extern "C" fn(*mut u64, u32, c_int) -> c_int,
    context: *mut u64,
    flags: u32,
    device: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    code(created(context, device, |context| unsafe { real(context, flags, device) }))
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
    code(created(context, device, |context| unsafe { real(context, affinity, count, flags, device) }))
}

pub(crate) unsafe fn create_v4(
    real: unsafe extern "C" fn(*mut u64, *mut c_void, u32, c_int) -> c_int,
    context: *mut u64,
    parameters: *mut c_void,
    flags: u32,
    device: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    code(created(context, device, |context| unsafe { real(context, parameters, flags, device) }))
}

pub(crate) unsafe fn retain(
    real: unsafe extern "C" fn(*mut u64, c_int) -> c_int,
    context: *mut u64,
    device: c_int,
) -> c_int {
    if context.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the program's own call; `context` is not null and the program promises that it can be written.
    code(retained(device, || checked(unsafe { real(context, device) }).map(|()| unsafe { *context })))
}

/// Charges the reserve and lets `driver` retain the primary context.
fn retained(device: c_int, driver: impl FnOnce() -> Result<u64, c_int>) -> Result<(), c_int> {
    let ledger = ledger()?;
    let slot = device::slot(&ledger, device)?;
    ledger.reserve_context(slot, &Line).map_err(|_| refused(&ledger))?;
    let context = driver().inspect_err(|_| ledger.end_reserve(slot))?;
    ledger.primary_opened(context, slot);
    // Another thread may have closed the last context before this one was entered, and given the reserve back.
    let _ = ledger.reserve_context(slot, &Line);
    Ok(())
}

/// Charges a reserve and lets `driver` create a context.
fn created(context: *mut u64, device: c_int, driver: impl Fn(*mut u64) -> c_int) -> Result<(), c_int> {
    if context.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: destroys what the driver has just made and nobody has seen.
    let undo = |made| _ = unsafe { driver::cuCtxDestroy_v2(made) };
    let made = charged(device, driver, undo)?;
    // SAFETY: not null, and the program promises that it can be written.
    unsafe { *context = made };
    Ok(())
}

fn charged(device: c_int, driver: impl Fn(*mut u64) -> c_int, undo: impl Fn(u64)) -> Result<u64, c_int> {
    let ledger = ledger()?;
    let slot = device::slot(&ledger, device)?;
    with_reclaim(&ledger, || {
        let driver = || {
            let mut made = 0;
            checked(driver(&mut made)).map(|()| made)
        };
        ledger.create_context(slot, &Line, driver, &undo)
    })
}

/// A green context keeps its device's primary context alive and has queues of its own: both are charged.
pub(crate) unsafe fn create_green(
    real: unsafe extern "C" fn(*mut u64, u64, c_int, u32) -> c_int,
    green: *mut u64,
    resources: u64,
    device: c_int,
    flags: u32,
) -> c_int {
    if green.is_null() {
        return INVALID_VALUE;
    }
    let made = || {
        let ledger = ledger()?;
        let slot = device::slot(&ledger, device)?;
        ledger.reserve_context(slot, &Line).map_err(|_| refused(&ledger))?;
        // SAFETY: the program's own call with a local for the answer; then what nobody has seen is destroyed.
        let made = unsafe {
            let undo = |made| _ = driver::cuGreenCtxDestroy(made);
            charged(device, |made| real(made, resources, device, flags), undo)
        };
        end_if_inactive(device);
        made
    };
    code(made().map(|made| {
        // SAFETY: not null, and the program promises that it can be written.
        unsafe { *green = made }
    }))
}

pub(crate) unsafe fn destroy_green(real: unsafe extern "C" fn(u64) -> c_int, green: u64) -> c_int {
    let _hush = hush();
    // SAFETY: the program's own call.
    let result = unsafe { destroy(real, green) };
    if result == SUCCESS {
        driver::devices().into_iter().flatten().for_each(end_if_inactive);
    }
    result
}

pub(crate) unsafe fn from_green(
    real: unsafe extern "C" fn(*mut u64, u64) -> c_int,
    context: *mut u64,
    green: u64,
) -> c_int {
    // SAFETY: the program's own call; the driver was content with `context` before it is read.
    unsafe {
        let result = real(context, green);
        if result == SUCCESS
            && let Ok(ledger) = attach::ledger()
        {
            ledger.context_alias(green, *context);
        }
        result
    }
}

pub(crate) unsafe fn destroy(real: unsafe extern "C" fn(u64) -> c_int, context: u64) -> c_int {
    // SAFETY: the program's own call.
    let driver = || checked(unsafe { real(context) });
    match attach::ledger() {
        Ok(ledger) => {
            let closed = ledger.close(context, driver);
            if closed.is_ok() {
                launch::context_ended(context);
            }
            ledger.flush_shares(&Line);
            code(closed)
        }
        Err(attach::Outside) => code(driver()),
    }
}

/// Releasing or resetting a primary context; both may or may not end it.
pub(crate) unsafe fn release(real: unsafe extern "C" fn(c_int) -> c_int, device: c_int) -> c_int {
    let _hush = hush();
    // SAFETY: the program's own call.
    let result = unsafe { real(device) };
    if result == SUCCESS {
        end_if_inactive(device);
    }
    result
}

/// A primary context may be about to end, and our marks with it.
fn hush() -> Option<Hush<'static>> {
    attach::ledger().ok().map(|ledger| ledger.hush())
}

/// Gives back what went with a device's primary context if that is no more.
fn end_if_inactive(device: c_int) {
    if let Ok(ledger) = attach::ledger()
        && let Ok(slot) = device::slot(&ledger, device)
        && !is_active(device)
    {
        launch::primary_ended(device);
        ledger.primary_closed(slot);
        ledger.flush_shares(&Line);
    }
}

/// Whether the primary context is there; believed to be if the driver does not say.
fn is_active(device: c_int) -> bool {
    let (mut flags, mut active) = (0, 1);
    // SAFETY: writes two values into locals.
    let known = checked(unsafe { driver::cuDevicePrimaryCtxGetState(device, &mut flags, &mut active) });
    known.is_err() || active != 0
}
