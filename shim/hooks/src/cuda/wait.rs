//! Synchronisation: the moments at which pools let go of memory. The wait itself is never delayed.

use core::ffi::c_int;

use super::pool;

pub(crate) unsafe fn for_context(real: unsafe extern "C" fn() -> c_int) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { real() };
    pool::after_wait();
    result
}

pub(crate) unsafe fn for_one(real: unsafe extern "C" fn(u64) -> c_int, what: u64) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { real(what) };
    pool::after_wait();
    result
}
