//! Synchronisation and queries of progress, at which freed memory of pools and graphs is noticed.
//!
//! Neither is ever delayed while the slice is on its GPUs.

use core::ffi::c_int;

use tranche_policy::{Awaited, Pending};

use super::abi::SUCCESS;
use super::reclaim::settle;
use super::stream::Stream;
use super::{graph_memory, mark, pool_memory};
use crate::attach;
use crate::launch;

pub(crate) unsafe fn for_context(real: unsafe extern "C" fn() -> c_int) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    waited(Awaited::Context, None, || unsafe { real() })
}

/// Waits for a stream, or for a context other than the current one.
pub(crate) unsafe fn for_stream(real: unsafe extern "C" fn(u64) -> c_int, which: u64) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    waited(Awaited::Stream, Some(Stream(which)), || unsafe { real(which) })
}

pub(crate) unsafe fn for_event(real: unsafe extern "C" fn(u64) -> c_int, event: u64) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    waited(Awaited::Event, None, || unsafe { real(event) })
}

/// Queries whether a stream's work is done.
pub(crate) unsafe fn ask_stream(real: unsafe extern "C" fn(u64) -> c_int, stream: u64) -> c_int {
    launch::be_present();
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    after(unsafe { real(stream) }, Pending::default(), Awaited::Stream, Some(Stream(stream)))
}

/// The question whether an event has come.
pub(crate) unsafe fn ask_event(real: unsafe extern "C" fn(u64) -> c_int, event: u64) -> c_int {
    launch::be_present();
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
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

/// True if any work may have ended that frees memory. Three loads, and false in most programs.
fn is_needed() -> bool {
    pool_memory::is_used() || graph_memory::is_used() || mark::is_used()
}
