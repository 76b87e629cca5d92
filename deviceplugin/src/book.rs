//! What the desk knows of the node and its pods.

use std::collections::BTreeMap;
use std::time::Duration;

use tranche_domain::id::{GpuUuid, NumaNode, SliceName};
use tranche_domain::pod::PodContainer;

use crate::bundle::Bundle;
use crate::health::Scene;
use crate::offer::{Card, Offer};
use crate::pods::Owners;
use crate::release::Absences;

/// The node and its pods, as of the last look.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Every GPU that was ever seen: one that is lost is broken, and its devices stay in the list.
    pub(crate) cards: BTreeMap<GpuUuid, Card>,
    pub(crate) offer: Offer,
    pub(crate) scene: Scene,
    pub(crate) absences: Absences,
    /// When each GPU was last seen broken that has not been well for long enough since.
    pub(crate) broken: BTreeMap<GpuUuid, Duration>,
    /// Whom each slice is for, as the daemon knows it.
    pub(crate) labels: BTreeMap<SliceName, PodContainer>,
    /// Who has what, as the kubelet said last; nothing if it did not.
    pub(crate) owners: Owners,
    /// What the kubelet's last silence was said to be, so that it is said once.
    pub(crate) complaint: Option<String>,
}

impl Book {
    pub(crate) fn unlabelled(&self) -> impl Iterator<Item = (&SliceName, PodContainer)> {
        let slices = self.scene.slices.keys();
        let owned = slices.filter_map(|bundle| Some((bundle.slice(), self.owners.of(bundle)?)));
        owned.filter(|(name, pod)| self.labels.get(*name) != Some(pod))
    }

    /// Takes in which GPUs are broken, and keeps those back that were within `recovery`. A GPU that comes and goes has each
    /// time taken the programs on it along.
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

    /// The NUMA nodes that GPUs are near to, also those that are lost.
    pub(crate) fn near(&self) -> BTreeMap<GpuUuid, NumaNode> {
        self.cards.values().filter_map(|card| Some((card.uuid, card.numa_node?))).collect()
    }
}
