//! Memory that the driver last listed for a slice. What its processes report as freed is not promised to others until
//! the driver shows it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tranche_domain::id::GpuUuid;
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;

use super::SliceRuntime;

/// Driver's last figures for a slice.
#[derive(Debug)]
pub(super) struct DriverUse {
    /// Bytes that the slice's processes hold together, by device.
    held: Vec<AtomicU64>,
    /// Time since which the driver has continuously shown more than the slice reports.
    doubtful_since: Mutex<Option<Instant>>,
}

impl DriverUse {
    /// Without any figures.
    pub(super) fn of(devices: usize) -> Self {
        Self { held: (0..devices).map(|_| AtomicU64::new(0)).collect(), doubtful_since: Mutex::default() }
    }
}

impl SliceRuntime {
    /// Sets what the driver listed for the slice's processes on a device.
    pub(crate) fn set_driver_use(&self, device: DeviceSlot, held: Bytes) {
        self.driver_use.held[device.index()].store(held.get(), Relaxed);
    }

    /// Invalidates the figures: until the driver is queried again, the slice counts as holding everything.
    pub(crate) fn invalidate_driver_use(&self) {
        self.driver_use.held.iter().for_each(|held| held.store(u64::MAX, Relaxed));
    }

    /// Last figure of a GPU beyond the slice's cap there.
    pub(crate) fn driver_excess(&self, gpu: GpuUuid) -> Bytes {
        let device = self.devices().find(|(_, of)| *of == gpu).map(|(device, _)| device);
        device.map_or(Bytes::ZERO, |device| {
            let cap = Bytes::new(self.regions.control().reader().limits(device).cap_bytes);
            Bytes::new(self.driver_use.held[device.index()].load(Relaxed)).saturating_sub(cap)
        })
    }

    /// Records if the driver shows more than the slice reports.
    pub(crate) fn set_doubtful(&self, doubted: bool) {
        let mut since =
            self.driver_use.doubtful_since.lock().expect("nothing panics while it holds the time");
        *since = doubted.then(|| since.unwrap_or_else(Instant::now));
    }

    /// Time for which that has been so without a break.
    pub(crate) fn doubtful_for(&self) -> Option<Duration> {
        self.driver_use
            .doubtful_since
            .lock()
            .expect("nothing panics while it holds the time")
            .map(|since| since.elapsed())
    }
}
