//! Free memory and compute of a GPU.

use alloc::string::String;

use crate::cordon::Cordon;
use crate::id::GpuUuid;
use crate::units::{Bytes, Permille};

/// A GPU with its free memory and compute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuRoom {
    /// Index as NVML counts GPUs.
    pub index: u32,
    /// UUID as NVML reports it.
    pub uuid: GpuUuid,
    /// Island number; GPUs of the same island are connected by NVLink.
    pub island: u32,
    /// Memory that slices can be created from.
    pub capacity: Bytes,
    /// Memory that is not committed to a slice.
    pub free: Bytes,
    /// Compute that is not committed to a slice.
    pub free_compute: Permille,
    /// Part that is not free because it is kept for jobs.
    pub kept: Permille,
    /// True if any slice is on the GPU.
    pub occupied: bool,
    /// Reason for which no slice may be placed here, if any.
    pub obstacle: Option<String>,
    /// The cordon in force, if any.
    pub cordon: Option<Cordon>,
}

impl GpuRoom {
    pub(super) const fn is_open(&self) -> bool {
        self.obstacle.is_none() && self.cordon.is_none()
    }

    pub(super) fn is_untouched(&self) -> bool {
        !self.occupied && self.free == self.capacity && self.free_compute == Permille::WHOLE
    }
}
