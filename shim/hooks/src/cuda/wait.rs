//! Synchronisation and queries of progress, at which freed memory of pools and graphs is noticed.
//!
//! Neither is ever delayed while the slice is on its GPUs.

use core::ffi::c_int;

use tranche_policy::{Awaited, Pending};

use super::abi::SUCCESS;
use super::driver;
use super::reclaim::settle;
use super::stream::Stream;
use super::{graph_memory, mark, pool_memory};
use crate::attach;
use crate::launch;

/// Waits for work, in `stream` if it is for one.
pub(crate) fn wait(real: impl FnOnce() -> c_int, what: Awaited, stream: Option<Stream>) -> c_int {
    let before = launch::before_wait();
    after(real(), before, what, stream)
}

/// Waits for all work of a context; 0 is the current one.
pub(crate) fn wait_for_context(real: impl FnOnce() -> c_int, context: u64) -> c_int {
    let before = launch::before_wait();
    let result = real();
    let note = || after(result, before, Awaited::Context, None);
    if context == 0 { note() } else { driver::within(context, note).unwrap_or(result) }
}

/// Queries whether work is done.
pub(crate) fn ask(real: impl FnOnce() -> c_int, what: Awaited, stream: Option<Stream>) -> c_int {
    launch::be_present();
    let before = launch::before_query();
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

/// True if any work may have ended that frees memory. Three loads, and false in most programs.
fn is_needed() -> bool {
    pool_memory::is_used() || graph_memory::is_used() || mark::is_used()
}
