//! Stream-ordered memory and its pools.

use core::ffi::c_int;

use tranche_policy::{Claim, Extent, Owner, PoolPlace};
use tranche_shm::parking::Hindrance;

use super::abi::{MemLocation, Properties, SUCCESS, checked, code};
use super::growth::{self, Pools};
use super::invalid::{self, or_invalid};
use super::ledger::{ended_by_ledger, ledger, noted, refused};
use super::mark::{self, EventMarks};
use super::reclaim::with_reclaim;
use super::{captures, driver, placement, pool_memory, shared, stream};
use crate::attach;
use crate::connection::DaemonLine;
use crate::driver_call::{DriverCall, number};

pub(crate) fn allocate(
    real: impl Fn(*mut u64) -> c_int,
    bytes: usize,
    stream: u64,
    pool: Option<u64>,
) -> Result<u64, c_int> {
    let real = number(real);
    if bytes == 0 || stream::is_capturing(stream) {
        return real();
    }
    allocated(bytes, stream, pool, DriverCall::of(&real))
}

#[inline(never)]
fn allocated(
    bytes: usize,
    stream: u64,
    pool: Option<u64>,
    real: DriverCall<'_, Result<u64, c_int>>,
) -> Result<u64, c_int> {
    or_invalid(allocated_from(bytes, stream, pool, real), || invalid::streamed(stream, pool))
}

fn allocated_from(
    bytes: usize,
    stream: u64,
    pool: Option<u64>,
    real: DriverCall<'_, Result<u64, c_int>>,
) -> Result<u64, c_int> {
    let allocate = || real.make();
    let ledger = ledger()?;
    // Keeps the stream's context from ending: a pool's excess growth could not be freed in it afterwards.
    let _call = placement::enter(&ledger, stream)?;
    let pool = match pool {
        Some(pool) => pool,
        None => current_pool(placement::of_stream(&ledger, stream)?.1)?,
    };
    let place = pool_memory::place_of(&ledger, pool);
    if place == PoolPlace::Host {
        return allocate();
    }
    let Some(extent) = Extent::blocks(bytes as u64) else { return Err(refused(&ledger)) };
    pool_memory::used();
    // The pool has grown by more than the slice has room for: it shrinks again before the call returns.
    let undo = |made| {
        // SAFETY: frees what the driver has just made, whose address no other code has received; the stream is not
        // being captured, and only unused memory is trimmed.
        unsafe {
            let _ = driver::cuMemFreeAsync(made, stream);
            let _ = captures::unnoticed(|| driver::cuStreamSynchronize(stream));
            let _ = driver::cuMemPoolTrimTo(pool, 0);
        }
    };
    let single = placement::only(&ledger).or(match place {
        PoolPlace::On(device) => Some(device),
        PoolPlace::Host | PoolPlace::Anywhere => None,
    });
    let devices = ledger.tenant().control.devices();
    let learnt = devices.filter(|device| single.is_none_or(|single| single == *device));
    learnt.for_each(|slot| growth::learn(&ledger, slot, stream));
    with_reclaim(&ledger, || match single {
        Some(device) => {
            let claim = Claim { device, extent, owner: Owner::NOBODY };
            ledger.allocate_from_pool(pool, claim, &DaemonLine, &Pools, allocate, undo)
        }
        None => ledger.allocate_from_pool_anywhere(pool, extent, &DaemonLine, &Pools, allocate, undo),
    })
}

/// The pool of plain stream-ordered allocations on a device.
fn current_pool(device: c_int) -> Result<u64, c_int> {
    // SAFETY: the driver writes one value into a local.
    number(|pool| unsafe { driver::cuDeviceGetMemPool(pool, device) })()
}

pub(crate) fn free(real: impl Fn() -> c_int, pointer: u64, stream: u64) -> c_int {
    freed(pointer, stream, DriverCall::of(&real))
}

#[inline(never)]
fn freed(pointer: u64, stream: u64, real: DriverCall<'_>) -> c_int {
    let driver = || checked(real.make());
    match attach::ledger() {
        Ok(_) if stream::is_capturing(stream) => code(driver()),
        Ok(ledger) if pool_memory::is_from_one(&ledger, pointer) => {
            code(pool_memory::free_one(&ledger, pointer, driver))
        }
        Ok(ledger) if shared::is_import(&ledger, pointer) => {
            mark::used();
            let closed = ledger.close_in_order(pointer, &EventMarks, || mark::behind(stream), driver);
            ledger.flush_shares(&DaemonLine);
            code(closed)
        }
        Ok(ledger) => {
            // Memory of no pool ends when the stream reaches the free, and is charged until then.
            mark::used();
            let freed = ledger.free_in_order(pointer, &EventMarks, || mark::behind(stream), driver);
            ledger.flush_shares(&DaemonLine);
            code(freed)
        }
        Err(attach::Outside) => code(driver()),
    }
}

pub(crate) unsafe fn create(
    real: impl FnOnce() -> c_int,
    pool: *const u64,
    properties: *const Properties,
) -> c_int {
    noted(real, |ledger| {
        pool_memory::used();
        // SAFETY: valid by the hook's contract; they are read after the driver's success.
        let (pool, at) = unsafe { (*pool, (*properties).location()) };
        ledger.pool_made(pool, pool_memory::place(ledger, at));
    })
}

/// A location's default or current pool, entered with the location of the request.
pub(crate) unsafe fn look_up(
    real: impl FnOnce() -> c_int,
    pool: *const u64,
    at: *const MemLocation,
    allocation_type: u32,
) -> c_int {
    noted(real, |ledger| {
        // SAFETY: valid by the hook's contract; they are read after the driver's success.
        let (pool, at) = unsafe { (*pool, (*at).of(allocation_type)) };
        ledger.pool_seen(pool, pool_memory::place(ledger, at));
    })
}

pub(crate) fn destroy(real: impl FnOnce() -> c_int, pool: u64) -> c_int {
    ended_by_ledger(|| checked(real()), |ledger, driver| ledger.destroy_pool(pool, driver))
}

pub(crate) fn trim(real: impl FnOnce() -> c_int) -> c_int {
    let result = real();
    if let Ok(ledger) = attach::ledger() {
        pool_memory::settle(&ledger);
    }
    result
}

pub(crate) unsafe fn export_pointer(
    real: impl FnOnce() -> c_int,
    out: *const shared::IpcHandle,
    pointer: u64,
) -> c_int {
    attach::hinder(Hindrance::Pool);
    let result = real();
    // SAFETY: read after the driver's success, which has written it.
    let share = (result == SUCCESS).then(|| shared::key_of(unsafe { &*out }));
    let (Some(share), Ok(ledger)) = (share, attach::ledger()) else { return result };
    pool_memory::lent();
    code(ledger.export_streamed(pointer, share, &DaemonLine).map_err(|_| refused(&ledger)))
}
