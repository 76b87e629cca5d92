//! Governed functions of `libcuda.so.1`: each receives the real function, then the program's arguments.
//!
//! Contract of every hook, to which its SAFETY comments refer: a program calls it as it would call the driver's
//! function of that name. So pointer arguments are valid as the driver documents them, and may be passed to `real`,
//! the driver's function, as they are. Handles are checked by the driver.

pub(crate) mod abi;
pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod captures;
pub(crate) mod context;
mod current;
pub(crate) mod device;
pub(crate) mod doors;
pub(crate) mod driver;
#[cfg(test)]
mod enumerators;
pub(crate) mod graph;
pub(crate) mod growth;
pub(crate) mod invalid;
pub(crate) mod launch;
mod ledger;
pub(crate) mod limit;
mod mark;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod multicast;
pub(crate) mod physical;
mod placement;
pub(crate) mod pool;
pub(crate) mod shared;
pub(crate) mod slots;
pub(crate) mod stream;
pub(crate) mod transfer;
mod visible;
pub(crate) mod wait;

use core::ffi::c_int;

use tranche_policy::{Denied, Ledger};

use self::ledger::refused;

/// Tries twice: before a refusal, pools and graphs free unused memory.
#[inline(always)]
pub(crate) fn with_reclaim<T>(
    ledger: &Ledger<'static>,
    attempt: impl Fn() -> Result<T, Denied<c_int>>,
) -> Result<T, c_int> {
    let mut reclaimed = false;
    loop {
        match attempt() {
            Ok(made) => return Ok(made),
            Err(Denied::Driver(error)) => return Err(error),
            Err(Denied::OutOfMemory) if !reclaimed && reclaim(ledger) => reclaimed = true,
            Err(Denied::OutOfMemory) => return Err(refused(ledger)),
        }
    }
}

/// Makes pools and graphs free unused memory; true if there are any.
#[cold]
fn reclaim(ledger: &Ledger<'static>) -> bool {
    pool::reclaim(ledger) | graph::reclaim(ledger) | mark::reclaim(ledger)
}

/// Adjusts charges to memory that the driver takes and frees by itself.
pub(crate) fn settle(ledger: &Ledger<'static>) {
    pool::settle(ledger);
    graph::settle(ledger);
    mark::settle(ledger);
}
