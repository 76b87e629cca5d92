//! What the driver was last seen to hold for a slice: what its processes say that they freed is not promised to others
//! before that shows.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tranche_domain::id::GpuUuid;
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;

use super::Tenancy;

/// What was seen of a slice.
#[derive(Debug)]
pub(super) struct Sight {
    /// What its processes hold together, by device, in bytes.
    held: Vec<AtomicU64>,
    /// Since when more is seen than is said, without a break.
    doubted: Mutex<Option<Instant>>,
}

impl Sight {
    /// Of a slice with so many devices, of which nothing was seen yet.
    pub(super) fn of(devices: usize) -> Self {
        Self { held: (0..devices).map(|_| AtomicU64::new(0)).collect(), doubted: Mutex::default() }
    }
}

impl Tenancy {
    /// The driver was seen to hold so much for its processes on a device.
    pub(crate) fn saw(&self, device: DeviceSlot, held: Bytes) {
        self.sight.held[device.index()].store(held.get(), Relaxed);
    }

    /// What was seen is of before: until the driver is asked again, its processes hold all there is.
    pub(crate) fn look_away(&self) {
        self.sight.held.iter().for_each(|held| held.store(u64::MAX, Relaxed));
    }

    /// What was last seen beyond the cap of a GPU.
    pub(crate) fn seen_beyond(&self, gpu: GpuUuid) -> Bytes {
        let device = self.devices().find(|(_, of)| *of == gpu).map(|(device, _)| device);
        device.map_or(Bytes::ZERO, |device| {
            let cap = Bytes::new(self.regions.control().reader().limits(device).cap_bytes);
            Bytes::new(self.sight.held[device.index()].load(Relaxed)).saturating_sub(cap)
        })
    }

    /// Takes note of whether more is seen than is said.
    pub(crate) fn doubt(&self, doubted: bool) {
        let mut since = self.sight.doubted.lock().expect("nothing panics while it holds the time");
        *since = doubted.then(|| since.unwrap_or_else(Instant::now));
    }

    /// For how long that has been so without a break.
    pub(crate) fn doubted_for(&self) -> Option<Duration> {
        self.sight
            .doubted
            .lock()
            .expect("nothing panics while it holds the time")
            .map(|since| since.elapsed())
    }
}
