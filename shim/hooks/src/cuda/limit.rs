//! `cuCtxSetLimit`: stacks, heaps and buffers that the driver backs with device memory.

use core::ffi::c_int;

use tranche_policy::{Claim, limit_cost};

use super::{checked, code, current, driver, refused, with_reclaim};
use crate::connection::Line;

/// `CU_LIMIT_STACK_SIZE`: per thread that can be resident.
const STACK: c_int = 0;
/// `CU_LIMIT_MALLOC_HEAP_SIZE`, the last of those that are memory; between them is the buffer of `printf`.
const HEAP: c_int = 2;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`
const MULTIPROCESSORS: c_int = 16;
/// `CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR`
const THREADS: c_int = 39;

pub(crate) unsafe fn set(
    real: unsafe extern "C" fn(c_int, usize) -> c_int,
    limit: c_int,
    value: usize,
) -> c_int {
    // SAFETY: the program's own call.
    let driver = || checked(unsafe { real(limit, value) });
    if !(STACK..=HEAP).contains(&limit) {
        return code(driver());
    }
    code(charged(limit, value as u64, driver))
}

fn charged(limit: c_int, value: u64, driver: impl Fn() -> Result<(), c_int>) -> Result<(), c_int> {
    let place = current()?;
    let default = place.ledger.limit_default(place.context, limit as u32, now(limit)?);
    let each = if limit == STACK { threads()? } else { 1 };
    let Some(extent) = limit_cost(value, default, each) else { return Err(refused(&place.ledger)) };
    let claim = Claim { device: place.device, extent, owner: place.owner };
    with_reclaim(&place.ledger, || {
        place.ledger.set_limit(place.context, (limit as u32, default), claim, &Line, &driver)
    })
}

fn now(limit: c_int) -> Result<u64, c_int> {
    let mut value = 0;
    // SAFETY: writes one value into a local.
    checked(unsafe { driver::cuCtxGetLimit(&mut value, limit) }).map(|()| value as u64)
}

/// Threads that can be resident on the current device at a time.
fn threads() -> Result<u64, c_int> {
    let (device, _) = driver::current()?;
    let attribute = |which| {
        let mut value = 0;
        // SAFETY: writes one value into a local.
        checked(unsafe { driver::cuDeviceGetAttribute(&mut value, which, device) })
            .map(|()| value.max(1) as u64)
    };
    Ok(attribute(MULTIPROCESSORS)? * attribute(THREADS)?)
}
