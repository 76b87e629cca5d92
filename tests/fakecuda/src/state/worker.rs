//! Streams that have something to do, for the thread that does it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::state::stream::Stream;

/// Streams that have something to do.
#[derive(Default)]
pub(crate) struct Worker {
    pub(crate) inner: Mutex<Inner>,
    pub(crate) wanted: Condvar,
    /// Notified after every round, for threads that wait for an action.
    pub(crate) acted: Condvar,
}

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) started: bool,
    pub(crate) streams: Vec<Arc<Stream>>,
}

impl Worker {
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The streams that it serves.
    pub(crate) fn busy_streams(&self) -> Vec<Arc<Stream>> {
        self.inner().streams.clone()
    }

    /// Sleeps until the next round has passed, or a little while.
    pub(crate) fn wait_a_round(&self) {
        let inner = self.inner();
        drop(self.acted.wait_timeout(inner, Duration::from_millis(5)));
    }
}
