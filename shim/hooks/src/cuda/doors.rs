//! `cuGetProcAddress` in its versions.

use core::ffi::{c_char, c_int, c_void};

use super::SUCCESS;
use crate::lookup;

type LookUp = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> c_int;
type LookUpV2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

pub(crate) unsafe fn look_up(
    real: LookUp,
    name: *const c_char,
    slot: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> c_int {
    // SAFETY: the program's own call; the driver was content with its pointers before we use them.
    unsafe {
        let result = real(name, slot, version, flags);
        if result == SUCCESS {
            lookup::replace_answer(name, slot, version, flags);
        }
        result
    }
}

pub(crate) unsafe fn look_up_v2(
    real: LookUpV2,
    name: *const c_char,
    slot: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> c_int {
    // SAFETY: as in `look_up`.
    unsafe {
        let result = real(name, slot, version, flags, status);
        if result == SUCCESS {
            lookup::replace_answer(name, slot, version, flags);
        }
        result
    }
}
