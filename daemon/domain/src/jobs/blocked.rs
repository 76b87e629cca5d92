//! Reasons for which a job waits: the first of mates, quota, cordons and holders that is in its way.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::amount::MilliGpus;
use super::decision::JobCandidate;
use super::job::{Job, JobId, JobShape, MemberId};
use super::name::{JobName, ProjectName};
use super::part::MemoryWithin;
use super::pool::{GpuConstraints, PoolIndex};
use super::preemption::Preemptor;
use super::project::{ProjectAccount, QueueKey};
use super::scheduler::{Phase, QuotaScheduler};
use super::wait::{CordonedGpu, Holder, MOST_NAMED, Wait, WantedRoom};

impl QuotaScheduler {
    /// The reason for which no further member runs; `None` if none waits.
    pub fn wait(&self, id: JobId) -> Option<Wait> {
        let job = self.jobs.get(&id).filter(|job| !job.deleted)?;
        if let Some((claimed, _)) = self.members(id).find(|(_, binding)| binding.phase == Phase::Claimed) {
            return Some(Wait::Leaving(self.leaving_for(&self.claimed_with(claimed))));
        }
        let parked = self.returning_or_held(id).next();
        if parked.is_none() {
            job.pending()?;
        }
        if job.suspended {
            return Some(Wait::Suspended);
        }
        if !job.after.is_empty() {
            let before = job.after.iter().filter_map(|id| self.jobs.get(id));
            return Some(Wait::After(before.map(|job| job.spec.name.clone()).collect()));
        }
        let Some(shape) = self.waiting_shapes(id).into_iter().next() else {
            return Some(match job.spec.is_gang() {
                true => Wait::Regrouping(self.members(id).count() + job.recalled.len()),
                false => Wait::Parallelism(job.placed),
            });
        };
        let account = self.accounts.get(&job.spec.project)?;
        if shape.parked.is_none()
            && let Some(before) = self.before(account, &shape, id)
        {
            return Some(Wait::Behind(before));
        }
        let candidate = JobCandidate { account, shape, key: (Reverse(job.spec.priority), id) };
        Some(self.blocked(&candidate, job))
    }

    /// Preempted jobs and slices on the GPUs of claimed members.
    fn leaving_for(&self, claimed: &[MemberId]) -> Vec<Holder> {
        let places = claimed.iter().filter_map(|member| self.bindings.get(member));
        let indices: BTreeSet<PoolIndex> = places.flat_map(|place| &place.indices).copied().collect();
        self.holders_on(&indices, |phase| phase == Phase::Stopping)
    }

    fn holders_on(&self, indices: &BTreeSet<PoolIndex>, is_meant: impl Fn(Phase) -> bool) -> Vec<Holder> {
        let meant = self.bindings.iter().filter(|(_, binding)| is_meant(binding.phase));
        let here = meant.filter(|(_, binding)| binding.indices.iter().any(|index| indices.contains(index)));
        let holders: BTreeSet<Holder> = here.filter_map(|(member, _)| self.holder(*member)).collect();
        holders.into_iter().collect()
    }

    fn holder(&self, member: MemberId) -> Option<Holder> {
        match self.user_slice(member) {
            Some(slice) => Some(Holder::Slice(slice.name.clone(), slice.owner_uid)),
            None => {
                let spec = &self.jobs.get(&member.job)?.spec;
                Some(Holder::Job(spec.project.clone(), spec.name.clone()))
            }
        }
    }

    /// Jobs and slices of other projects that have most of the GPUs.
    fn largest_holders(&self, project: &ProjectName) -> Vec<Holder> {
        let mut sums: BTreeMap<JobId, (MilliGpus, MemberId)> = BTreeMap::new();
        for (member, _) in self.bindings.iter().filter(|(_, binding)| binding.phase == Phase::Running) {
            let Some(spec) = self.jobs.get(&member.job).map(|job| &job.spec) else { continue };
            if spec.project != *project {
                let sum = sums.entry(member.job).or_insert((MilliGpus::ZERO, *member));
                sum.0 = sum.0.plus(spec.size.total());
            }
        }
        let mut sums: Vec<_> = sums.into_values().collect();
        sums.sort_by_key(|(sum, member)| (Reverse(*sum), *member));
        sums.into_iter().take(MOST_NAMED).filter_map(|(_, member)| self.holder(member)).collect()
    }

    /// Name of the job of equal shape that comes first, if it is another.
    fn before(&self, account: &ProjectAccount, shape: &JobShape, id: JobId) -> Option<JobName> {
        let first: &QueueKey = account.queue.get(shape)?.first()?;
        let other = (first.1 != id).then(|| self.jobs.get(&first.1))?;
        other.map(|job| job.spec.name.clone())
    }

