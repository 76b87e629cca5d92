//! Which GPUs are near: only the slice's.

use core::ffi::c_int;

use super::list::{deliver, listed};
use super::{DRIVER_NOT_LOADED, INSUFFICIENT_SIZE, INVALID_ARGUMENT, SUCCESS, slot};
use crate::attach;

pub(crate) unsafe fn nearest(
    real: unsafe extern "C" fn(u64, u32, *mut u32, *mut u64) -> c_int,
    device: u64,
    level: u32,
    count: *mut u32,
    devices: *mut u64,
) -> c_int {
    // SAFETY: the program's own call, with room of our own; the program promises what `keep` asks.
    unsafe { keep(count, devices, |count, devices| real(device, level, count, devices)) }
}

pub(crate) unsafe fn of_processor(
    real: unsafe extern "C" fn(u32, *mut u32, *mut u64) -> c_int,
    processor: u32,
    count: *mut u32,
    devices: *mut u64,
) -> c_int {
    // SAFETY: the program's own call, with room of our own; the program promises what `keep` asks.
    unsafe { keep(count, devices, |count, devices| real(processor, count, devices)) }
}

/// Of the devices that NVML lists, the slice's. Who brings no array is told how many there are, and that is no
/// error.
///
/// # Safety
/// `count` must be null or valid, `devices` null or as long as it says, and `ask` as [`listed`] wants it.
unsafe fn keep(count: *mut u32, devices: *mut u64, ask: impl FnMut(&mut u32, *mut u64) -> c_int) -> c_int {
    if count.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller's promise.
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
