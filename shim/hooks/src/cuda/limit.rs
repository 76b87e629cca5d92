//! `cuCtxSetLimit`: stacks, heaps and buffers that the driver backs with device memory.

use core::ffi::c_int;

use tranche_policy::{Claim, limit_cost};

use super::abi::{checked, code};
use super::current::current;
use super::driver;
use super::ledger::refused;
use super::reclaim::with_reclaim;
use crate::connection::DaemonLine;
use crate::driver_call::number;

/// Cost of raising a limit, by `CUlimit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitEffect {
    /// That number of bytes for each thread that can be resident.
    Threads,
    /// That number times this many bytes.
    Each(u64),
    /// No device memory at all.
    Nothing,
    /// Unknown, and possibly memory.
    Unknown,
}

impl LimitEffect {
    /// Cost of raising the limit of this number.
    ///
    /// Stack, `printf` buffer and heap cost their size. Levels of synchronisation and pending launches on the device, whose
    /// cost no driver documents, count more than any known one takes. Limits of the L2 cache cost no memory.
    pub(crate) const fn of(limit: c_int) -> Self {
        match limit {
            0 => Self::Threads,
            1 | 2 => Self::Each(1),
            3 => Self::Each(150 << 20),
            4 => Self::Each(16 << 10),
            5 | 6 => Self::Nothing,
            _ => Self::Unknown,
        }
    }
}

/// `CUDA_ERROR_UNSUPPORTED_LIMIT`
const UNSUPPORTED: c_int = 215;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`
const MULTIPROCESSORS: c_int = 16;
/// `CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR`
const THREADS: c_int = 39;

pub(crate) fn set(real: impl Fn() -> c_int, limit: c_int, value: usize) -> c_int {
    let driver = || checked(real());
    let result = match LimitEffect::of(limit) {
        LimitEffect::Nothing => driver(),
        LimitEffect::Threads => threads().and_then(|threads| charged(limit, value as u64, threads, driver)),
        LimitEffect::Each(bytes) => charged(limit, value as u64, bytes, driver),
        LimitEffect::Unknown => match now(limit) {
            Ok(now) if value as u64 > now => Err(UNSUPPORTED),
            _ => driver(),
        },
    };
    code(result)
}

fn charged(limit: c_int, value: u64, each: u64, driver: impl Fn() -> Result<(), c_int>) -> Result<(), c_int> {
    let place = current()?;
    let home = (place.device, place.owner);
    let default = place.ledger.limit_default(place.context, limit as u32, home, now(limit)?);
    let default = default.map_err(|_| refused(&place.ledger))?;
    let Some(extent) = limit_cost(value, default, each) else { return Err(refused(&place.ledger)) };
    let claim = Claim { device: place.device, extent, owner: place.owner };
    with_reclaim(&place.ledger, || {
        place.ledger.set_limit(place.context, (limit as u32, default), claim, &DaemonLine, &driver)
    })
}

fn now(limit: c_int) -> Result<u64, c_int> {
    // SAFETY: the driver writes one value into a local.
    number(|value| unsafe { driver::cuCtxGetLimit(value, limit) })().map(|value| value as u64)
}

/// Number of threads that can be resident on the current device at a time.
fn threads() -> Result<u64, c_int> {
    let (device, _) = driver::current()?;
    let attribute = |which| {
        // SAFETY: the driver writes one value into a local.
        number(|value| unsafe { driver::cuDeviceGetAttribute(value, which, device) })()
            .map(|value| value.max(1) as u64)
    };
    Ok(attribute(MULTIPROCESSORS)? * attribute(THREADS)?)
}
