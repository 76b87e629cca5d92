//! Streams: the names of default ones, and what the driver reports about others.

use core::ffi::c_int;

use super::abi::SUCCESS;
use super::driver;
use crate::thread;

/// `CU_STREAM_LEGACY`
const LEGACY: u64 = 1;
/// `CU_STREAM_PER_THREAD`
const PER_THREAD: u64 = 2;
/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`
const CAPTURING: c_int = 1;
/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`
const STREAM_CAPTURE_IMPLICIT: c_int = 906;

/// A stream, as the driver's queries take it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream(pub(crate) u64);

impl Stream {
    /// The stream of a function in whose name stream 0 is the calling thread's own.
    pub(crate) const fn per_thread(stream: u64) -> Self {
        Self(own(stream))
    }

    /// Number that no other queue of the process has.
    ///
    /// In a context the legacy stream is one, and each thread has one of its own.
    pub(crate) fn number(self, context: u64) -> u64 {
        match self.0 {
            0 | LEGACY => context ^ 1 << 62,
            PER_THREAD => context ^ thread::queue_number() ^ 1 << 63,
            handle => handle,
        }
    }

    /// True while a capture records the stream, or may.
    pub(crate) fn is_captured(self) -> bool {
        let mut status = 0;
        // SAFETY: the driver writes one value into a local; the stream is the program's, valid by the launch's
        // contract.
        let asked = unsafe { driver::cuStreamIsCapturing(self.0, &mut status) };
        // The legacy stream may not even be queried while another captures: then the driver decides about the launch.
        asked == STREAM_CAPTURE_IMPLICIT || asked == SUCCESS && status != 0
    }
}

/// The stream that a function means in whose name stream 0 is the calling thread's own.
pub(crate) const fn own(stream: u64) -> u64 {
    if stream == 0 { PER_THREAD } else { stream }
}

/// True if a number is a stream's handle, and not one of the names of default streams.
pub(crate) const fn is_handle(stream: u64) -> bool {
    stream > PER_THREAD
}

/// Context of a stream that has a handle.
pub(crate) fn context_of(stream: u64) -> Option<u64> {
    if !is_handle(stream) {
        return None;
    }
    let (mut context, mut green) = (0, 0);
    // SAFETY: each function writes into locals alone; the driver checks the stream, which is the program's.
    unsafe {
        if driver::cuStreamGetCtx(stream, &mut context) == SUCCESS && context != 0 {
            return Some(context);
        }
        // Older versions may return no context for a stream of a green context.
        if driver::cuStreamGetCtx_v2(stream, &mut context, &mut green) == SUCCESS {
            if context != 0 {
                return Some(context);
            }
        } else if driver::cuStreamGetGreenCtx(stream, &mut green) != SUCCESS {
            return None;
        }
        let found = green != 0 && driver::cuCtxFromGreenCtx(&mut context, green) == SUCCESS;
        (found && context != 0).then_some(context)
    }
}

/// The driver's device of a stream: for default streams the current one.
///
/// # Errors
/// The driver's, where it returns none. The current device is no substitute for that of another stream.
pub(crate) fn device_of(stream: u64) -> Result<c_int, c_int> {
    if !is_handle(stream) {
        return driver::device();
    }
    let mut device = 0;
    // SAFETY: writes one value into a local; the driver checks the stream, which is the program's.
    let asked = unsafe { driver::cuStreamGetDevice(stream, &mut device) };
    if asked == SUCCESS {
        return Ok(device);
    }
    let context = context_of(stream).ok_or(asked)?;
    match driver::context() {
        Ok(current) if current == context => driver::device(),
        _ => driver::within(context, driver::device).unwrap_or(Err(asked)),
    }
}

/// True if work in the stream becomes part of a graph, which is charged when it runs.
pub(crate) fn is_capturing(stream: u64) -> bool {
    let mut status = 0;
    // SAFETY: writes one value into a local; the stream is the program's.
    unsafe { driver::cuStreamIsCapturing(stream, &mut status) == SUCCESS && status == CAPTURING }
}
