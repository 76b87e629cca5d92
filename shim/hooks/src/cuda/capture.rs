//! Captures: while one may be under way, each launch queries whether its stream records it.

use core::ffi::{c_int, c_void};

use super::abi::SUCCESS;
use super::captures;

/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`
const INVALIDATED: c_int = 901;
/// `CUDA_ERROR_STREAM_CAPTURE_UNJOINED`
const UNJOINED: c_int = 904;

pub(crate) unsafe fn begin(real: unsafe extern "C" fn(u64) -> c_int, stream: u64) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    begun(stream, || unsafe { real(stream) })
}

pub(crate) unsafe fn begin_in_mode(
    real: unsafe extern "C" fn(u64, c_int) -> c_int,
    stream: u64,
    mode: c_int,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    begun(stream, || unsafe { real(stream, mode) })
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
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    begun(stream, || unsafe { real(stream, graph, dependencies, edges, count, mode) })
}

pub(crate) unsafe fn end(
    real: unsafe extern "C" fn(u64, *mut u64) -> c_int,
    stream: u64,
    graph: *mut u64,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    ended(stream, unsafe { real(stream, graph) })
}

/// Ends the capture of a stream that is destroyed.
pub(crate) unsafe fn destroy_stream(real: unsafe extern "C" fn(u64) -> c_int, stream: u64) -> c_int {
    // SAFETY: the argument is the one that the program passed for this very function.
    let result = unsafe { real(stream) };
    if result == SUCCESS && captures::leave(stream) {
        captures::ends();
    }
    result
}

fn begun(stream: u64, real: impl FnOnce() -> c_int) -> c_int {
    captures::begins();
    let result = real();
    if result == SUCCESS {
        captures::enter(stream);
    } else {
        captures::ends();
    }
    result
}

/// Ends the capture of a stream if the result ends it: some failures leave it as it was.
fn ended(stream: u64, result: c_int) -> c_int {
    if matches!(result, SUCCESS | INVALIDATED | UNJOINED) {
        captures::leave(stream);
        captures::ends();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::captures::{CAPTURING, context_gone, count};
    use core::sync::atomic::Ordering::Relaxed;

    extern "C" fn begins(_: u64) -> c_int {
        SUCCESS
    }

    extern "C" fn ends(_: u64, _: *mut u64) -> c_int {
        UNJOINED
    }

    #[test]
    fn capture_ends_with_call_stream_or_context() {
        // SAFETY: the functions take any stream and write nothing.
        unsafe {
            begin(begins, 0x1000);
            begin(begins, 0x2000);
            assert_eq!(count(), 2);
            assert_eq!(destroy_stream(begins, 0x3000), SUCCESS);
            assert_eq!(count(), 2, "another stream");
            assert_eq!(destroy_stream(begins, 0x1000), SUCCESS);
            assert_eq!(count(), 1);
            assert_eq!(end(ends, 0x2000, core::ptr::null_mut()), UNJOINED);
            assert_eq!(count(), 0);
            assert_eq!(destroy_stream(begins, 0x2000), SUCCESS);
            assert_eq!(count(), 0, "it has ended before");
            begin(begins, 0x4000);
        }
        CAPTURING.iter().find(|[stream, _]| stream.load(Relaxed) == 0x4000).expect("it is known")[1]
            .store(77, Relaxed);
        context_gone(78);
        assert_eq!(count(), 1);
        context_gone(77);
        assert_eq!(count(), 0);
    }
}
