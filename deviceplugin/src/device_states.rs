//! Published states of devices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tranche_domain::id::{GpuUuid, NumaNode};

use crate::device::DeviceId;
use crate::health::Health;

/// Device states, shared by the services of all profiles.
pub(crate) type SharedStates = Arc<DeviceStates>;

/// Device states as published to the kubelet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceStates {
    /// Health of each device.
    pub(crate) health: BTreeMap<DeviceId, Health>,
    /// NUMA node of each GPU, where known.
    pub(crate) numa: BTreeMap<GpuUuid, NumaNode>,
    /// Devices allocated to containers.
    pub(crate) in_use: BTreeSet<DeviceId>,
    /// True if the daemon answered.
    pub(crate) daemon: bool,
}

impl DeviceStates {
    /// Logs each device whose state changed.
    pub(crate) fn log_changes(&self, before: &Self) {
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
