//! Passage of a slice's threads through the open gate.

use crate::compute::time::{Instant, Nanos};

/// Passage of threads that waited when the slice was opened last.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::compute) struct Passage {
    had_waited: bool,
    /// First observation at which no thread waits any more, and no launch is in the record yet.
    began: Option<Instant>,
}

impl Passage {
    pub(super) const fn opened(had_waited: bool) -> Self {
        Self { had_waited, began: None }
    }

    /// Tests if a thread waited at the gate when the slice was opened last.
    pub(in crate::compute) const fn had_waited(self) -> bool {
        self.had_waited
    }

    /// Tests if a thread has just passed the gate, and its launch is not in the record yet.
    pub(in crate::compute) const fn is_on(self) -> bool {
        self.began.is_some()
    }

    /// Takes in an observation of a thread `between` gate and record: it counts as waiting for the `grace`.
    ///
    /// Returns true while it counts. Without it the slice would seem to want nothing, and lose its turn and what it is owed.
    pub(super) fn observe(&mut self, now: Instant, between: bool, grace: Nanos) -> bool {
        let since = self.began.unwrap_or(now);
        self.began = (between && now.since(since) < grace).then_some(since);
        self.is_on()
    }
}
