//! Captures: while one may be under way, each launch queries whether its stream records it.

use core::ffi::{c_int, c_void};

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::abi::SUCCESS;
use super::{driver, placement};
use crate::launch::{capture_begins, capture_ends};
use crate::thread;

/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`
const INVALIDATED: c_int = 901;
/// `CUDA_ERROR_STREAM_CAPTURE_UNJOINED`
const UNJOINED: c_int = 904;

/// Captures under way: the stream in which each began, 0 in a free place, and its context.
static CAPTURING: [[AtomicU64; 2]; 32] = [const { [const { AtomicU64::new(0) }; 2] }; 32];

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
    if result == SUCCESS && leave(key(stream)) {
        capture_ends();
    }
    result
}

/// Ends the captures of an ended context's streams.
pub(crate) fn context_gone(context: u64) {
    for [stream, of] in &CAPTURING {
        let began = stream.load(Relaxed);
        if began != 0 && of.load(Relaxed) == context && leave(began) {
            capture_ends();
        }
    }
}

fn begun(stream: u64, real: impl FnOnce() -> c_int) -> c_int {
    capture_begins();
    let result = real();
    if result == SUCCESS {
        enter(stream);
    } else {
        capture_ends();
    }
    result
}

/// Ends the capture of a stream if the result ends it: some failures leave it as it was.
fn ended(stream: u64, result: c_int) -> c_int {
    if matches!(result, SUCCESS | INVALIDATED | UNJOINED) {
        leave(key(stream));
        capture_ends();
    }
    result
}

/// Key of a stream within the process: default streams that can capture belong to their thread.
fn key(stream: u64) -> u64 {
    if placement::is_handle(stream) { stream } else { thread::number() | 1 << 63 }
}

/// Enters a capture. Where there is no place left, it ends by its own call alone.
fn enter(stream: u64) {
    let context = placement::context_of(stream).or_else(|| driver::context().ok()).unwrap_or(0);
    let free =
        |[place, _]: &&[AtomicU64; 2]| place.compare_exchange(0, key(stream), Relaxed, Relaxed).is_ok();
    if let Some([_, of]) = CAPTURING.iter().find(free) {
        of.store(context, Relaxed);
    }
}

/// Removes a capture; true if it was entered.
fn leave(key: u64) -> bool {
    CAPTURING.iter().any(|[stream, _]| stream.compare_exchange(key, 0, Relaxed, Relaxed).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::captures;

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
            assert_eq!(captures(), 2);
            assert_eq!(destroy_stream(begins, 0x3000), SUCCESS);
            assert_eq!(captures(), 2, "another stream");
            assert_eq!(destroy_stream(begins, 0x1000), SUCCESS);
            assert_eq!(captures(), 1);
            assert_eq!(end(ends, 0x2000, core::ptr::null_mut()), UNJOINED);
            assert_eq!(captures(), 0);
            assert_eq!(destroy_stream(begins, 0x2000), SUCCESS);
            assert_eq!(captures(), 0, "it has ended before");
            begin(begins, 0x4000);
        }
        CAPTURING.iter().find(|[stream, _]| stream.load(Relaxed) == 0x4000).expect("it is known")[1]
            .store(77, Relaxed);
        context_gone(78);
        assert_eq!(captures(), 1);
        context_gone(77);
        assert_eq!(captures(), 0);
    }
}
