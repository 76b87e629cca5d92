//! Marks: events of our own that the shim puts behind work which gives memory back only when it is over.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tranche_policy::{Ledger, Mark, Marks};

use super::{SUCCESS, checked, driver, placement};
use crate::connection::Line;

/// `CU_EVENT_DISABLE_TIMING`
const WITHOUT_TIMING: u32 = 2;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`
const RELAXED: c_int = 2;

/// Whether this program ever did what is marked, but for graphs: most do not, and then nothing need be looked after.
static USED: AtomicBool = AtomicBool::new(false);

/// The driver's events.
pub(crate) struct Events;

impl Marks for Events {
    fn passed(&self, event: u64) -> bool {
        // SAFETY: the event is ours and its context has not ended.
        unnoticed(|| unsafe { driver::cuEventQuery(event) }) == SUCCESS
    }

    fn end(&self, event: u64) {
        // SAFETY: as above, and nobody uses it any more.
        let _ = unsafe { driver::cuEventDestroy_v2(event) };
    }
}

/// Calls the driver so that no capture of the program's takes offence.
pub(crate) fn unnoticed<T>(call: impl FnOnce() -> T) -> T {
    let mut mode = RELAXED;
    // SAFETY: exchanges the calling thread's mode with a local.
    let changed = unsafe { driver::cuThreadExchangeStreamCaptureMode(&mut mode) } == SUCCESS;
    let answer = call();
    if changed {
        // SAFETY: as above, back to what it was.
        let _ = unsafe { driver::cuThreadExchangeStreamCaptureMode(&mut mode) };
    }
    answer
}

/// Puts a mark behind all that is in a stream, in the stream's own context. Without a context or an event there is none,
/// and what was to be behind it stays charged until the context ends.
pub(crate) fn behind(stream: u64) -> Mark {
    let current = driver::context().unwrap_or(0);
    let context = placement::context_of(stream).unwrap_or(current);
    let event = match context {
        0 => return Mark::default(),
        context if context == current => record(stream),
        context => placement::within(context, || record(stream)).flatten(),
    };
    Mark { event: event.unwrap_or(0), context }
}

fn record(stream: u64) -> Option<u64> {
    let mut event = 0;
    // SAFETY: writes one value into a local; then the event is ours and the stream the program's.
    unnoticed(|| unsafe {
        checked(driver::cuEventCreate(&mut event, WITHOUT_TIMING)).ok()?;
        let recorded = checked(driver::cuEventRecord(event, stream));
        recorded.map(|()| event).inspect_err(|_| Events.end(event)).ok()
    })
}

/// Something is about to be marked.
pub(crate) fn used() {
    USED.store(true, Relaxed);
}

pub(crate) fn is_used() -> bool {
    USED.load(Relaxed)
}

/// Gives back what is known to be over.
pub(crate) fn settle(ledger: &Ledger<'static>) {
    if is_used() {
        ledger.settle_marks(&Events);
        ledger.flush_shares(&Line);
    }
}

/// The same before a refusal; says whether there may be anything.
pub(crate) fn reclaim(ledger: &Ledger<'static>) -> bool {
    settle(ledger);
    is_used()
}
