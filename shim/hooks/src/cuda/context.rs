//! Contexts: the reserve is charged before the driver makes one.

use core::ffi::c_int;

use tranche_shm::DeviceSlot;

use super::abi::{checked, code};
use super::ledger::{begin_device_call, by_ledger, ended_by_ledger, ledger, noted};
use super::reclaim::with_reclaim;
use super::{driver, slots};
use crate::attach::{self, Ours};
use crate::connection::DaemonLine;
use crate::driver_call::{DriverCall, number};
use crate::{launch, thread};

/// Charges the reserve and lets `real` retain the primary context.
pub(crate) fn retain(real: impl Fn(*mut u64) -> c_int, device: c_int) -> Result<u64, c_int> {
    let ledger = ledger()?;
    let slot = slots::slot(&ledger, device)?;
    let call = begin_device_call(&ledger, slot)?;
    with_reclaim(&ledger, || Ok(ledger.reserve_context(slot, &DaemonLine)?))?;
    let retained = number(real)();
    match retained {
        Ok(context) => {
            ledger.primary_opened(context, slot);
        }
        Err(_) => {
            drop(call);
            let _ = end_primary(&ledger, device, slot, || Ok(()));
        }
    }
    retained
}

/// Charges a reserve and lets `real` create a context.
pub(crate) fn create(real: impl Fn(*mut u64) -> c_int, device: c_int) -> Result<u64, c_int> {
    // SAFETY: destroys the context that the driver has just made, whose handle no other code has received.
    let undo = |made| _ = unsafe { driver::cuCtxDestroy_v2(made) };
    charged(device, DriverCall::of(&number(real)), undo)
}

#[inline(never)]
fn charged(device: c_int, driver: DriverCall<'_, Result<u64, c_int>>, undo: fn(u64)) -> Result<u64, c_int> {
    let ledger = ledger()?;
    let slot = slots::slot(&ledger, device)?;
    with_reclaim(&ledger, || ledger.create_context(slot, &DaemonLine, || driver.make(), undo))
}

/// Creates a green context: its primary context, which it keeps alive, and its queues are charged.
pub(crate) fn create_green(real: impl Fn(*mut u64) -> c_int, device: c_int) -> Result<u64, c_int> {
    let ledger = ledger()?;
    let slot = slots::slot(&ledger, device)?;
    let call = begin_device_call(&ledger, slot)?;
    with_reclaim(&ledger, || Ok(ledger.reserve_context(slot, &DaemonLine)?))?;
    // SAFETY: destroys what the driver has just made, whose handle no other code has received.
    let undo = |made| _ = unsafe { driver::cuGreenCtxDestroy(made) };
    let made = charged(device, DriverCall::of(&number(real)), undo);
    drop(call);
    let _ = end_primary(&ledger, device, slot, || Ok(()));
    made
}

pub(crate) fn destroy_green(real: impl FnOnce() -> c_int, green: u64) -> c_int {
    let destroy = || checked(destroy(real, green));
    let place = attach::ledger().ok().and_then(|ledger| Some((ledger, ledger.context_device(green)?)));
    match place.and_then(|(ledger, slot)| Some((ledger, slot, slots::number(slot)?))) {
        Some((ledger, slot, device)) => code(end_primary(&ledger, device, slot, destroy)),
        None => code(destroy()),
    }
}

pub(crate) unsafe fn from_green(real: impl FnOnce() -> c_int, context: *const u64, green: u64) -> c_int {
    noted(real, |ledger| {
        // SAFETY: null, or written by the driver, which succeeded.
        if let Some(context) = unsafe { context.as_ref() } {
            ledger.context_alias(green, *context);
        }
    })
}

pub(crate) fn destroy(real: impl FnOnce() -> c_int, context: u64) -> c_int {
    ended_by_ledger(
        || checked(real()),
        |ledger, driver| {
            let closed = ledger.close(thread::number(), context, &DaemonLine, driver);
            if closed.is_ok() {
                launch::context_ended(context);
            }
            closed
        },
    )
}

/// Releases or resets a primary context, which may or may not end it.
pub(crate) fn release(real: impl FnOnce() -> c_int, device: c_int) -> c_int {
    by_ledger(
        || checked(real()),
        |ledger, driver| match slots::slot(&ledger, device) {
            Ok(slot) => end_primary(&ledger, device, slot, driver),
            Err(_) => driver(),
        },
    )
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
