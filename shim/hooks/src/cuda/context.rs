//! Contexts: the reserve is charged before the driver makes one.

use core::ffi::{c_int, c_void};

use tranche_shm::DeviceSlot;

use super::abi::{SUCCESS, checked, code};
use super::ledger::{begin_device_call, ledger};
use super::reclaim::with_reclaim;
use super::{driver, slots};
use crate::attach::{self, Ours};
use crate::connection::DaemonLine;
use crate::driver_call::{DriverCall, number};
use crate::{launch, thread};

pub(crate) unsafe fn create(
    real: unsafe extern "C" fn(*mut u64, u32, c_int) -> c_int,
    context: *mut u64,
    flags: u32,
    device: c_int,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
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
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    code(created(context, device, |context| unsafe { real(context, affinity, count, flags, device) }))
}

pub(crate) unsafe fn create_v4(
    real: unsafe extern "C" fn(*mut u64, *mut c_void, u32, c_int) -> c_int,
    context: *mut u64,
    parameters: *mut c_void,
    flags: u32,
    device: c_int,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    code(created(context, device, |context| unsafe { real(context, parameters, flags, device) }))
}

pub(crate) unsafe fn retain(
    real: unsafe extern "C" fn(*mut u64, c_int) -> c_int,
    context: *mut u64,
    device: c_int,
) -> c_int {
    if context.is_null() {
        // SAFETY: the driver rejects the null pointer; the other arguments are valid by the hook's contract.
        return unsafe { real(context, device) };
    }
    // SAFETY: the arguments pass to `real` unchanged; `context` is not null, and is read after its success.
    code(retained(device, || checked(unsafe { real(context, device) }).map(|()| unsafe { *context })))
}

/// Charges the reserve and lets `driver` retain the primary context.
fn retained(device: c_int, driver: impl FnOnce() -> Result<u64, c_int>) -> Result<(), c_int> {
    let ledger = ledger()?;
    let slot = slots::slot(&ledger, device)?;
    let call = begin_device_call(&ledger, slot)?;
    with_reclaim(&ledger, || Ok(ledger.reserve_context(slot, &DaemonLine)?))?;
    match driver() {
        Ok(context) => {
            ledger.primary_opened(context, slot);
            Ok(())
        }
        Err(error) => {
            drop(call);
            let _ = end_primary(&ledger, device, slot, || Ok(()));
            Err(error)
        }
    }
}

/// Charges a reserve and lets `driver` create a context.
fn created(context: *mut u64, device: c_int, driver: impl Fn(*mut u64) -> c_int) -> Result<(), c_int> {
    if context.is_null() {
        // The driver refuses a null pointer itself.
        return checked(driver(context));
    }
    // SAFETY: destroys the context that the driver has just made, whose handle no other code has received.
    let undo = |made| _ = unsafe { driver::cuCtxDestroy_v2(made) };
    let made = charged(device, DriverCall::of(&number(driver)), undo)?;
    // SAFETY: not null, and writable by the hook's contract.
    unsafe { *context = made };
    Ok(())
}

#[inline(never)]
fn charged(device: c_int, driver: DriverCall<'_, Result<u64, c_int>>, undo: fn(u64)) -> Result<u64, c_int> {
    let ledger = ledger()?;
    let slot = slots::slot(&ledger, device)?;
    with_reclaim(&ledger, || ledger.create_context(slot, &DaemonLine, || driver.make(), undo))
}

