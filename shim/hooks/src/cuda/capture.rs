//! Captures: while one may be on, each launch asks whether it is recorded instead of done.

use core::ffi::{c_int, c_void};

use super::SUCCESS;
use crate::launch::{capture_begins, capture_ends};

/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`
const INVALIDATED: c_int = 901;
/// `CUDA_ERROR_STREAM_CAPTURE_UNJOINED`
const UNJOINED: c_int = 904;

pub(crate) unsafe fn begin(real: unsafe extern "C" fn(u64) -> c_int, stream: u64) -> c_int {
    // SAFETY: the program's own call.
    begun(|| unsafe { real(stream) })
}

pub(crate) unsafe fn begin_in_mode(
    real: unsafe extern "C" fn(u64, c_int) -> c_int,
    stream: u64,
    mode: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    begun(|| unsafe { real(stream, mode) })
}

pub(crate) unsafe fn begin_to_graph(
    real: unsafe extern "C" fn(u64, u64, *const u64, *const c_void, usize, c_int) -> c_int,
    stream: u64,
    graph: u64,
    dependencies: *const u64,
    edges: *const c_void,
    count: usize,
    mode: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    begun(|| unsafe { real(stream, graph, dependencies, edges, count, mode) })
}

pub(crate) unsafe fn end(
    real: unsafe extern "C" fn(u64, *mut u64) -> c_int,
    stream: u64,
    graph: *mut u64,
) -> c_int {
    // SAFETY: the program's own call.
    ended(unsafe { real(stream, graph) })
}

fn begun(real: impl FnOnce() -> c_int) -> c_int {
    capture_begins();
    let result = real();
    if result != SUCCESS {
        capture_ends();
    }
    result
}

/// Some failures leave the capture as it was, and others end it.
fn ended(result: c_int) -> c_int {
    if matches!(result, SUCCESS | INVALIDATED | UNJOINED) {
        capture_ends();
    }
    result
}
