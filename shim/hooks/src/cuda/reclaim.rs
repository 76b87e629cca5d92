//! Charges and memory that are released late: by pools, by graphs, behind marks.

use core::ffi::c_int;

use tranche_policy::{ClaimDenied, Ledger};

use super::ledger::refused;
use super::{graph_memory, mark, pool_memory};

/// Tries twice: before a refusal, pools and graphs free unused memory.
#[inline(always)]
pub(crate) fn with_reclaim<T>(
    ledger: &Ledger<'static>,
    attempt: impl Fn() -> Result<T, ClaimDenied<c_int>>,
) -> Result<T, c_int> {
    let mut reclaimed = false;
    loop {
        match attempt() {
            Ok(made) => return Ok(made),
            Err(ClaimDenied::Driver(error)) => return Err(error),
            Err(ClaimDenied::OutOfMemory) if !reclaimed && reclaim(ledger) => reclaimed = true,
            Err(ClaimDenied::OutOfMemory) => return Err(refused(ledger)),
        }
    }
}

/// Makes pools and graphs free unused memory; true if there are any.
#[cold]
fn reclaim(ledger: &Ledger<'static>) -> bool {
    pool_memory::reclaim(ledger) | graph_memory::reclaim(ledger) | mark::reclaim(ledger)
}

/// Adjusts charges to memory that the driver takes and frees by itself.
pub(crate) fn settle(ledger: &Ledger<'static>) {
    pool_memory::settle(ledger);
    graph_memory::settle(ledger);
    mark::settle(ledger);
}
