//! Parked members: preempted or suspended with their device memory in host memory.
//!
//! Laws:
//! - A parked member has no GPU, and its project is not charged for it.
//! - It returns to its own GPUs alone, in the order of its queue, with a claim as strong as that of a member that starts.
//! - Its job is not over before it has exited.
//! - The members of a gang return together.

use alloc::vec::Vec;

use super::decision::Action;
use super::job::{JobId, MemberId};
use super::scheduler::QuotaScheduler;
use crate::id::GpuUuid;

impl QuotaScheduler {
    /// Releases the GPUs of a bound member, whose device memory lies in host memory now. It goes back to its queue.
    pub fn member_parked(&mut self, member: MemberId) {
        let Some(binding) = self.bindings.get(&member) else { return };
        let gpus = self.gpus_of(binding);
        self.release(member);
        if let Some(job) = self.jobs.get_mut(&member.job) {
            job.parked.insert(member.index, gpus);
        }
        self.update_queue(member.job);
    }

    /// Tests if a member is parked, and no decision has brought it back.
    pub fn is_parked(&self, member: MemberId) -> bool {
        self.home(member).is_some()
    }

    /// The parked members of all jobs.
    pub fn parked(&self) -> impl Iterator<Item = MemberId> {
        self.jobs
            .iter()
            .flat_map(|(job, of)| of.parked.keys().map(|index| MemberId { job: *job, index: *index }))
    }

    /// UUIDs of the GPUs that a parked member returns to.
    pub fn home(&self, member: MemberId) -> Option<&[GpuUuid]> {
        self.jobs.get(&member.job)?.parked.get(&member.index).map(Vec::as_slice)
    }

    /// Tests if a parked member would start now if it could start on any GPU.
    pub fn starts_elsewhere(&self, member: MemberId) -> bool {
        let mut other = self.clone();
        let Some(job) = other.jobs.get_mut(&member.job) else { return false };
        if !job.parked.contains_key(&member.index) {
            return false;
        }
        // A gang starts over as a whole.
        let others = |index: &u32| job.spec.is_gang() || *index == member.index;
        let again: Vec<u32> = job.parked.keys().copied().filter(others).collect();
        job.parked.retain(|index, _| !again.contains(index));
        job.again.extend(again);
        other.update_queue(member.job);
        let starts =
            |action: &Action| matches!(action, Action::Start { member: started, .. } if *started == member);
        other.decide().iter().any(starts)
    }

    /// Members of a job that wait to return.
    pub(super) fn returning(&self, id: JobId) -> Vec<MemberId> {
        match self.jobs.get(&id) {
            Some(job) if !job.is_held() => self.returning_or_held(id).collect(),
            _ => Vec::new(),
        }
    }

    /// Members of a job that are parked without a claim.
    pub(super) fn returning_or_held(&self, id: JobId) -> impl Iterator<Item = MemberId> {
        let parked = self.jobs.get(&id).into_iter().flat_map(|job| job.parked.keys());
        let members = parked.map(move |index| MemberId { job: id, index: *index });
        members.filter(|member| !self.bindings.contains_key(member))
    }

    /// Ends the mark of a member that runs again; false if it was not parked.
    pub(super) fn forget_parked(&mut self, member: MemberId) -> bool {
        let was =
            self.jobs.get_mut(&member.job).is_some_and(|job| job.parked.remove(&member.index).is_some());
        self.update_queue(member.job);
        was
    }
}
