//! Counts of errors, of which the first few are printed.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// Number of errors of each kind.
#[derive(Debug, Default)]
pub(crate) struct Toll(Mutex<BTreeMap<&'static str, u64>>);

const FEW: u64 = 5;

impl Toll {
    /// Counts an error of a kind; prints the first `FEW` of them.
    pub(crate) fn wrong(&self, what: &'static str, how: impl FnOnce() -> String) {
        let mut counts = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let count = counts.entry(what).or_default();
        *count += 1;
        if *count <= FEW {
            eprintln!("{what}: {}", how());
        }
    }

    /// Counts an error of a kind if `is_so`.
    pub(crate) fn wrong_if(&self, is_so: bool, what: &'static str, how: impl FnOnce() -> String) {
        if is_so {
            self.wrong(what, how);
        }
    }

    /// Number of errors of a kind.
    pub(crate) fn count(&self, what: &str) -> u64 {
        let counts = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        counts.get(what).copied().unwrap_or_default()
    }
}
