//! Synchronisation and questions about progress: the moments at which pools let go of memory, and graphs and frees
//! in the order of a stream are found to be over. Neither is ever delayed.

use core::ffi::c_int;

use tranche_policy::{Awaited, Pending};

use super::{SUCCESS, pool, settle};
use crate::attach;
use crate::launch::{self, Stream};

pub(crate) unsafe fn for_context(real: unsafe extern "C" fn() -> c_int) -> c_int {
    // SAFETY: the program's own call.
    waited(Awaited::Context, None, || unsafe { real() })
}

/// A wait for a stream, or for a context other than the current one.
pub(crate) unsafe fn for_stream(real: unsafe extern "C" fn(u64) -> c_int, which: u64) -> c_int {
    // SAFETY: the program's own call.
    waited(Awaited::Stream, Some(Stream(which)), || unsafe { real(which) })
}

pub(crate) unsafe fn for_event(real: unsafe extern "C" fn(u64) -> c_int, event: u64) -> c_int {
    // SAFETY: the program's own call.
    waited(Awaited::Event, None, || unsafe { real(event) })
}

/// The question whether a stream's work is over.
pub(crate) unsafe fn ask_stream(real: unsafe extern "C" fn(u64) -> c_int, stream: u64) -> c_int {
    // SAFETY: the program's own call.
    after(unsafe { real(stream) }, Pending::default(), Awaited::Stream, Some(Stream(stream)))
}

/// The question whether an event has come.
pub(crate) unsafe fn ask_event(real: unsafe extern "C" fn(u64) -> c_int, event: u64) -> c_int {
    // SAFETY: the program's own call.
    after(unsafe { real(event) }, Pending::default(), Awaited::Event, None)
}

fn waited(what: Awaited, stream: Option<Stream>, real: impl FnOnce() -> c_int) -> c_int {
    let before = launch::before_wait();
    after(real(), before, what, stream)
}

/// The program has waited for the device, or learnt that it need not.
fn after(result: c_int, before: Pending, what: Awaited, stream: Option<Stream>) -> c_int {
    if result != SUCCESS {
        return result;
    }
    launch::after_wait(before, what, stream);
    if is_needed()
        && let Ok(ledger) = attach::ledger()
    {
        settle(&ledger);
    }
    result
}

/// Whether there is anything to be found over. In most programs there never is: for them this is three loads.
fn is_needed() -> bool {
    pool::is_used() || super::graph::is_used() || super::mark::is_used()
}
