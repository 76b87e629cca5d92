//! Health of devices: broken GPUs and resources in other use are distinguished.

use std::collections::{BTreeMap, BTreeSet};

use tranche_domain::admission::holds_latency;
use tranche_domain::compute::Latency;
use tranche_domain::fault::Xid;
use tranche_domain::id::GpuUuid;
use tranche_domain::units::{Bytes, Permille};
use tranche_domain::view::{GpuView, NodeView, SliceView};

use crate::bundle::Bundle;
use crate::config::IgnoredXids;
use crate::device::DeviceId;
use crate::offer::Offer;
use crate::placement::Claim;

/// The part of the daemon's view that concerns devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHeadroom {
    /// GPUs that the daemon lists, by UUID.
    pub gpus: BTreeMap<GpuUuid, GpuHeadroom>,
    /// Slices of containers, including those of earlier configurations.
    pub slices: BTreeMap<Bundle, Occupied>,
}

/// Presence of processes in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupied {
    /// The slice has processes.
    Yes,
    /// The slice has none.
    No,
}

/// Free resources and faults of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuHeadroom {
    /// Index of the GPU in NVML.
    pub index: u32,
    /// Memory not committed to slices.
    pub free: Bytes,
    /// Compute not committed to slices.
    pub free_compute: Permille,
    /// Latency targets of its slices, in any order.
    pub targets: Vec<Latency>,
    /// Reason for which no slice may be placed here, if any.
    pub obstacle: Option<String>,
    /// Description of the cordon in force, if any.
    pub cordon: Option<String>,
    /// Number of foreign processes.
    pub strangers: usize,
    /// A fault in force that affects health.
    pub fault: Option<Xid>,
    /// True if a failure is too recent for its devices to be healthy.
    pub recovers: bool,
}

/// Health of a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Health {
    /// Available, or in use on a healthy GPU.
    #[error("healthy")]
    Healthy,
    /// Unavailable because of other use of its GPU.
    #[error("taken: {0}")]
    Taken(Taken),
    /// Unavailable because of its GPU's state.
    #[error("broken: {0}")]
    Broken(Broken),
}

/// Other use that makes a device unavailable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Taken {
    /// Slices outside the offer, or with dynamic profiles other devices.
    #[error("other slices have the room that it needs")]
    BySlices,
    /// Latency targets of other slices, beside which its own cannot be held.
    #[error("a latency of {0} cannot be held beside the latency targets of other slices there")]
    ByTargets(Latency),
    /// Foreign processes, with their number.
    #[error("{0} process(es) outside any slice use its GPU")]
    ByStrangers(usize),
    /// A cordon of the GPU, with its description.
    #[error("its GPU is {0}")]
    ByOperator(String),
}

/// Failure of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The daemon does not answer.
    #[error("tranched does not answer")]
    NoDaemon,
    /// The daemon does not list the GPU.
    #[error("tranched does not see its GPU")]
    Gone,
    /// No slice may be placed here.
    #[error("{0}")]
    Obstacle(String),
    /// The driver reported a fault.
    #[error("the driver reports {0}")]
    Fault(Xid),
    /// A failure is too recent.
    #[error("its GPU has not been well for long enough")]
    Recovers,
}

impl Health {
    /// Tests if the kubelet may allocate the device.
    pub const fn is_healthy(&self) -> bool {
        matches!(self, Self::Healthy)
    }
}

impl NodeHeadroom {
    /// Extracts the headroom from the daemon's view.
    pub fn of(node: &NodeView, ignored: &IgnoredXids) -> Self {
        let ours = node.slices.iter().filter_map(|slice| {
            let empty = slice.processes.is_empty() && slice.root_pids.is_empty();
            let occupied = if empty { Occupied::No } else { Occupied::Yes };
            let gpus = slice.devices.iter().map(|device| device.gpu_uuid);
            Some((Bundle::of_slice(&slice.name, gpus)?, occupied))
        });
        let room = |gpu: &GpuView| {
            let here = |slice: &&SliceView| slice.devices.iter().any(|device| device.gpu_uuid == gpu.uuid);
            let targets = node.slices.iter().filter(here).filter_map(|slice| slice.latency).collect();
            (gpu.uuid, GpuHeadroom { targets, ..GpuHeadroom::of(gpu, ignored) })
        };
        Self { gpus: node.gpus.iter().map(room).collect(), slices: ours.collect() }
    }

    /// Devices in use: those of existing slices.
    pub fn in_use(&self) -> BTreeSet<&DeviceId> {
        self.slices.keys().flat_map(Bundle::devices).collect()
    }

    /// Health of each device of the offer. A device in use is unhealthy only if its GPU is; other use affects
    /// free devices only.
    pub fn health(&self, offer: &Offer) -> BTreeMap<DeviceId, Health> {
        let (mut rooms, in_use) = (self.gpus.clone(), self.in_use());
        let judge = |(device, claim): (&DeviceId, &Claim)| {
            let health = match rooms.get_mut(&device.gpu) {
                None => Health::Broken(Broken::Gone),
                Some(room) => room.judge(*claim, in_use.contains(device), offer.dynamic),
            };
            (device.clone(), health)
        };
        offer.devices.iter().map(judge).collect()
    }
}

impl GpuHeadroom {
    fn of(gpu: &GpuView, ignored: &IgnoredXids) -> Self {
        Self {
            fault: gpu.faults.iter().map(|fault| fault.xid).find(|xid| !ignored.contains(*xid)),
            index: gpu.index,
            free: gpu.capacity.saturating_sub(gpu.committed),
            free_compute: Permille::WHOLE.saturating_sub(gpu.committed_compute),
            targets: Vec::new(),
            obstacle: gpu.obstacle().map(Into::into),
            cordon: gpu.cordon.as_ref().map(ToString::to_string),
            strangers: gpu.foreign.len(),
            recovers: false,
        }
    }

    /// Health of the next device; a free, healthy one of a layout uses up its room.
    /// Devices of a layout are offered side by side; dynamic ones compete for the same room.
    fn judge(&mut self, claim: Claim, in_use: bool, dynamic: bool) -> Health {
        if let Some(why) = &self.obstacle {
            return Health::Broken(Broken::Obstacle(why.clone()));
        }
        match (self.fault, &self.cordon) {
            (Some(xid), _) => Health::Broken(Broken::Fault(xid)),
            (None, _) if in_use => Health::Healthy,
            (None, _) if self.recovers => Health::Broken(Broken::Recovers),
            (None, Some(cordon)) => Health::Taken(Taken::ByOperator(cordon.clone())),
            (None, None) => self.judge_free(claim, dynamic),
        }
    }

    fn judge_free(&mut self, claim: Claim, dynamic: bool) -> Health {
        let unheld = claim.latency.filter(|target| !holds_latency(*target, &self.targets));
        match unheld {
            _ if self.strangers > 0 => Health::Taken(Taken::ByStrangers(self.strangers)),
            _ if claim.memory > self.free || claim.compute > self.free_compute => {
                Health::Taken(Taken::BySlices)
            }
            Some(target) => Health::Taken(Taken::ByTargets(target)),
            None if dynamic => Health::Healthy,
            None => {
                self.free = self.free.saturating_sub(claim.memory);
                self.free_compute = self.free_compute.saturating_sub(claim.compute);
                self.targets.extend(claim.latency);
                Health::Healthy
            }
        }
    }
}

#[cfg(test)]
mod tests;
