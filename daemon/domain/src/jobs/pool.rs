//! The pool of GPUs: running, claimed and stopping use of each.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::amount::MilliGpus;
use super::part::MemoryWithin;
use super::project::Affinity;
use super::size::Size;
use crate::admission::holds_latency;
use crate::compute::Latency;
use crate::cordon::Cordon;
use crate::id::GpuUuid;
use crate::units::Bytes;

/// A GPU that jobs can be bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolGpu {
    /// Index as NVML counts GPUs.
    pub index: u32,
    /// UUID as NVML reports it.
    pub uuid: GpuUuid,
    /// Island number; GPUs of the same island are connected by NVLink.
    pub island: u32,
    /// Memory that slices can have of it.
    pub capacity: Bytes,
    /// Part unavailable to jobs: slices of other owners, or all of it on a GPU that cannot be used.
    pub outside: MilliGpus,
    /// Operator's order that it takes no new members, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<Cordon>,
    /// Latency targets of the slices of other owners, in any order.
    pub targets: Vec<Latency>,
}

impl PoolGpu {
    /// Part unavailable to new members: all of a cordoned GPU.
    pub(super) const fn unavailable(&self) -> MilliGpus {
        if self.cordon.is_some() { MilliGpus::ONE } else { self.outside }
    }
}

/// Position of a GPU in the pool.
pub(super) type PoolIndex = usize;

/// All GPUs of the node, with the use that jobs make of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuPool {
    entries: Vec<PoolEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolEntry {
    pub(super) gpu: PoolGpu,
    /// Use by members in [`Phase::Running`](super::Phase::Running).
    pub(super) running: MilliGpus,
    /// Use promised to members in [`Phase::Claimed`](super::Phase::Claimed).
    pub(super) claimed: MilliGpus,
    /// Use by members in [`Phase::Stopping`](super::Phase::Stopping).
    pub(super) stopping: MilliGpus,
    /// Latency targets of members in any phase.
    pub(super) targets: Vec<Latency>,
}

/// Time at which room is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// At this decision, on GPUs with room left.
    Now,
    /// After all stopping members have exited.
    Soon,
}

impl PoolEntry {
    /// Part that is neither used, claimed nor unavailable.
    pub(super) const fn free(&self, when: When) -> MilliGpus {
        let soon = MilliGpus::ONE.less(self.gpu.unavailable()).less(self.running).less(self.claimed);
        match when {
            When::Soon => soon,
            When::Now => soon.less(self.stopping),
        }
    }

    /// Free part after all stopping members, and members using `gone`, have exited.
    pub(super) fn free_without(&self, gone: MilliGpus) -> MilliGpus {
        let taken = self.running.plus(self.claimed).less(gone).plus(self.gpu.unavailable());
        MilliGpus::ONE.less(taken)
    }

    /// Tests if the whole GPU is free.
    const fn is_empty(&self, when: When) -> bool {
        self.free(when).get() == MilliGpus::ONE.get()
    }

    /// Tests if a claim of this part can start now.
    pub(super) fn can_hold(&self, part: MilliGpus) -> bool {
        let taken = self.gpu.unavailable().plus(self.running).plus(self.stopping);
        taken.plus(part) <= MilliGpus::ONE
    }

    /// Tests if a latency target can be held beside those of all slices here.
    pub(super) fn can_target(&self, latency: Option<Latency>) -> bool {
        latency.is_none_or(|target| holds_latency(target, &[&self.targets[..], &self.gpu.targets].concat()))
    }
}

impl GpuPool {
    /// A pool of unused GPUs.
    pub fn new(gpus: Vec<PoolGpu>) -> Self {
        let none = MilliGpus::ZERO;
        let entry =
            |gpu| PoolEntry { gpu, running: none, claimed: none, stopping: none, targets: Vec::new() };
        Self { entries: gpus.into_iter().map(entry).collect() }
    }

