//! Neighbouring GPUs in the topology: only the slice's.

use core::ffi::c_int;

use super::abi::{DRIVER_NOT_LOADED, INSUFFICIENT_SIZE, INVALID_ARGUMENT, SUCCESS};
use super::handle::slot;
use super::list::{deliver, listed};
use crate::attach;

pub(crate) unsafe fn nearest(
    real: unsafe extern "C" fn(u64, u32, *mut u32, *mut u64) -> c_int,
    device: u64,
    level: u32,
    count: *mut u32,
    devices: *mut u64,
) -> c_int {
    // SAFETY: `keep` passes memory of the shim's to `real`; `count` and `devices` are valid by the hook's contract.
    unsafe { keep(count, devices, |count, devices| real(device, level, count, devices)) }
}

pub(crate) unsafe fn of_processor(
    real: unsafe extern "C" fn(u32, *mut u32, *mut u64) -> c_int,
    processor: u32,
    count: *mut u32,
    devices: *mut u64,
) -> c_int {
    // SAFETY: `keep` passes memory of the shim's to `real`; `count` and `devices` are valid by the hook's contract.
    unsafe { keep(count, devices, |count, devices| real(processor, count, devices)) }
}

/// The slice's devices among those that NVML lists.
///
/// A caller without an array receives their number, which is no error.
///
/// # Safety
/// `count` must be null or valid, `devices` null or of as many rows as `count` holds, and `ask` as [`listed`]
/// requires.
unsafe fn keep(count: *mut u32, devices: *mut u64, ask: impl FnMut(&mut u32, *mut u64) -> c_int) -> c_int {
    if count.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: `ask` and both pointers are valid as `listed` and `deliver` require, by this function's contract.
    unsafe {
        let listed = match listed(ask) {
            Ok(listed) => listed,
            Err(error) => return error,
        };
        let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
        if devices.is_null() {
            *count = 0;
        }
        let own = listed.iter().copied().filter(|device| slot(&ledger, *device).is_some());
        match deliver(own, count, devices) {
            INSUFFICIENT_SIZE if devices.is_null() => SUCCESS,
            result => result,
        }
    }
}
