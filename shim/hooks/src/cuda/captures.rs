//! Captures under way, and driver calls of the shim's own beside them.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::abi::SUCCESS;
use super::{driver, stream};
use crate::{direct, thread};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`
const RELAXED: c_int = 2;

/// Captures that have begun and not ended, as far as the program's calls show.
static CAPTURES: AtomicU32 = AtomicU32::new(0);

/// Captures under way: the stream in which each began, 0 in a free place, and its context.
pub(super) static CAPTURING: [[AtomicU64; 2]; 32] = [const { [const { AtomicU64::new(0) }; 2] }; 32];

/// True if a capture may be under way.
pub(crate) fn are_under_way() -> bool {
    CAPTURES.load(Relaxed) > 0
}

/// Counts a begun capture: every launch queries its stream from now on.
pub(super) fn begins() {
    CAPTURES.fetch_add(1, Relaxed);
    direct::shut();
}

/// Counts the end of a capture, or one that never began.
pub(super) fn ends() {
    let _ = CAPTURES.fetch_update(Relaxed, Relaxed, |captures| captures.checked_sub(1));
}

/// Captures under way, as far as the program's calls show.
#[cfg(test)]
pub(super) fn count() -> u32 {
    CAPTURES.load(Relaxed)
}

/// Ends the captures of an ended context's streams.
pub(crate) fn context_gone(context: u64) {
    for [stream, of] in &CAPTURING {
        let began = stream.load(Relaxed);
        if began != 0 && of.load(Relaxed) == context && remove(began) {
            ends();
        }
    }
}

/// Key of a stream within the process: default streams that can capture belong to their thread.
fn key(stream: u64) -> u64 {
    if stream::is_handle(stream) { stream } else { thread::number() | 1 << 63 }
}

/// Enters a capture. Where there is no place left, it ends by its own call alone.
pub(super) fn enter(stream: u64) {
    let context = stream::context_of(stream).or_else(|| driver::context().ok()).unwrap_or(0);
    let free =
        |[place, _]: &&[AtomicU64; 2]| place.compare_exchange(0, key(stream), Relaxed, Relaxed).is_ok();
    if let Some([_, of]) = CAPTURING.iter().find(free) {
        of.store(context, Relaxed);
    }
}

/// Removes the capture that began in a stream; true if it was entered.
pub(super) fn leave(stream: u64) -> bool {
    remove(key(stream))
}

fn remove(key: u64) -> bool {
    CAPTURING.iter().any(|[stream, _]| stream.compare_exchange(key, 0, Relaxed, Relaxed).is_ok())
}

/// Makes driver calls of the shim's own, without an effect on the program's captures.
pub(crate) fn undisturbed<T>(call: impl FnOnce() -> T) -> T {
    if are_under_way() { unnoticed(call) } else { call() }
}

/// Calls the driver without an effect on the program's captures.
pub(crate) fn unnoticed<T>(call: impl FnOnce() -> T) -> T {
    let mut mode = RELAXED;
    // SAFETY: the driver exchanges the calling thread's mode with a local.
    let changed = unsafe { driver::cuThreadExchangeStreamCaptureMode(&mut mode) } == SUCCESS;
    let answer = call();
    if changed {
        // SAFETY: the driver exchanges the calling thread's mode with a local, back to the earlier one.
        let _ = unsafe { driver::cuThreadExchangeStreamCaptureMode(&mut mode) };
    }
    answer
}
