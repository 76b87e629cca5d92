//! `cuGetProcAddress` in its versions.

use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;

use super::abi::{NOT_FOUND, SUCCESS, checked};
use crate::lookup;

/// `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`
const SYMBOL_NOT_FOUND: c_int = 1;

type LookUp = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> c_int;
type LookUpV2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

pub(crate) unsafe fn look_up(
    real: LookUp,
    name: *const c_char,
    slot: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, valid by the hook's contract; they are read after its success.
    unsafe {
        let result = real(name, slot, version, flags);
        if result != SUCCESS {
            return result;
        }
        let ask = |version| {
            let mut found = null_mut();
            checked(real(name, &mut found, version, flags)).ok().map(|()| found).filter(|it| !it.is_null())
        };
        if lookup::replace_answer(name, slot, (version, flags), ask) { SUCCESS } else { NOT_FOUND }
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
    // SAFETY: the arguments pass to `real` unchanged, valid by the hook's contract; they are read after its success.
    unsafe {
        let result = real(name, slot, version, flags, status);
        if result != SUCCESS {
            return result;
        }
        let ask = |version| {
            let (mut found, mut status) = (null_mut(), 0);
            let asked = checked(real(name, &mut found, version, flags, &mut status));
            asked.ok().map(|()| found).filter(|it| !it.is_null())
        };
        if !lookup::replace_answer(name, slot, (version, flags), ask) && !status.is_null() {
            *status = SYMBOL_NOT_FOUND;
        }
        SUCCESS
    }
}
