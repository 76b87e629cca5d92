//! Functions that a program imports and that are not here: each answers an error, and names itself once.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::status::{Outcome, Status, noted};
use crate::wall::Text;

static NAMED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Refuses a call of the function with this name.
pub(crate) fn refuse(name: &str) -> Outcome {
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    if named.insert(name.to_owned()) {
        eprintln!("fakecudart: {name} is not among the functions that the simulated libraries have");
    }
    Err(Status::NOT_SUPPORTED)
}

// SAFETY: the name is this library's own, for the code that `fakecudart-stage` generates.
#[unsafe(no_mangle)]
extern "C" fn fakecudart_missing(name: Text) -> i32 {
    noted(name.get().and_then(|name| refuse(&name.to_string_lossy())))
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn fakecudart_is(version: i32) {
    crate::device::set_version(version);
}

/// Runs an entry point, so that no panic crosses into C.
pub(crate) fn guarded(entry: impl FnOnce() -> Outcome) -> i32 {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(entry));
    noted(outcome.unwrap_or(Err(Status::UNKNOWN)))
}
