//! Context reserves that a slice's own processes were seen to need.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tranche_domain::reserve::SeenReserve;
use tranche_domain::units::Bytes;

/// Reserves of a slice, by device.
#[derive(Debug)]
pub(super) struct Reserves {
    begun: Instant,
    seen: Mutex<Vec<SeenReserve>>,
    /// Reserves that an earlier daemon published; processes may have been charged these amounts.
    pub(super) earlier: Vec<Bytes>,
}

impl Reserves {
    /// Reserves of a slice whose processes may have been charged `earlier` for a context.
    pub(super) fn new(earlier: Vec<Bytes>) -> Self {
        let seen = Mutex::new(vec![SeenReserve::default(); earlier.len()]);
        Self { begun: Instant::now(), seen, earlier }
    }

    pub(super) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Vec<SeenReserve>> {
        self.seen.lock().expect("nothing panics while it holds the reserves")
    }
}