    /// Number of GPUs, unavailable parts included.
    pub fn capacity(&self) -> MilliGpus {
        self.entries.iter().map(|_| MilliGpus::ONE).sum()
    }

    /// The GPUs, in the order of the pool.
    pub fn gpus(&self) -> impl Iterator<Item = &PoolGpu> {
        self.entries.iter().map(|entry| &entry.gpu)
    }

    pub(super) fn entry(&self, index: PoolIndex) -> &PoolEntry {
        &self.entries[index]
    }

    pub(super) fn entry_mut(&mut self, index: PoolIndex) -> &mut PoolEntry {
        &mut self.entries[index]
    }

    pub(super) fn index_of(&self, gpu: GpuUuid) -> Option<PoolIndex> {
        self.entries.iter().position(|entry| entry.gpu.uuid == gpu)
    }

    pub(super) fn uuids(&self, indices: &[PoolIndex]) -> Vec<GpuUuid> {
        indices.iter().map(|index| self.entries[*index].gpu.uuid).collect()
    }

    /// Sets the part of a GPU that is unavailable to jobs, and the latency targets of other slices there.
    ///
    /// Unknown GPUs are ignored.
    pub fn set_outside(&mut self, gpu: GpuUuid, outside: MilliGpus, targets: Vec<Latency>) {
        if let Some(index) = self.index_of(gpu) {
            let gpu = &mut self.entries[index].gpu;
            (gpu.outside, gpu.targets) = (outside, targets);
        }
    }

    /// Sets or removes the cordon of a GPU. Unknown GPUs are ignored.
    pub fn set_cordon(&mut self, gpu: GpuUuid, cordon: Option<Cordon>) {
        if let Some(index) = self.index_of(gpu) {
            self.entries[index].gpu.cordon = cordon;
        }
    }

    /// The pool without its cordons; `None` if there is none.
    pub(super) fn without_cordons(&self) -> Option<Self> {
        self.entries.iter().any(|entry| entry.gpu.cordon.is_some()).then(|| {
            let mut pool = self.clone();
            pool.entries.iter_mut().for_each(|entry| entry.gpu.cordon = None);
            pool
        })
    }

    /// The same GPUs without any use, target or cordon.
    pub(super) fn unused(&self) -> Self {
        let unused = |gpu: &PoolGpu| PoolGpu {
            outside: MilliGpus::ZERO,
            cordon: None,
            targets: Vec::new(),
            ..gpu.clone()
        };
        Self::new(self.gpus().map(unused).collect())
    }

    /// Promises these GPUs to a member that takes this part of each.
    pub(super) fn claim(&mut self, indices: &[PoolIndex], part: MilliGpus, latency: Option<Latency>) {
        for index in indices {
            let entry = &mut self.entries[*index];
            entry.claimed = entry.claimed.plus(part);
            entry.targets.extend(latency);
        }
    }

    /// Best fit for a member.
    ///
    /// For a fraction it is the fullest GPU with enough room, shared ones before empty ones; for whole
    /// GPUs the island with the fewest sufficient empty GPUs.
    pub(super) fn room(&self, size: Size, reach: &GpuConstraints<'_>, when: When) -> Option<Vec<PoolIndex>> {
        match size {
            Size::Part(_) => self.part_room(size.of_each(), reach, when),
            Size::Whole(count) => self.whole_room(count.get() as usize, reach, when),
        }
    }

    fn part_room(&self, part: MilliGpus, reach: &GpuConstraints<'_>, when: When) -> Option<Vec<PoolIndex>> {
        let empty = self.empty_of_islands(reach, when);
        let fits = self.reachable(reach).filter(|(_, entry)| entry.free(when) >= part);
        let snug = |(index, entry): &(PoolIndex, &PoolEntry)| {
            let neighbours =
                if entry.is_empty(when) { empty.get(&entry.gpu.island).map_or(0, Vec::len) } else { 0 };
            (entry.free(when), neighbours, *index)
        };
        fits.min_by_key(snug).map(|(index, _)| alloc::vec![index])
    }

