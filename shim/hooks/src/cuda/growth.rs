//! The step in which the driver lets its pools grow.
//!
//! No function of the driver reports it, and a pool that has grown by too much has done so before that can be read.
//! So it is measured once per process and device, with a pool and a stream of the shim's own and with room charged
//! for it, before the program's first allocation from a pool. A pool that grows by more later raises it.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tranche_policy::{BLOCK_BYTES, Ledger, PoolUse};
use tranche_shm::credit::Units;
use tranche_shm::{DeviceSlot, MAX_DEVICES};

use super::abi::{Properties, checked};
use super::{captures, driver, slots, stream};
use crate::connection::DaemonLine;
use crate::driver_call::number;

/// Step in bytes by device; 0 before the measurement.
static STEPS: [AtomicU64; MAX_DEVICES] = [const { AtomicU64::new(0) }; MAX_DEVICES];

/// Charges to try for the measurement, in bytes: the largest for which there is room.
const ROOM: [u64; 3] = [128 << 20, 64 << 20, 32 << 20];
/// Step in bytes while it could not be measured.
const ASSUMED: u64 = 32 << 20;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`
const RESERVED_NOW: c_int = 5;
/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: u32 = 1;

/// Bytes that a pool keeps, as the driver reports them.
fn kept(pool: u64) -> Option<u64> {
    // SAFETY: the attribute is one 64-bit number, which the driver writes into a local.
    let kept = |bytes: *mut u64| unsafe { driver::cuMemPoolGetAttribute(pool, RESERVED_NOW, bytes.cast()) };
    number(kept)().ok()
}

/// The driver's queries about pools.
pub(crate) struct Pools;

impl PoolUse for Pools {
    fn reserved(&self, pool: u64) -> Option<u64> {
        kept(pool)
    }

    fn step(&self, device: DeviceSlot) -> Units {
        Units::covering(step(device)).unwrap_or(Units::MAX)
    }

    fn shrink(&self, pool: u64) {
        // SAFETY: the driver checks the pool's handle, and frees only unused memory.
        let _ = unsafe { driver::cuMemPoolTrimTo(pool, 0) };
    }

    fn grew(&self, device: DeviceSlot, by: Units) {
        let step = by.bytes().checked_next_power_of_two().unwrap_or(u64::MAX);
        STEPS[device.index()].fetch_max(step, Relaxed);
    }
}

/// The step of pools on a device, in bytes.
pub(crate) fn step(device: DeviceSlot) -> u64 {
    match STEPS[device.index()].load(Relaxed) {
        0 => ASSUMED,
        step => step,
    }
}

/// Measures the step of pools on a device unless it is known.
///
/// In the context of `stream`, or else in the current one.
pub(crate) fn learn(ledger: &Ledger<'static>, device: DeviceSlot, stream: u64) {
    if STEPS[device.index()].load(Relaxed) == 0 {
        measure(ledger, device, stream);
    }
}

#[cold]
fn measure(ledger: &Ledger<'static>, device: DeviceSlot, stream: u64) {
    let Some(number) = slots::number(device) else { return };
    let tenant = ledger.tenant();
    let charged = |bytes| tenant.charge(device, Units::within(bytes), &DaemonLine).ok();
    let context = stream::context_of(stream).or_else(|| driver::context().ok()).unwrap_or(0);
    // Without room it stays unknown; then the program's requests are charged by the assumed step.
    let Some(room) = ROOM.into_iter().find_map(charged) else { return };
    let grown = match context {
        0 => None,
        _ => driver::within(context, || captures::unnoticed(|| grown_by_one_byte(number))).flatten(),
    };
    if let Some(step) = grown {
        STEPS[device.index()].fetch_max(step.next_multiple_of(BLOCK_BYTES), Relaxed);
    }
    drop(room);
}

/// Bytes that a new pool on the current context's device keeps for one byte.
///
/// Pool, stream and pointer are destroyed afterwards.
fn grown_by_one_byte(number: c_int) -> Option<u64> {
    let (mut stream, mut pool, mut pointer) = (0, 0, 0);
    let properties = Whole { head: Properties::on(number), rest: [0; 9] };
    // SAFETY: pool, stream and pointer are of the shim's own making and known to nothing else; each is ended after the
    // last use, and each place that is written to is a local.
    unsafe {
        checked(driver::cuStreamCreate(&mut stream, NON_BLOCKING)).ok()?;
        let made = driver::cuMemPoolCreate(&mut pool, (&raw const properties).cast::<c_void>());
        let kept = checked(made).ok().and_then(|()| {
            let allocated = driver::cuMemAllocFromPoolAsync(&mut pointer, 1, pool, stream);
            let kept = checked(allocated).ok().and_then(|()| {
                let kept = kept(pool);
                let _ = driver::cuMemFreeAsync(pointer, stream);
                kept
            });
            let _ = driver::cuStreamSynchronize(stream);
            let _ = driver::cuMemPoolDestroy(pool);
            kept
        });
        let _ = driver::cuStreamDestroy_v2(stream);
        kept.filter(|kept| *kept > 0)
    }
}

/// `CUmemPoolProps`
#[repr(C)]
struct Whole {
    head: Properties,
    rest: [u64; 9],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_lie_in_memory_as_the_driver_has_them() {
        assert_eq!((size_of::<Properties>(), size_of::<Whole>()), (16, 88));
    }

    #[test]
    fn unknown_step_is_assumed_and_growth_raises_it() {
        let device = DeviceSlot::new(MAX_DEVICES - 1).expect("the last device");
        assert_eq!(step(device), ASSUMED);
        Pools.grew(device, Units::within(48 << 20));
        assert_eq!(step(device), 64 << 20);
        Pools.grew(device, Units::within(4 << 20));
        assert_eq!(step(device), 64 << 20, "it never falls");
    }
}