/// Creates a green context: its primary context, which it keeps alive, and its queues are charged.
pub(crate) unsafe fn create_green(
    real: unsafe extern "C" fn(*mut u64, u64, c_int, u32) -> c_int,
    green: *mut u64,
    resources: u64,
    device: c_int,
    flags: u32,
) -> c_int {
    if green.is_null() {
        // SAFETY: the driver rejects the null pointer; the other arguments are valid by the hook's contract.
        return unsafe { real(green, resources, device, flags) };
    }
    let made = || {
        let ledger = ledger()?;
        let slot = slots::slot(&ledger, device)?;
        let call = begin_device_call(&ledger, slot)?;
        with_reclaim(&ledger, || Ok(ledger.reserve_context(slot, &DaemonLine)?))?;
        // SAFETY: `real` writes to a local, the other arguments are the program's; what is destroyed was just made,
        // and no other code has its handle.
        let made = unsafe {
            let undo = |made| _ = driver::cuGreenCtxDestroy(made);
            let driver = number(|made| real(made, resources, device, flags));
            charged(device, DriverCall::of(&driver), undo)
        };
        drop(call);
        let _ = end_primary(&ledger, device, slot, || Ok(()));
        made
    };
    code(made().map(|made| {
        // SAFETY: not null, and writable by the hook's contract.
        unsafe { *green = made }
    }))
}

pub(crate) unsafe fn destroy_green(real: unsafe extern "C" fn(u64) -> c_int, green: u64) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    let destroy = || match unsafe { destroy(real, green) } {
        SUCCESS => Ok(()),
        error => Err(error),
    };
    let place = attach::ledger().ok().and_then(|ledger| Some((ledger, ledger.context_device(green)?)));
    match place.and_then(|(ledger, slot)| Some((ledger, slot, slots::number(slot)?))) {
        Some((ledger, slot, device)) => code(end_primary(&ledger, device, slot, destroy)),
        None => code(destroy()),
    }
}

pub(crate) unsafe fn from_green(
    real: unsafe extern "C" fn(*mut u64, u64) -> c_int,
    context: *mut u64,
    green: u64,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, valid by the hook's contract; `context` is read after success,
    // when written.
    unsafe {
        let result = real(context, green);
        if result == SUCCESS
            && !context.is_null()
            && let Ok(ledger) = attach::ledger()
        {
            ledger.context_alias(green, *context);
        }
        result
    }
}

pub(crate) unsafe fn destroy(real: unsafe extern "C" fn(u64) -> c_int, context: u64) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    let driver = || checked(unsafe { real(context) });
    match attach::ledger() {
        Ok(ledger) => {
            let closed = ledger.close(thread::number(), context, &DaemonLine, driver);
            if closed.is_ok() {
                launch::context_ended(context);
            }
            ledger.flush_shares(&DaemonLine);
            code(closed)
        }
        Err(attach::Outside) => code(driver()),
    }
}

/// Releases or resets a primary context, which may or may not end it.
pub(crate) unsafe fn release(real: unsafe extern "C" fn(c_int) -> c_int, device: c_int) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    let driver = || checked(unsafe { real(device) });
    match attach::ledger() {
        Ok(ledger) => code(match slots::slot(&ledger, device) {
            Ok(slot) => end_primary(&ledger, device, slot, driver),
            Err(_) => driver(),
        }),
        Err(attach::Outside) => code(driver()),
    }
}

/// Lets `driver` run what may end a primary context, while no call allocates in it or makes it.
///
/// Its charges are released if it has ended.
fn end_primary(
    ledger: &Ours,
    device: c_int,
    slot: DeviceSlot,
    driver: impl FnOnce() -> Result<(), c_int>,
) -> Result<(), c_int> {
    let is_gone = || {
        let is_gone = !is_active(device);
        if is_gone {
            launch::primary_ended(device);
        }
        is_gone
    };
    let done = ledger.close_primary(thread::number(), slot, &DaemonLine, driver, is_gone);
    ledger.flush_shares(&DaemonLine);
    done
}

/// True if the primary context exists, or if the driver does not report that.
fn is_active(device: c_int) -> bool {
    let (mut flags, mut active) = (0, 1);
    // SAFETY: the driver writes two values into locals.
    let known = checked(unsafe { driver::cuDevicePrimaryCtxGetState(device, &mut flags, &mut active) });
    known.is_err() || active != 0
}
