//! What has gone wrong, counted, and the first few times in words.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// Counts what must not be.
#[derive(Debug, Default)]
pub(crate) struct Toll(Mutex<BTreeMap<&'static str, u64>>);

const FEW: u64 = 5;

impl Toll {
    /// Something went wrong.
    pub(crate) fn wrong(&self, what: &'static str, how: impl FnOnce() -> String) {
        let mut counts = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let count = counts.entry(what).or_default();
        *count += 1;
        if *count <= FEW {
            eprintln!("{what}: {}", how());
        }
    }

    /// If it is so, something went wrong.
    pub(crate) fn wrong_if(&self, is_so: bool, what: &'static str, how: impl FnOnce() -> String) {
        if is_so {
            self.wrong(what, how);
        }
    }

    /// Number of times.
    pub(crate) fn count(&self, what: &str) -> u64 {
        let counts = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        counts.get(what).copied().unwrap_or_default()
    }
}
