//! State of the node and its pods, as last observed.

use std::collections::BTreeMap;
use std::time::Duration;

use tranche_adapter::LastProblem;
use tranche_domain::id::{GpuUuid, NumaNode, SliceName};
use tranche_domain::pod::PodContainer;

use crate::bundle::Bundle;
use crate::health::NodeHeadroom;
use crate::offer::Offer;
use crate::placement::GpuDevice;
use crate::pod_devices::Owners;
use crate::release::Absences;

/// The node and its pods, as last observed.
#[derive(Debug, Default)]
pub(crate) struct ManagerState {
    /// All GPUs ever observed. A missing one counts as broken, and its devices stay listed.
    pub(crate) gpu_devices: BTreeMap<GpuUuid, GpuDevice>,
    pub(crate) offer: Offer,
    pub(crate) headroom: NodeHeadroom,
    pub(crate) absences: Absences,
    /// GPUs that failed and have not recovered, with the time from which they work.
    pub(crate) broken: BTreeMap<GpuUuid, Option<Duration>>,
    /// Pod of each slice, as the daemon has it.
    pub(crate) labels: BTreeMap<SliceName, PodContainer>,
    /// Devices of each pod, from the kubelet's last list; empty without one.
    pub(crate) owners: Owners,
    /// Last logged error of the kubelet, to log each once.
    pub(crate) problem: LastProblem,
}

impl ManagerState {
    /// Slices that the daemon has without their pod, or without its uid although that is known.
    pub(crate) fn unlabelled(&self) -> impl Iterator<Item = (&SliceName, PodContainer)> {
        let slices = self.headroom.slices.keys();
        let owned = slices.filter_map(|bundle| Some((bundle.slice(), self.owners.of(bundle)?)));
        owned.filter(|(name, pod)| {
            let label = self.labels.get(*name);
            let is_same = label.is_some_and(|label| label.to_string() == pod.to_string());
            !is_same || pod.uid.is_some() && label.is_some_and(|label| label.uid != pod.uid)
        })
    }

    /// Records broken GPUs, and holds back those that were broken within `recovery`.
    /// Each return of a flapping GPU would cost the programs on it.
    pub(crate) fn hold_back_broken(&mut self, now: Duration, recovery: Duration) {
        for uuid in self.gpu_devices.keys() {
            if self.headroom.gpus.get(uuid).is_none_or(|room| room.obstacle.is_some()) {
                self.broken.insert(*uuid, None);
            } else if let Some(well_since) = self.broken.get_mut(uuid) {
                // From the first view in which it works: the last in which it did not is earlier than that.
                well_since.get_or_insert(now);
            }
        }
        self.broken.retain(|_, well| well.is_none_or(|since| now.saturating_sub(since) < recovery));
        for (uuid, room) in &mut self.headroom.gpus {
            room.recovers = self.broken.contains_key(uuid);
        }
    }

    pub(crate) fn forget(&mut self, bundle: &Bundle) {
        self.headroom.slices.remove(bundle);
        self.absences.reset(bundle);
    }

    /// NUMA nodes of GPUs, missing ones included.
    pub(crate) fn numa_nodes(&self) -> BTreeMap<GpuUuid, NumaNode> {
        self.gpu_devices
            .values()
            .filter_map(|gpu_device| Some((gpu_device.uuid, gpu_device.numa_node?)))
            .collect()
    }
}
