//! What a slice may have, what it has beyond that, and what its programs see of its GPUs.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tranche_domain::id::GpuUuid;
use tranche_domain::slice::Part;
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;
use tranche_shm::control::DeviceLimits;
use tranche_shm::crash::point;
use tranche_shm::credit::Units;

use super::{Books, Tenancy};

impl Tenancy {
    /// Says to the tenants that the daemon is alive.
    pub(crate) fn beat(&self, now_ns: u64) {
        self.regions.control().beat(now_ns);
    }

    /// Publishes caps and context reserves, of which `parts` has the measured ones, then takes back what is granted beyond them and not in use.
    pub(crate) fn set_limits(&self, parts: &[(Part, Bytes)]) {
        let mut books = self.books();
        self.publish_limits(&mut books, parts);
        self.settle(&mut books);
    }

    /// Publishes them and takes nothing back: before everybody has been seated again, nobody knows whether the slice
    /// is over its cap.
    pub(super) fn publish_limits(&self, books: &mut Books, parts: &[(Part, Bytes)]) {
        for ((device, _), (part, context)) in self.devices().zip(parts) {
            let context = context_units(self.reserve(device, *context));
            let limits = DeviceLimits { uuid: part.gpu.bytes(), cap_bytes: part.cap.get(), context };
            if self.regions.control().reader().limits(device) != limits {
                self.regions.control().set_limits(device, limits);
            }
            books.ledgers[device.index()].set_cap(ledger_cap(part.cap));
        }
        point("limits: written");
    }

    /// Brings grants back within the caps as far as use allows; says by how much each device is over.
    pub(crate) fn trim(&self) -> Vec<(GpuUuid, Bytes)> {
        self.settle(&mut self.books())
    }

    pub(super) fn settle(&self, books: &mut Books) -> Vec<(GpuUuid, Bytes)> {
        let settled = self.devices().map(|(device, gpu)| {
            self.observe(books, device);
            let excess = self.account(books, device).trim();
            let over = excess > Bytes::ZERO;
            if self.regions.control().reader().over_cap(device) != over {
                self.regions.control().set_over_cap(device, over);
            }
            (gpu, excess)
        });
        let settled = settled.collect();
        self.publish(&books.ledgers);
        settled
    }

    /// Sets what NVML says the slice's processes use of a device, in percent. Its programs see the memory part of
    /// it; the other is known better here.
    pub(crate) fn set_utilization(&self, device: DeviceSlot, gpu: u32, memory: u32) {
        let control = self.regions.control();
        control.set_utilization(device, control.reader().utilization(device).0, memory);
        self.utilization[device.index()].store(gpu.into(), Ordering::Relaxed);
    }

    /// Sets the part of a device's time that the slice used itself, in percent, for its programs to see.
    pub(crate) fn set_own_use(&self, device: DeviceSlot, gpu: u32) {
        let control = self.regions.control();
        control.set_utilization(device, gpu, control.reader().utilization(device).1);
    }

    /// What the slice uses of a device in percent, once it has been measured.
    pub(crate) fn utilization(&self, device: DeviceSlot) -> Option<u32> {
        u32::try_from(self.utilization[device.index()].load(Ordering::Relaxed)).ok()
    }

    /// Takes note of whether the slice is over its cap; says for how long it has been without a break.
    pub(crate) fn over_for(&self, over: bool) -> Option<Duration> {
        let mut since = self.over_since.lock().expect("nothing panics while it holds the time");
        *since = over.then(|| since.unwrap_or_else(Instant::now));
        since.map(|since| since.elapsed())
    }

    /// Whether it was over its cap somewhere when its books were last settled.
    pub(crate) fn is_over(&self) -> bool {
        self.devices().any(|(device, _)| self.regions.control().reader().over_cap(device))
    }
}

pub(super) fn context_units(reserve: Bytes) -> Units {
    Units::covering(reserve.get()).unwrap_or(Units::MAX)
}

/// Credit moves in units of 4 KiB; what is left of the cap below one is nobody's.
pub(super) fn ledger_cap(cap: Bytes) -> Bytes {
    Bytes::new(Units::within(cap.get()).bytes())
}
