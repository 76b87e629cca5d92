//! Functions that a program imports and that are not here.
//!
//! Each answers an error, and names itself once.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::status::{Outcome, Status, noted};
use crate::wall::Text;

static NAMED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Names a function that is not among those of a library, once, and answers "not supported".
pub(crate) fn absent(name: &str, library: &str) -> Status {
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    if named.insert(name.to_owned()) {
        eprintln!("fakecudart: {name} is not among {library} functions");
    }
    Status::NOT_SUPPORTED
}

// SAFETY: the name is this library's own, for the code that `fakecudart-stage` generates.
#[unsafe(no_mangle)]
extern "C" fn fakecudart_missing(name: Text) -> i32 {
    noted(name.get().and_then(|name| Err(absent(&name.to_string_lossy(), "the simulated libraries'"))))
}

/// Runs an entry point, so that no panic crosses into C.
pub(crate) fn guarded(entry: impl FnOnce() -> Outcome) -> i32 {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(entry));
    noted(outcome.unwrap_or(Err(Status::UNKNOWN)))
}