    fn whole_room(&self, count: usize, reach: &GpuConstraints<'_>, when: When) -> Option<Vec<PoolIndex>> {
        let islands = self.empty_of_islands(reach, when);
        let enough = islands.into_iter().filter(|(_, indices)| indices.len() >= count);
        let (_, mut indices) = enough.min_by_key(|(island, indices)| (indices.len(), *island))?;
        indices.truncate(count);
        Some(indices)
    }

    /// Number of members, at most this many, for which there is room at once.
    pub(super) fn room_for(&self, size: Size, reach: &GpuConstraints<'_>, most: u32) -> u32 {
        let mut pool = self.clone();
        let mut place = |_: &u32| {
            let room = pool.room(size, reach, When::Now);
            room.map(|indices| pool.claim(&indices, size.of_each(), reach.latency)).is_some()
        };
        (0..most).find(|member| !place(member)).unwrap_or(most)
    }

    /// Largest room in one piece: free part of a GPU for a fraction, else empty GPUs of an island.
    pub(super) fn largest_room(&self, size: Size, reach: &GpuConstraints<'_>) -> MilliGpus {
        let largest = match size {
            Size::Part(_) => self.reachable(reach).map(|(_, entry)| entry.free(When::Now)).max(),
            Size::Whole(_) => {
                let islands = self.empty_of_islands(reach, When::Now);
                islands.values().map(|indices| indices.iter().map(|_| MilliGpus::ONE).sum()).max()
            }
        };
        largest.unwrap_or(MilliGpus::ZERO)
    }

    /// Empty GPUs within reach, by island.
    fn empty_of_islands(&self, reach: &GpuConstraints<'_>, when: When) -> BTreeMap<u32, Vec<PoolIndex>> {
        let empty = self.reachable(reach).filter(|(_, entry)| entry.is_empty(when));
        by_island(empty)
    }

    /// All GPUs within reach, by island.
    pub(super) fn islands(&self, reach: &GpuConstraints<'_>) -> BTreeMap<u32, Vec<PoolIndex>> {
        by_island(self.reachable(reach))
    }

    pub(super) fn reachable<'a>(
        &'a self,
        reach: &'a GpuConstraints<'_>,
    ) -> impl Iterator<Item = (PoolIndex, &'a PoolEntry)> {
        self.entries.iter().enumerate().filter(|(index, entry)| reach.includes(*index, entry))
    }
}

fn by_island<'a>(entries: impl Iterator<Item = (PoolIndex, &'a PoolEntry)>) -> BTreeMap<u32, Vec<PoolIndex>> {
    entries.fold(BTreeMap::new(), |mut islands: BTreeMap<u32, Vec<PoolIndex>>, (index, entry)| {
        islands.entry(entry.gpu.island).or_default().push(index);
        islands
    })
}

/// Constraints on the GPUs of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct GpuConstraints<'a> {
    /// NVML indices of the permitted GPUs; `None` permits all.
    pub(super) affinity: Option<&'a Affinity>,
    /// GPUs reserved for another job.
    pub(super) reserved: &'a [PoolIndex],
    /// Latency target of each member, if any.
    pub(super) latency: Option<Latency>,
    /// Memory that each GPU has to have within the size of a member, if it is given.
    pub(super) memory: Option<MemoryWithin>,
    /// The only GPUs that a parked member can return to.
    pub(super) only: Option<&'a [GpuUuid]>,
}

impl GpuConstraints<'_> {
    fn includes(&self, index: PoolIndex, entry: &PoolEntry) -> bool {
        !self.reserved.contains(&index)
            && self.affinity.is_none_or(|indices| indices.contains(&entry.gpu.index))
            && self.memory.is_none_or(|memory| memory.is_on(entry.gpu.capacity))
            && self.only.is_none_or(|only| only.contains(&entry.gpu.uuid))
            && entry.can_target(self.latency)
    }
}
