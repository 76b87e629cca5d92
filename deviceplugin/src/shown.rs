//! What the kubelet is shown of the devices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tranche_domain::id::{GpuUuid, NumaNode};

use crate::device::DeviceId;
use crate::health::Health;

/// The devices as the kubelet is told of them.
pub(crate) type Picture = Arc<Shown>;

/// What is shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// What every device is good for.
    pub(crate) health: BTreeMap<DeviceId, Health>,
    /// The NUMA node that each GPU is near to, of those of which that is known.
    pub(crate) numa: BTreeMap<GpuUuid, NumaNode>,
    /// The devices that a container has.
    pub(crate) in_use: BTreeSet<DeviceId>,
    /// Whether the daemon answered.
    pub(crate) daemon: bool,
}

impl Shown {
    /// The operator is told of each device that has changed.
    pub(crate) fn tell_after(&self, before: &Self) {
        for (device, health) in &self.health {
            match (before.health.get(device), health) {
                (Some(was), is) if was == is => {}
                (None, Health::Healthy) => {}
                (_, Health::Healthy) => tracing::info!(%device, "can be had again"),
                (_, Health::Taken(_)) => tracing::info!(%device, %health),
                (_, Health::Broken(_)) => tracing::warn!(%device, %health),
            }
        }
    }
}
