//! Memory of pools: where it lies, and the charges for what they keep of it.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tranche_policy::{Ledger, Location, PoolPlace};
use tranche_shm::DeviceSlot;

use super::current::current;
use super::growth::Pools;
use super::{driver, placement, slots};
use crate::connection::DaemonLine;
use crate::driver_call::number;

/// `CU_MEMPOOL_ATTR_ALLOCATION_TYPE`, `CU_MEMPOOL_ATTR_LOCATION_ID` and `CU_MEMPOOL_ATTR_LOCATION_TYPE`
const MADE_AS: [c_int; 3] = [9, 12, 11];
/// True once the program allocated from a pool: most do not, and checks are skipped.
static USED: AtomicBool = AtomicBool::new(false);

/// True once a pointer of a pool was exported.
static LENT: AtomicBool = AtomicBool::new(false);

/// Records that pools are in use, before the first allocation.
pub(super) fn used() {
    USED.store(true, Relaxed);
}

/// Records that a pointer of a pool is exported.
pub(super) fn lent() {
    LENT.store(true, Relaxed);
}

/// Lowers charges of pools to what they keep.
pub(super) fn settle(ledger: &Ledger<'static>) {
    if USED.load(Relaxed) {
        return_lent(ledger);
        ledger.settle_pools(&Pools, |_| {});
    }
}

/// Moves loans that other processes can no longer open back into their pools' charges.
fn return_lent(ledger: &Ledger<'static>) {
    if LENT.load(Relaxed) {
        ledger.return_lent(&DaemonLine, &Pools);
        ledger.flush_shares(&DaemonLine);
    }
}

/// Lets `driver` free a pointer that came from a pool.
pub(super) fn free_one(
    ledger: &Ledger<'static>,
    pointer: u64,
    driver: impl FnOnce() -> Result<(), c_int>,
) -> Result<(), c_int> {
    let freed = ledger.free_to_pool(pointer, &Pools, driver);
    return_lent(ledger);
    freed
}

/// True if the pointer came from a pool.
///
/// A thread that frees it received it from the thread that allocated it, whose store to `USED` happened before.
pub(super) fn is_from_one(ledger: &Ledger<'static>, pointer: u64) -> bool {
    USED.load(Relaxed) && ledger.is_streamed(pointer)
}

/// True once the program allocated from a pool.
pub(super) fn is_used() -> bool {
    USED.load(Relaxed)
}

/// Makes pools free unused memory, as the driver does when it runs out; true if there are pools.
pub(super) fn reclaim(ledger: &Ledger<'static>) -> bool {
    let used = USED.load(Relaxed);
    if used {
        return_lent(ledger);
        ledger.settle_pools(&Pools, |pool| {
            // SAFETY: takes a handle and a number; the driver checks the handle, and frees only unused memory.
            let _ = unsafe { driver::cuMemPoolTrimTo(pool, 0) };
        });
    }
    used
}

/// Location of a pool's memory.
///
/// A pool without an entry is queried; one without such properties is a device's default pool, or may have it
/// anywhere.
pub(super) fn place_of(ledger: &Ledger<'static>, pool: u64) -> PoolPlace {
    ledger.pool_place(pool).unwrap_or_else(|| {
        let location = stated(pool).or_else(|| default_of(pool)).unwrap_or(Location::AnyDevice);
        let place = place(ledger, location);
        ledger.pool_seen(pool, place);
        place
    })
}

/// The slice's device of another process's pool; the current one where the driver does not report it.
pub(super) fn device_of(ledger: &Ledger<'static>, pool: u64) -> Result<DeviceSlot, c_int> {
    if let Some(device) = placement::only(ledger) {
        return Ok(device);
    }
    match stated(pool) {
        Some(Location::Device(number)) => slots::slot(ledger, number),
        _ => current().map(|place| place.device),
    }
}

/// Devices on which memory of a location is charged; that of a device outside the slice, anywhere.
pub(super) fn place(ledger: &Ledger<'static>, location: Location) -> PoolPlace {
    match location {
        Location::Host => PoolPlace::Host,
        Location::Device(number) => slots::slot(ledger, number).map_or(PoolPlace::Anywhere, PoolPlace::On),
        Location::AnyDevice => PoolPlace::Anywhere,
    }
}

/// Allocation type and location of a pool, as newer drivers report them.
fn stated(pool: u64) -> Option<Location> {
    let ask = |attribute| {
        // SAFETY: writes one number of at most 64 bits into a local with room for it; the driver checks the pool.
        let asked =
            number(|at: *mut [u32; 4]| unsafe { driver::cuMemPoolGetAttribute(pool, attribute, at.cast()) });
        asked().ok().map(|[value, ..]| value)
    };
    let [Some(allocation), Some(kind), Some(number)] = MADE_AS.map(ask) else { return None };
    Some(Location::of(allocation, kind, number as c_int))
}

/// The device whose default pool it is.
fn default_of(pool: u64) -> Option<Location> {
    let has_it = |device: &c_int| {
        // SAFETY: the driver writes one value into a local.
        number(|default| unsafe { driver::cuDeviceGetDefaultMemPool(default, *device) })() == Ok(pool)
    };
    driver::devices().ok()?.find(has_it).map(Location::Device)
}
