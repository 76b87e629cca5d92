//! Which of the free devices a container had best get: several go on several GPUs, and parts fill GPUs up
//! before they open the next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tranche_domain::id::GpuUuid;

use crate::device::DeviceId;
use crate::health::Scene;

/// Chooses `count` of `available`, `must` among them, no two on one GPU. Fewer, if there are not as many GPUs:
/// what the kubelet adds then, allocation refuses.
pub fn preferred(scene: &Scene, available: &[DeviceId], must: &[DeviceId], count: usize) -> Vec<DeviceId> {
    let mut chosen = must.to_vec();
    let mut gpus: BTreeSet<GpuUuid> = must.iter().map(|device| device.gpu).collect();
    let in_use = in_use(scene);
    let mut rest: Vec<&DeviceId> = available.iter().filter(|device| !must.contains(device)).collect();
    rest.sort_by_key(|device| {
        (Reverse(in_use.get(&device.gpu).copied().unwrap_or(0)), free(scene, device), *device)
    });
    for device in rest {
        if chosen.len() < count && gpus.insert(device.gpu) {
            chosen.push(device.clone());
        }
    }
    chosen
}

/// How many devices of each GPU are in use.
fn in_use(scene: &Scene) -> BTreeMap<GpuUuid, usize> {
    let mut counts = BTreeMap::new();
    for device in scene.slices.keys() {
        *counts.entry(device.gpu).or_default() += 1;
    }
    counts
}

/// What is left of a device's GPU, in bytes; the tightest comes first.
fn free(scene: &Scene, device: &DeviceId) -> u64 {
    scene.gpus.get(&device.gpu).map_or(u64::MAX, |room| room.free.get())
}

#[cfg(test)]
mod tests;
