//! Memory that the driver last listed for a slice. What its processes report as freed is not promised to others until
//! the driver shows it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;

/// Driver's last figures for a slice.
#[derive(Debug)]
pub struct DriverUse {
    /// Bytes that the slice's processes hold together, by device.
    held: Vec<AtomicU64>,
    /// Time since which the driver has continuously shown more than the slice reports.
    doubtful_since: Mutex<Option<Instant>>,
}

impl DriverUse {
    /// Figures of zero for that number of devices.
    pub(super) fn of(devices: usize) -> Self {
        Self { held: (0..devices).map(|_| AtomicU64::new(0)).collect(), doubtful_since: Mutex::default() }
    }

    /// Sets what the driver listed for the slice's processes on a device.
    pub fn set(&self, device: DeviceSlot, held: Bytes) {
        self.held[device.index()].store(held.get(), Relaxed);
    }

    /// Last figure of a device.
    pub(super) fn held(&self, device: DeviceSlot) -> Bytes {
        Bytes::new(self.held[device.index()].load(Relaxed))
    }

    /// Invalidates the figures: until the driver is queried again, the slice counts as holding everything.
    pub fn invalidate(&self) {
        self.held.iter().for_each(|held| held.store(u64::MAX, Relaxed));
    }

    /// Records if the driver shows more than the slice reports.
    pub fn set_doubtful(&self, doubted: bool) {
        let mut since = self.doubtful_since();
        *since = doubted.then(|| since.unwrap_or_else(Instant::now));
    }

    /// Time for which that has been so without a break.
    pub fn doubtful_for(&self) -> Option<Duration> {
        self.doubtful_since().map(|since| since.elapsed())
    }

    fn doubtful_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.doubtful_since.lock().expect("nothing panics while it holds the time")
    }
}
