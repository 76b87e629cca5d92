//! Location of work and memory, by the object that decides about it: a stream, a pool, a handle.
//!
//! The calling thread's current context counts only where there is no such object, or where that is a default stream.

use core::ffi::{c_int, c_void};

use tranche_policy::{Call, Ledger, Location};
use tranche_shm::DeviceSlot;

use super::abi::{NOT_SUPPORTED, Properties, checked};
use super::ledger::{begin_device_call, refused};
use super::{driver, slots, stream};
use crate::connection::DaemonLine;
use crate::thread;

/// The one device of a slice that has no other.
#[inline(always)]
pub(crate) fn only(ledger: &Ledger<'static>) -> Option<DeviceSlot> {
    DeviceSlot::new(0).filter(|_| ledger.tenant().control.device_count() == 1)
}

/// Slot and number of a stream's device. In a slice of one device the driver is not queried.
pub(crate) fn of_stream(ledger: &Ledger<'static>, stream: u64) -> Result<(DeviceSlot, c_int), c_int> {
    if let Some(slot) = only(ledger)
        && let Some(number) = slots::number(slot)
    {
        return Ok((slot, number));
    }
    let number = stream::device_of(stream)?;
    Ok((slots::slot(ledger, number)?, number))
}

/// Begins a call in a stream's context, which does not end before the result is dropped.
///
/// Its reserve is charged if the context had no entry. `None` for a stream without a context: the driver refuses
/// that.
pub(crate) fn enter(ledger: &Ledger<'static>, stream: u64) -> Result<Option<Call<'static>>, c_int> {
    loop {
        let context = stream::context_of(stream).or_else(|| driver::context().ok()).unwrap_or(0);
        if context == 0 {
            return Ok(None);
        }
        let begun = ledger.begin_call(thread::number(), context, &DaemonLine);
        let call = begun.map_err(|_| refused(ledger))?;
        if ledger.known_owner(context).is_some() {
            return Ok(Some(call));
        }
        drop(call);
        if let Entered::Settled(call) = unseen(ledger, stream, context)? {
            return Ok(call);
        }
    }
}

/// Result of an attempt to begin a call in a context without an entry.
enum Entered {
    /// It has begun, or the context has ended.
    Settled(Option<Call<'static>>),
    /// The stream has another context by now.
    Again,
}

#[cold]
fn unseen(ledger: &Ledger<'static>, stream: u64, context: u64) -> Result<Entered, c_int> {
    let (slot, _) = of_stream(ledger, stream)?;
    let call = begin_device_call(ledger, slot)?;
    // It may have ended before the call was announced.
    let now = match stream::context_of(stream) {
        Some(now) => now,
        // A context that has ended stays current, and has no device.
        None => match driver::current() {
            Ok((_, now)) => now,
            Err(_) => return Ok(Entered::Settled(None)),
        },
    };
    if now != context {
        return Ok(Entered::Again);
    }
    ledger.owner(context, slot, &DaemonLine).map_err(|_| refused(ledger))?;
    Ok(Entered::Settled(Some(call)))
}

/// The slice's device of memory that can lie in one place only.
///
/// # Errors
/// Memory that may lie on several devices, or on one outside the slice.
pub(crate) fn single(ledger: &Ledger<'static>, location: Location) -> Result<Option<DeviceSlot>, c_int> {
    match (location, only(ledger)) {
        (Location::Host, _) => Ok(None),
        (_, Some(slot)) => Ok(Some(slot)),
        (Location::Device(number), None) => slots::slot(ledger, number).map(Some),
        (Location::AnyDevice, None) => Err(NOT_SUPPORTED),
    }
}

/// Possible location of the memory behind a handle, if the driver reports it.
pub(crate) fn of_handle(handle: u64) -> Option<Location> {
    /// `CUmemAllocationProp`, with room for what newer drivers append.
    #[repr(C)]
    struct AllocationProp {
        head: Properties,
        rest: [u64; 30],
    }
    let mut answer = AllocationProp { head: Properties::default(), rest: [0; 30] };
    let at = (&raw mut answer).cast::<c_void>();
    // SAFETY: the driver writes a structure that is no larger than the local, and checks the handle.
    let asked = unsafe { driver::cuMemGetAllocationPropertiesFromHandle(at, handle) };
    checked(asked).ok().map(|()| answer.head.location())
}
