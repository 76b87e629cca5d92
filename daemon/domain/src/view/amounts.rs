//! Amounts of GPUs that slices are and hold, as far as a view shows them.

use super::{NodeView, SliceDeviceView, SliceView};
use crate::jobs::MilliGpus;
use crate::park::ParkStage;
use crate::request::Share;
use crate::units::Permille;

impl SliceView {
    /// Tests if it is parked, so that its part of its GPUs is free for others.
    pub fn is_away(&self) -> bool {
        self.parked.is_some_and(|park| park.stage == ParkStage::Parked)
    }
}

impl NodeView {
    /// Part of one GPU that a slice is: its fraction, or what its cap is of the capacity.
    pub fn part(&self, share: Share, device: &SliceDeviceView) -> MilliGpus {
        match share {
            Share::Whole(_) => MilliGpus::ONE,
            Share::Fraction(fraction) => MilliGpus::new(fraction.permille().get()),
            Share::Memory(_) => {
                let gpu = self.gpus.iter().find(|gpu| gpu.uuid == device.gpu_uuid);
                MilliGpus::new(gpu.map_or(0, |gpu| Permille::of(device.cap, gpu.capacity).get()))
            }
        }
    }

    /// Size of a slice: the sum of its parts.
    pub fn size(&self, slice: &SliceView) -> MilliGpus {
        slice.devices.iter().map(|device| self.part(slice.share, device)).sum()
    }

    /// GPUs that a slice holds: its size, or none while it is parked.
    pub fn held(&self, slice: &SliceView) -> MilliGpus {
        if slice.is_away() { MilliGpus::ZERO } else { self.size(slice) }
    }

    /// GPUs held by all slices, and by those that are idle.
    pub fn allocated(&self) -> (MilliGpus, MilliGpus) {
        let slices = self.slices.iter();
        let idle = slices.clone().filter(|slice| slice.idle_ms.is_some());
        (slices.map(|slice| self.held(slice)).sum(), idle.map(|slice| self.held(slice)).sum())
    }
}
