//! Governed functions of `libcuda.so.1`: each receives the real function, then the program's arguments.
//!
//! Contract of every hook, to which its SAFETY comments refer: a program calls it as it would call the driver's
//! function of that name. So pointer arguments are valid as the driver documents them, and may be passed to `real`,
//! the driver's function, as they are. Handles are checked by the driver.

pub(crate) mod abi;
pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod doors;
pub(crate) mod driver;
#[cfg(test)]
mod enumerators;
pub(crate) mod graph;
pub(crate) mod growth;
pub(crate) mod invalid;
pub(crate) mod launch;
pub(crate) mod limit;
pub(crate) mod mark;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod multicast;
pub(crate) mod physical;
pub(crate) mod placement;
pub(crate) mod pool;
pub(crate) mod shared;
pub(crate) mod transfer;
mod visible;
pub(crate) mod wait;

use core::ffi::c_int;

use tranche_policy::{Call, Denied, Ledger, Owner};
use tranche_shm::DeviceSlot;
use tranche_shm::usage::Counter;

use self::abi::OUT_OF_MEMORY;
use crate::attach::{self, Ours};
use crate::connection::Line;
use crate::thread;

/// The ledger of this process; out of memory for a process outside a slice.
#[inline(always)]
pub(crate) fn ledger() -> Result<Ours, c_int> {
    attach::ledger().map_err(|attach::Outside| OUT_OF_MEMORY)
}

/// Owner and device of the calling thread's current context, which does not end before this is dropped.
pub(crate) struct Place {
    pub(crate) ledger: Ours,
    pub(crate) device: DeviceSlot,
    pub(crate) context: u64,
    pub(crate) owner: Owner,
    _call: Call<'static>,
}

/// Place of the current context in the slice, its reserve charged.
#[inline(always)]
pub(crate) fn current() -> Result<Place, c_int> {
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
        let device = DeviceSlot::new(0).filter(|_| ledger.tenant().control.device_count() == 1)?;
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
fn known(ledger: Ours) -> Option<Place> {
    let device = DeviceSlot::new(0).filter(|_| ledger.tenant().control.device_count() == 1)?;
    let context = driver::context().ok().filter(|context| *context != 0)?;
    let call = ledger.begin_call(thread::number(), context, &Line).ok()?;
    Some(Place { ledger, device, context, owner: ledger.known_owner(context)?, _call: call })
}

/// Place of a context that may have no entry, on any device; or of none.
#[inline(never)]
fn any(ledger: Ours) -> Result<Place, c_int> {
    loop {
        let (number, context) = driver::current()?;
        let device = device::slot(&ledger, number)?;
        let known = |call| Place { ledger, device, context, owner: Owner::NOBODY, _call: call };
        let call = ledger.begin_call(thread::number(), context, &Line).map_err(|_| refused(&ledger))?;
        if let Some(owner) = ledger.known_owner(context) {
            return Ok(Place { owner, ..known(call) });
        }
        drop(call);
        // It may get an entry as a primary one, or have ended before that was announced.
        let call = ledger.begin_device_call(thread::number(), device, &Line).map_err(|_| refused(&ledger))?;
        if driver::current()? == (number, context) {
            let owner = ledger.owner(context, device, &Line).map_err(|_| refused(&ledger))?;
            return Ok(Place { owner, ..known(call) });
        }
    }
}

/// Begins a call of this thread that concerns a device's primary context.
pub(crate) fn begin_device_call(
    ledger: &Ledger<'static>,
    device: DeviceSlot,
) -> Result<Call<'static>, c_int> {
    ledger.begin_device_call(thread::number(), device, &Line).map_err(|_| refused(ledger))
}

/// Tries twice: before a refusal, pools and graphs free unused memory.
#[inline(always)]
pub(crate) fn with_reclaim<T>(
    ledger: &Ledger<'static>,
    attempt: impl Fn() -> Result<T, Denied<c_int>>,
) -> Result<T, c_int> {
    let mut reclaimed = false;
    loop {
        match attempt() {
            Ok(made) => return Ok(made),
            Err(Denied::Driver(error)) => return Err(error),
            Err(Denied::OutOfMemory) if !reclaimed && reclaim(ledger) => reclaimed = true,
            Err(Denied::OutOfMemory) => return Err(refused(ledger)),
        }
    }
}

/// Makes pools and graphs free unused memory; true if there are any.
#[cold]
fn reclaim(ledger: &Ledger<'static>) -> bool {
    pool::reclaim(ledger) | graph::reclaim(ledger) | mark::reclaim(ledger)
}

/// Adjusts charges to memory that the driver takes and frees by itself.
pub(crate) fn settle(ledger: &Ledger<'static>) {
    pool::settle(ledger);
    graph::settle(ledger);
    mark::settle(ledger);
}

/// Counts a refusal, and returns the driver's error for it.
#[cold]
pub(crate) fn refused(ledger: &Ledger<'static>) -> c_int {
    ledger.tenant().count(Counter::Refusals);
    OUT_OF_MEMORY
}