    /// The obstacle of a candidate that is first in its project.
    fn blocked(&self, candidate: &JobCandidate<'_>, job: &Job) -> Wait {
        let JobCandidate { account, shape, .. } = candidate;
        let quota = account.project.quota;
        if let Some(wait) = self.impossible(candidate) {
            return wait;
        }
        let is_guaranteed = account.is_guaranteed(shape);
        if !is_guaranteed && shape.non_preemptible {
            return Wait::NonPreemptibleQuota { non_preemptible: account.non_preemptible, quota };
        }
        if !is_guaranteed && account.project.weight() == MilliGpus::ZERO {
            return Wait::NoWeight { quota };
        }
        let cordoned = self.cordons_before(candidate);
        if !cordoned.is_empty() {
            return Wait::Cordoned(cordoned);
        }
        if shape.parked.is_some() {
            return self.wait_of_parked(candidate);
        }
        if let Some(reserved) = self.reserved.as_ref().filter(|reserved| reserved.job == candidate.job()) {
            let gpus = reserved.indices.iter().map(|index| self.pool.entry(*index).gpu.index).collect();
            return Wait::Emptying { gpus };
        }
        let holders = self.largest_holders(&account.project.name);
        let room = WantedRoom { size: job.spec.size, members: shape.members };
        match is_guaranteed {
            true => Wait::Scattered { room, holders },
            false => {
                Wait::NothingIdle { used: account.used, quota, room, idle: self.idle_for(candidate), holders }
            }
        }
    }

    /// Target or memory of a candidate that no GPU can hold.
    fn impossible(&self, candidate: &JobCandidate<'_>) -> Option<Wait> {
        let JobCandidate { account, shape, .. } = candidate;
        if shape.parked.is_some() {
            return None;
        }
        let affinity = account.project.affinity(shape.kind);
        let (latency, memory) = (shape.latency, shape.memory);
        let reach = GpuConstraints { affinity, reserved: &[], latency, memory, only: None };
        let count = shape.size.gpus() as usize;
        let held =
            |reach: &GpuConstraints<'_>| self.pool.islands(reach).values().any(|gpus| gpus.len() >= count);
        if held(&reach) {
            return None;
        }
        match shape.memory {
            Some(MemoryWithin { memory, .. }) if !held(&GpuConstraints { latency: None, ..reach }) => {
                Some(Wait::Memory { memory, size: shape.size })
            }
            _ => shape.latency.map(Wait::Latency),
        }
    }

    /// Cordoned GPUs that a candidate would have, if no GPU were cordoned.
    fn cordons_before(&self, candidate: &JobCandidate<'_>) -> Vec<CordonedGpu> {
        let Some(open) = self.pool.without_cordons() else { return Vec::new() };
        let preemptor = Preemptor { account: candidate.account, shape: candidate.shape };
        let Some(plan) = self.plan_for(candidate, &preemptor, &self.borrowers(), &open) else {
            return Vec::new();
        };
        let indices: BTreeSet<PoolIndex> =
            plan.members.into_iter().flat_map(|(_, indices)| indices).collect();
        let cordoned = |index: PoolIndex| {
            let gpu = &self.pool.entry(index).gpu;
            gpu.cordon.clone().map(|cordon| CordonedGpu { index: gpu.index, cordon })
        };
        indices.into_iter().filter_map(cordoned).collect()
    }

    fn wait_of_parked(&self, candidate: &JobCandidate<'_>) -> Wait {
        let members = self.members_of(candidate);
        let homes = members.iter().flat_map(|member| self.home(*member).unwrap_or_default());
        let indices: BTreeSet<PoolIndex> = homes.filter_map(|gpu| self.pool.index_of(*gpu)).collect();
        let mut holders = self.holders_on(&indices, |_| true);
        holders.truncate(MOST_NAMED);
        Wait::Parked {
            gpus: indices.iter().map(|index| self.pool.entry(*index).gpu.index).collect(),
            holders,
        }
    }

    /// Idle GPUs in one piece, or those of as many members of a gang as have room.
    fn idle_for(&self, candidate: &JobCandidate<'_>) -> MilliGpus {
        let reach = GpuConstraints { reserved: &[], ..self.reach(candidate, None) };
        let JobShape { size, members, .. } = candidate.shape;
        match members {
            1 => self.pool.largest_room(size, &reach),
            _ => size.total().times(self.pool.room_for(size, &reach, members)),
        }
    }
}
