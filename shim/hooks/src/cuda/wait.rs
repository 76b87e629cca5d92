//! Synchronisation: the moments at which pools let go of memory and graphs are known to have ended. The wait
//! itself is never delayed.

use core::ffi::c_int;

use super::{SUCCESS, driver, graph, pool};

pub(crate) unsafe fn for_context(real: unsafe extern "C" fn() -> c_int) -> c_int {
    let stamp = graph::before_wait();
    // SAFETY: the program's own call.
    let result = unsafe { real() };
    if result == SUCCESS
        && stamp.is_some()
        && let Ok((_, context)) = driver::current()
    {
        graph::after_context(stamp, context);
    }
    pool::after_wait();
    result
}

pub(crate) unsafe fn for_given_context(real: unsafe extern "C" fn(u64) -> c_int, context: u64) -> c_int {
    let stamp = graph::before_wait();
    // SAFETY: the program's own call.
    let result = unsafe { real(context) };
    if result == SUCCESS {
        graph::after_context(stamp, context);
    }
    pool::after_wait();
    result
}

pub(crate) unsafe fn for_stream(real: unsafe extern "C" fn(u64) -> c_int, stream: u64) -> c_int {
    let stamp = graph::before_wait();
    // SAFETY: the program's own call.
    let result = unsafe { real(stream) };
    if result == SUCCESS {
        graph::after_stream(stamp, stream);
    }
    pool::after_wait();
    result
}

/// The variant in which stream 0 is the calling thread's own.
pub(crate) unsafe fn for_stream_ptsz(real: unsafe extern "C" fn(u64) -> c_int, stream: u64) -> c_int {
    let stamp = graph::before_wait();
    // SAFETY: the program's own call.
    let result = unsafe { real(stream) };
    if result == SUCCESS {
        graph::after_stream(stamp, if stream == 0 { pool::PER_THREAD } else { stream });
    }
    pool::after_wait();
    result
}

pub(crate) unsafe fn for_event(real: unsafe extern "C" fn(u64) -> c_int, event: u64) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { real(event) };
    pool::after_wait();
    result
}
