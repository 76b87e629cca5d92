//! Captures: while one may be under way, each launch queries whether its stream records it.

use core::ffi::c_int;

use super::abi::SUCCESS;
use super::captures;
use crate::launch;

/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`
const INVALIDATED: c_int = 901;
/// `CUDA_ERROR_STREAM_CAPTURE_UNJOINED`
const UNJOINED: c_int = 904;

/// Ends the capture of a stream that is destroyed.
pub(crate) fn destroy_stream(real: impl FnOnce() -> c_int, stream: u64) -> c_int {
    // Before: then another stream may have its handle.
    launch::stream_ends(stream);
    let result = real();
    if result == SUCCESS && captures::leave(stream) {
        captures::ends();
    }
    result
}

pub(crate) fn begin(real: impl FnOnce() -> c_int, stream: u64) -> c_int {
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
pub(crate) fn end(real: impl FnOnce() -> c_int, stream: u64) -> c_int {
    let result = real();
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

    #[test]
    fn capture_ends_with_call_stream_or_context() {
        let succeeds = || SUCCESS;
        begin(succeeds, 0x1000);
        begin(succeeds, 0x2000);
        assert_eq!(count(), 2);
        assert_eq!(destroy_stream(succeeds, 0x3000), SUCCESS);
        assert_eq!(count(), 2, "another stream");
        assert_eq!(destroy_stream(succeeds, 0x1000), SUCCESS);
        assert_eq!(count(), 1);
        assert_eq!(end(|| UNJOINED, 0x2000), UNJOINED);
        assert_eq!(count(), 0);
        assert_eq!(destroy_stream(succeeds, 0x2000), SUCCESS);
        assert_eq!(count(), 0, "it has ended before");
        begin(succeeds, 0x4000);
        CAPTURING.iter().find(|[stream, _]| stream.load(Relaxed) == 0x4000).expect("it is known")[1]
            .store(77, Relaxed);
        context_gone(78);
        assert_eq!(count(), 1);
        context_gone(77);
        assert_eq!(count(), 0);
    }
}
