//! Which of the free devices a container had best get: several go on several GPUs, and parts fill GPUs up
//! before they open the next.

use std::collections::BTreeSet;

use tranche_domain::id::GpuUuid;

use crate::device::DeviceId;
use crate::health::Scene;

/// Chooses `count` of `available`, `must` among them, no two on one GPU. Fewer, if there are not as many GPUs:
/// what the kubelet adds then, allocation refuses.
pub fn preferred(scene: &Scene, available: &[DeviceId], must: &[DeviceId], count: usize) -> Vec<DeviceId> {
    let mut chosen = must.to_vec();
    let mut gpus: BTreeSet<GpuUuid> = must.iter().map(|device| device.gpu).collect();
    let in_use: BTreeSet<GpuUuid> = scene.in_use().into_iter().map(|device| device.gpu).collect();
    let mut rest: Vec<&DeviceId> = available.iter().filter(|device| !must.contains(device)).collect();
    rest.sort_by_key(|device| (!in_use.contains(&device.gpu), tightness(scene, device), *device));
    for device in rest {
        if chosen.len() < count && gpus.insert(device.gpu) {
            chosen.push(device.clone());
        }
    }
    chosen
}

/// What is left of a device's GPU in bytes, and its index: the tightest comes first, then the lowest.
fn tightness(scene: &Scene, device: &DeviceId) -> (u64, u32) {
    scene.gpus.get(&device.gpu).map_or((u64::MAX, u32::MAX), |room| (room.free.get(), room.index))
}

#[cfg(test)]
mod tests;
