//! Which devices may be given away: what is broken and what somebody else has are told apart.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use tranche_domain::fault::Xid;
use tranche_domain::id::GpuUuid;
use tranche_domain::units::{Bytes, Permille};
use tranche_domain::view::{GpuView, NodeView};

use crate::bundle::Bundle;
use crate::config::IgnoredXids;
use crate::device::DeviceId;
use crate::offer::Offer;
use crate::profile::Claim;

/// How long a GPU that was broken has to be well before its devices are given away again, by default.
pub const RECOVERY: Duration = Duration::from_secs(60);

/// The node as the daemon shows it, as far as devices are concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scene {
    /// The GPUs.
    pub gpus: BTreeMap<GpuUuid, Room>,
    /// The slices of containers, those of earlier configurations included, and whether a process is in each.
    pub slices: BTreeMap<Bundle, Occupied>,
}

/// Whether a process is in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupied {
    /// Somebody is there.
    Yes,
    /// Nobody is.
    No,
}

/// What is left of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// NVML index.
    pub index: u32,
    /// Memory promised to no slice.
    pub free: Bytes,
    /// Compute promised to no slice.
    pub free_compute: Permille,
    /// Why no slice may be put there, if so.
    pub obstacle: Option<String>,
    /// Who keeps further slices off it, since when and why, if anybody.
    pub cordon: Option<String>,
    /// How many processes use it that are in no slice.
    pub strangers: usize,
    /// A fault that the driver reported, that is not over and that counts.
    pub fault: Option<Xid>,
    /// It was broken, and has not been well for long enough since.
    pub recovers: bool,
}

/// What a device is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It may be given away, or is in use and works.
    Healthy,
    /// It works, but somebody has what it would need.
    Taken(Taken),
    /// Its GPU does not work, or may not be divided.
    Broken(Broken),
}

/// Who has what a device would need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Slices that are not of this offer, or with dynamic profiles other devices.
    BySlices,
    /// Processes in no slice; so many.
    ByStrangers(usize),
    /// An operator, who keeps further slices off its GPU.
    ByOperator(String),
}

/// What is wrong with a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The daemon does not answer, and nothing can be made or checked.
    NoDaemon,
    /// The daemon does not show it.
    Gone,
    /// No slice may be put there.
    Obstacle(String),
    /// The driver reported a fault.
    Fault(Xid),
    /// It was lost or could take no slice, and has not been well for a minute since.
    Recovers,
}

impl Health {
    /// Whether the kubelet may give the device to a pod.
    pub const fn is_healthy(&self) -> bool {
        matches!(self, Self::Healthy)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthy => f.write_str("healthy"),
            Self::Taken(Taken::BySlices) => f.write_str("taken: other slices have the room that it needs"),
            Self::Taken(Taken::ByStrangers(count)) => {
                write!(f, "taken: {count} process(es) outside any slice use its GPU")
            }
            Self::Taken(Taken::ByOperator(cordon)) => write!(f, "taken: its GPU is {cordon}"),
            Self::Broken(Broken::NoDaemon) => f.write_str("broken: tranched does not answer"),
            Self::Broken(Broken::Gone) => f.write_str("broken: tranched does not see its GPU"),
            Self::Broken(Broken::Obstacle(why)) => write!(f, "broken: {why}"),
            Self::Broken(Broken::Recovers) => {
                f.write_str("broken: its GPU has not been well for long enough")
            }
            Self::Broken(Broken::Fault(xid)) => write!(f, "broken: the driver reports {xid}"),
        }
    }
}

impl Scene {
    /// Reads the daemon's picture.
    pub fn of(node: &NodeView, ignored: &IgnoredXids) -> Self {
        let ours = node.slices.iter().filter_map(|slice| {
            let empty = slice.processes.is_empty() && slice.root_pids.is_empty();
            let occupied = if empty { Occupied::No } else { Occupied::Yes };
            let gpus = slice.devices.iter().map(|device| device.gpu_uuid);
            Some((Bundle::of_slice(&slice.name, gpus)?, occupied))
        });
        let room = |gpu: &GpuView| (gpu.uuid, Room::of(gpu, ignored));
        Self { gpus: node.gpus.iter().map(room).collect(), slices: ours.collect() }
    }

    /// The devices that are in use.
    pub fn in_use(&self) -> BTreeSet<&DeviceId> {
        self.slices.keys().flat_map(Bundle::devices).collect()
    }

    /// What each device of the offer is good for. A device in use stays healthy as long as its GPU does: only
    /// free ones are ever taken.
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

impl Room {
    fn of(gpu: &GpuView, ignored: &IgnoredXids) -> Self {
        Self {
            fault: gpu.faults.iter().map(|fault| fault.xid).find(|xid| !ignored.contains(*xid)),
            index: gpu.index,
            free: gpu.capacity.saturating_sub(gpu.committed),
            free_compute: Permille::WHOLE.saturating_sub(gpu.committed_compute),
            obstacle: gpu.obstacle().map(Into::into),
            cordon: gpu.cordon.as_ref().map(ToString::to_string),
            strangers: gpu.foreign.len(),
            recovers: false,
        }
    }

    /// Devices of a layout are promised side by side, so each healthy one uses up room for the next; dynamic
    /// ones compete for it, and whoever comes first has it.
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
        match () {
            () if self.strangers > 0 => Health::Taken(Taken::ByStrangers(self.strangers)),
            () if claim.memory > self.free || claim.compute > self.free_compute => {
                Health::Taken(Taken::BySlices)
            }
            () if dynamic => Health::Healthy,
            () => {
                self.free = self.free.saturating_sub(claim.memory);
                self.free_compute = self.free_compute.saturating_sub(claim.compute);
                Health::Healthy
            }
        }
    }
}

#[cfg(test)]
mod tests;
