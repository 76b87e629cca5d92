//! The calling thread's current context: its place in the slice.

use core::ffi::c_int;

use tranche_policy::{Call, Owner};
use tranche_shm::DeviceSlot;

use super::ledger::{begin_device_call, ledger, refused};
use super::{driver, placement, slots};
use crate::attach::Ours;
use crate::connection::DaemonLine;
use crate::thread;

/// Owner and device of the calling thread's current context, which does not end before this is dropped.
pub(crate) struct CurrentContext {
    pub(crate) ledger: Ours,
    pub(crate) device: DeviceSlot,
    pub(crate) context: u64,
    pub(crate) owner: Owner,
    _call: Call<'static>,
}

/// Place of the current context in the slice, its reserve charged.
#[inline(never)]
pub(crate) fn current() -> Result<CurrentContext, c_int> {
    current_quickly()
}

/// As [`current`], compiled into its caller.
#[inline(always)]
pub(crate) fn current_quickly() -> Result<CurrentContext, c_int> {
    let ledger = ledger()?;
    match known(ledger) {
        Some(place) => Ok(place),
        None => any(ledger),
    }
}

/// Device of the current context, for a query about that device: it keeps no context from ending.
pub(crate) fn current_device() -> Result<(Ours, DeviceSlot), c_int> {
    let ledger = ledger()?;
    let known = || {
        let device = placement::only(&ledger)?;
        let context = driver::context().ok().filter(|context| *context != 0)?;
        ledger.known_owner(context).map(|_| device)
    };
    match known() {
        Some(device) => Ok((ledger, device)),
        // The reserve of a context without an entry is charged first.
        None => any(ledger).map(|place| (ledger, place.device)),
    }
}

/// Place of a context that has an entry.
///
/// In a slice of one device it can be on no other, so the driver is not queried.
#[inline(always)]
fn known(ledger: Ours) -> Option<CurrentContext> {
    let device = placement::only(&ledger)?;
    let context = driver::context().ok().filter(|context| *context != 0)?;
    let call = ledger.begin_call(thread::number(), context, &DaemonLine).ok()?;
    Some(CurrentContext { ledger, device, context, owner: ledger.known_owner(context)?, _call: call })
}

/// Place of a context that may have no entry, on any device; or of none.
#[inline(never)]
fn any(ledger: Ours) -> Result<CurrentContext, c_int> {
    loop {
        let (number, context) = driver::current()?;
        let device = slots::slot(&ledger, number)?;
        let known = |call| CurrentContext { ledger, device, context, owner: Owner::NOBODY, _call: call };
        let call = ledger.begin_call(thread::number(), context, &DaemonLine).map_err(|_| refused(&ledger))?;
        if let Some(owner) = ledger.known_owner(context) {
            return Ok(CurrentContext { owner, ..known(call) });
        }
        drop(call);
        // It may get an entry as a primary one, or have ended before that was announced.
        let call = begin_device_call(&ledger, device)?;
        if driver::current()? == (number, context) {
            let owner = ledger.owner(context, device, &DaemonLine).map_err(|_| refused(&ledger))?;
            return Ok(CurrentContext { owner, ..known(call) });
        }
    }
}
