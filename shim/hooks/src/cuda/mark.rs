//! Marks: events of the shim behind work whose end frees memory.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tranche_policy::{Ledger, Mark, Marks};

use super::abi::{SUCCESS, checked};
use super::captures::unnoticed;
use super::{driver, stream};
use crate::connection::DaemonLine;

/// `CU_EVENT_DISABLE_TIMING`
const WITHOUT_TIMING: u32 = 2;
/// True once the program did such work, graphs aside: most programs do not, and checks are skipped.
static USED: AtomicBool = AtomicBool::new(false);

/// The driver's queries about marks, which are events.
pub(crate) struct EventMarks;

impl Marks for EventMarks {
    fn passed(&self, event: u64) -> bool {
        // SAFETY: the event is the shim's, and its context has not ended.
        unnoticed(|| unsafe { driver::cuEventQuery(event) }) == SUCCESS
    }

    fn end(&self, event: u64) {
        // SAFETY: the event is the shim's, and no entry refers to it any longer.
        let _ = unsafe { driver::cuEventDestroy_v2(event) };
    }
}

/// Puts a mark behind all work in a stream, in the stream's own context.
///
/// Without a context or an event there is none, and the work in front of it stays charged until the context ends.
pub(crate) fn behind(stream: u64) -> Mark {
    let current = driver::context().unwrap_or(0);
    let context = stream::context_of(stream).unwrap_or(current);
    let event = match context {
        0 => return Mark::default(),
        context if context == current => record(stream),
        context => driver::within(context, || record(stream)).flatten(),
    };
    Mark { event: event.unwrap_or(0), context }
}

fn record(stream: u64) -> Option<u64> {
    let mut event = 0;
    // SAFETY: the driver writes one event into a local; that event is the shim's, and the stream the program's.
    unnoticed(|| unsafe {
        checked(driver::cuEventCreate(&mut event, WITHOUT_TIMING)).ok()?;
        let recorded = checked(driver::cuEventRecord(event, stream));
        recorded.map(|()| event).inspect_err(|_| EventMarks.end(event)).ok()
    })
}

/// Records that marks are in use, before the first one.
pub(crate) fn used() {
    USED.store(true, Relaxed);
}

pub(crate) fn is_used() -> bool {
    USED.load(Relaxed)
}

/// Releases the charges of work that is done.
pub(crate) fn settle(ledger: &Ledger<'static>) {
    if is_used() {
        ledger.settle_marks(&EventMarks);
        ledger.flush_shares(&DaemonLine);
    }
}

/// Releases them likewise before a refusal; true if there may be any.
pub(crate) fn reclaim(ledger: &Ledger<'static>) -> bool {
    settle(ledger);
    is_used()
}
