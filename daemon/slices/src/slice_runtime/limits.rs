//! Limits and utilization of a slice, as published in its control region.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tranche_domain::id::GpuUuid;
use tranche_domain::slice::Part;
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;
use tranche_shm::control::DeviceLimits;
use tranche_shm::crash::point;

use super::units::{context_units, ledger_cap};
use super::{Accounting, SliceRuntime};

impl SliceRuntime {
    /// Publishes the daemon's heartbeat.
    pub fn beat(&self, now_ns: u64) {
        self.regions.control().beat(now_ns);
    }

    /// Publishes caps and context reserves, then recalls unused grants beyond them.
    /// The measured values of the reserves are in `parts`.
    pub fn set_limits(&self, parts: &[(Part, Bytes)]) {
        let mut accounting = self.accounting();
        self.publish_limits(&mut accounting, parts);
        self.settle(&mut accounting);
    }

    /// Publishes limits without recalling grants. Until all processes have been taken over, it is unknown if the
    /// slice is over its cap.
    pub(super) fn publish_limits(&self, accounting: &mut Accounting, parts: &[(Part, Bytes)]) {
        for ((device, _), (part, context)) in self.devices().zip(parts) {
            let context = context_units(self.reserve(device, *context));
            let limits = DeviceLimits { uuid: part.gpu.bytes(), cap_bytes: part.cap.get(), context };
            if self.regions.control().reader().limits(device) != limits {
                self.regions.control().set_limits(device, limits);
            }
            accounting.ledgers[device.index()].set_cap(ledger_cap(part.cap));
        }
        point("limits: written");
    }

    /// Recalls unused grants beyond the caps; returns the excess of each device.
    pub fn trim(&self) -> Vec<(GpuUuid, Bytes)> {
        self.settle(&mut self.accounting())
    }

    pub(super) fn settle(&self, accounting: &mut Accounting) -> Vec<(GpuUuid, Bytes)> {
        let settled = self.devices().map(|(device, gpu)| {
            self.observe(accounting, device);
            let excess = self.account(accounting, device).trim();
            let over = excess > Bytes::ZERO;
            if self.regions.control().reader().over_cap(device) != over {
                self.regions.control().set_over_cap(device, over);
            }
            (gpu, excess)
        });
        let settled = settled.collect();
        self.publish(&accounting.ledgers);
        settled
    }

    /// Sets the utilization that NVML shows for the slice's processes, in percent. Only the memory part is published;
    /// the daemon's own accounting is more precise on the other.
    pub fn set_utilization(&self, device: DeviceSlot, gpu: u32, memory: u32) {
        let control = self.regions.control();
        control.set_utilization(device, control.reader().utilization(device).0, memory);
        self.utilization[device.index()].store(gpu.into(), Ordering::Relaxed);
    }

    /// Publishes the part of a device's time that the slice used, in percent.
    pub fn set_own_use(&self, device: DeviceSlot, gpu: u32) {
        let control = self.regions.control();
        control.set_utilization(device, gpu, control.reader().utilization(device).1);
    }

    /// Utilization of a device in percent; `None` before the first sample.
    pub fn utilization(&self, device: DeviceSlot) -> Option<u32> {
        u32::try_from(self.utilization[device.index()].load(Ordering::Relaxed)).ok()
    }

    /// Updates the time since which the slice has been over its cap; returns how long that is.
    pub fn over_for(&self, over: bool) -> Option<Duration> {
        let mut since = self.over_since.lock().expect("nothing panics while it holds the time");
        *since = over.then(|| since.unwrap_or_else(Instant::now));
        since.map(|since| since.elapsed())
    }

    /// Last figure of the driver for a GPU beyond the slice's cap there.
    pub fn driver_excess(&self, gpu: GpuUuid) -> Bytes {
        let device = self.devices().find(|(_, of)| *of == gpu).map(|(device, _)| device);
        device.map_or(Bytes::ZERO, |device| {
            let cap = Bytes::new(self.regions.control().reader().limits(device).cap_bytes);
            self.driver_use.held(device).saturating_sub(cap)
        })
    }

    /// Returns true if the slice was over its cap on a device at the last settlement.
    pub fn is_over(&self) -> bool {
        self.devices().any(|(device, _)| self.regions.control().reader().over_cap(device))
    }
}
