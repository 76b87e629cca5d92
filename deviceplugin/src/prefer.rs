//! Preferred allocation: several devices on different GPUs, and partly used GPUs before empty ones.

use std::collections::BTreeSet;

use tranche_domain::id::GpuUuid;

use crate::device::DeviceId;
use crate::health::NodeHeadroom;

/// Selects `count` of `available`, including `must`, each on another GPU. Selects fewer if there are not
/// enough GPUs; the kubelet's additions are then rejected by the allocation.
pub fn preferred(
    headroom: &NodeHeadroom,
    available: &[DeviceId],
    must: &[DeviceId],
    count: usize,
) -> Vec<DeviceId> {
    let mut chosen = must.to_vec();
    let mut gpus: BTreeSet<GpuUuid> = must.iter().map(|device| device.gpu).collect();
    let in_use: BTreeSet<GpuUuid> = headroom.in_use().into_iter().map(|device| device.gpu).collect();
    let mut rest: Vec<&DeviceId> = available.iter().filter(|device| !must.contains(device)).collect();
    rest.sort_by_key(|device| (!in_use.contains(&device.gpu), tightness(headroom, device), *device));
    for device in rest {
        if chosen.len() < count && gpus.insert(device.gpu) {
            chosen.push(device.clone());
        }
    }
    chosen
}

/// Sort key: free memory of the device's GPU in bytes, then its index.
fn tightness(headroom: &NodeHeadroom, device: &DeviceId) -> (u64, u32) {
    headroom.gpus.get(&device.gpu).map_or((u64::MAX, u32::MAX), |room| (room.free.get(), room.index))
}

#[cfg(test)]
mod tests;
