//! State of the node and its pods, as last observed.

use std::collections::BTreeMap;
use std::time::Duration;

use tranche_domain::id::{GpuUuid, NumaNode, SliceName};
use tranche_domain::pod::PodContainer;

use crate::bundle::Bundle;
use crate::health::Scene;
use crate::offer::{Card, Offer};
use crate::pods::Owners;
use crate::release::Absences;

/// The node and its pods, as last observed.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// All GPUs ever observed. A missing one counts as broken, and its devices stay listed.
    pub(crate) cards: BTreeMap<GpuUuid, Card>,
    pub(crate) offer: Offer,
    pub(crate) scene: Scene,
    pub(crate) absences: Absences,
    /// Last failure of each GPU that has not recovered for long enough.
    pub(crate) broken: BTreeMap<GpuUuid, Duration>,
    /// Pod of each slice, as the daemon has it.
    pub(crate) labels: BTreeMap<SliceName, PodContainer>,
    /// Devices of each pod, from the kubelet's last list; empty without one.
    pub(crate) owners: Owners,
    /// Last logged error of the kubelet, to log each once.
    pub(crate) complaint: Option<String>,
}

impl Book {
    pub(crate) fn unlabelled(&self) -> impl Iterator<Item = (&SliceName, PodContainer)> {
        let slices = self.scene.slices.keys();
        let owned = slices.filter_map(|bundle| Some((bundle.slice(), self.owners.of(bundle)?)));
        owned.filter(|(name, pod)| self.labels.get(*name) != Some(pod))
    }

    /// Records broken GPUs, and holds back those that were broken within `recovery`, since each return of a
    /// flapping GPU would cost the programs on it.
    pub(crate) fn keep_back(&mut self, now: Duration, recovery: Duration) {
        for uuid in self.cards.keys() {
            if self.scene.gpus.get(uuid).is_none_or(|room| room.obstacle.is_some()) {
                self.broken.insert(*uuid, now);
            }
        }
        self.broken.retain(|_, seen| now.saturating_sub(*seen) < recovery);
        for (uuid, room) in &mut self.scene.gpus {
            room.recovers = self.broken.contains_key(uuid);
        }
    }

    pub(crate) fn forget(&mut self, bundle: &Bundle) {
        self.scene.slices.remove(bundle);
        self.absences.begin_anew(bundle);
    }

    /// NUMA nodes of GPUs, missing ones included.
    pub(crate) fn near(&self) -> BTreeMap<GpuUuid, NumaNode> {
        self.cards.values().filter_map(|card| Some((card.uuid, card.numa_node?))).collect()
    }
}
