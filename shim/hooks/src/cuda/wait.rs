//! Synchronisation and questions about progress: the moments at which pools let go of memory, and graphs and frees
//! in the order of a stream are found to be over. Neither is ever delayed.

use core::ffi::c_int;

use super::{SUCCESS, pool, settle};
use crate::attach;

pub(crate) unsafe fn for_context(real: unsafe extern "C" fn() -> c_int) -> c_int {
    // SAFETY: the program's own call.
    after(unsafe { real() })
}

/// A wait for a context, a stream or an event, or the question whether it is over.
pub(crate) unsafe fn for_one(real: unsafe extern "C" fn(u64) -> c_int, which: u64) -> c_int {
    // SAFETY: the program's own call.
    after(unsafe { real(which) })
}

/// The program has waited for the device, or learnt that it need not.
fn after(result: c_int) -> c_int {
    if result == SUCCESS
        && is_needed()
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
