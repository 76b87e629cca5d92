//! Reservation of GPUs that empty, for a candidate within its quota that finds no room.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::amount::MilliGpus;
use super::decision::JobCandidate;
use super::job::JobShape;
use super::pool::{GpuConstraints, PoolEntry, PoolIndex, When};
use super::scheduler::{GpuReservation, QuotaScheduler};
use super::size::Size;
use crate::compute::Latency;

impl QuotaScheduler {
    pub(super) fn drop_stale_reservation(&mut self) {
        let Some(GpuReservation { job, indices }) = &self.reserved else { return };
        let latency = self.jobs.get(job).and_then(|job| job.spec.latency);
        let is_apt = |entry: &PoolEntry| entry.can_target(latency) && entry.gpu.cordon.is_none();
        let apt = indices.iter().all(|index| is_apt(self.pool.entry(*index)));
        if !apt || !self.guaranteed().iter().any(|candidate| candidate.job() == *job) {
            self.reserved = None;
        }
    }

    /// Reserves GPUs for the first candidate within its quota that finds no room.
    ///
    /// Others within their quotas are spread over the GPUs then. The GPUs chosen are those that empty with the least delay,
    /// cordoned ones excepted. Returns false if nothing was reserved.
    pub(super) fn reserve_for_blocked(&mut self) -> bool {
        if self.reserved.is_some() {
            return false;
        }
        // One whose latency target no GPU can hold now reserves none, as emptying would not help it.
        let reserved = self.guaranteed().iter().find_map(|candidate| {
            let indices = self.soonest_empty(candidate)?;
            Some(GpuReservation { job: candidate.job(), indices })
        });
        self.reserved = reserved;
        self.reserved.is_some()
    }

    /// GPUs for all members of a candidate.
    fn soonest_empty(&self, candidate: &JobCandidate<'_>) -> Option<Vec<PoolIndex>> {
        if candidate.shape.parked.is_some() {
            return self.homes_of(candidate);
        }
        let (reach, count) = (self.reach(candidate, None), candidate.shape.size.gpus() as usize);
        let mut chosen = Vec::new();
        for _ in 0..groups_of(&candidate.shape) {
            let group = self.soonest_group(&reach, count, &chosen)?;
            chosen.extend(group);
        }
        Some(chosen)
    }

    /// The GPUs of parked members, if all of them can be used.
    fn homes_of(&self, candidate: &JobCandidate<'_>) -> Option<Vec<PoolIndex>> {
        let mut homes = BTreeSet::new();
        for member in self.members_of(candidate) {
            let reach = self.reach(candidate, Some(member));
            let open = self.pool.reachable(&reach).filter(|(_, entry)| entry.gpu.cordon.is_none());
            let own: Vec<PoolIndex> = open.map(|(index, _)| index).collect();
            if own.len() < candidate.shape.size.gpus() as usize {
                return None;
            }
            homes.extend(own);
        }
        Some(homes.into_iter().collect())
    }

    /// GPUs of one island, other than those that are chosen already.
    fn soonest_group(
        &self,
        reach: &GpuConstraints<'_>,
        count: usize,
        chosen: &[PoolIndex],
    ) -> Option<Vec<PoolIndex>> {
        let islands = self.pool.islands(reach).into_values();
        let groups = islands.filter_map(|mut indices| {
            indices.retain(|index| !chosen.contains(index) && self.pool.entry(*index).gpu.cordon.is_none());
            if indices.len() < count {
                return None;
            }
            indices.sort_by_cached_key(|index| (self.burden(*index), *index));
            indices.truncate(count);
            let burden = indices.iter().fold((0, 0), |(non_preemptible, all), index| {
                let (more, rest) = self.burden(*index);
                (non_preemptible + more, all + rest)
            });
            Some((burden, indices))
        });
        groups.min().map(|(_, indices)| indices)
    }

    /// Use of a GPU in thousandths: the part that no preemption frees, and all of it.
    fn burden(&self, index: PoolIndex) -> (u32, u32) {
        let entry = self.pool.entry(index);
        let non_preemptible = self.bindings.iter().filter(|(_, binding)| binding.indices.contains(&index));
        let non_preemptible = non_preemptible.filter_map(|(member, _)| self.jobs.get(&member.job));
        let non_preemptible =
            non_preemptible.filter(|job| job.spec.is_non_preemptible()).map(|job| job.spec.size.of_each());
        let stays = non_preemptible.sum::<MilliGpus>().plus(entry.gpu.outside);
        (stays.get(), MilliGpus::ONE.less(entry.free(When::Now)).get())
    }
}

/// Number of GPUs, or of groups of whole GPUs, that all members of this shape need.
fn groups_of(shape: &JobShape) -> u32 {
    let Size::Part(_) = shape.size else { return shape.members };
    let most = MilliGpus::ONE.get() / shape.size.of_each().get().max(1);
    let holds = |count: &u32| {
        let least = Latency::least_of(usize::try_from(*count).unwrap_or(usize::MAX));
        shape.latency.is_none_or(|target| target >= least)
    };
    shape.members.div_ceil((1..=most).rev().find(holds).unwrap_or(1))
}
