//! Gangs: jobs whose members start, return and leave their GPUs together.
//!
//! Laws, of the members of a gang that have not ended:
//! - After each decision all of them have GPUs and run, or wait for the GPUs of all to empty; or none does.
//! - They start, or return from host memory, in one decision. None starts while a mate is leaving.
//! - A preemption takes all of them. Where one leaves by itself, its mates are recalled.
//! - They continue where they were together: where one starts over, none stays parked.

use alloc::vec::Vec;

use super::decision::{Action, JobCandidate};
use super::job::{Job, JobId, JobShape, MemberId};
use super::scheduler::{Binding, Phase, QuotaScheduler};

impl QuotaScheduler {
    /// Tests if the members of a job start, return and leave together.
    pub fn is_gang(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| job.spec.is_gang())
    }

    /// Marks a running member of a gang as stopping, whose start has failed. Its mates are recalled by the next decision.
    pub fn member_leaves(&mut self, member: MemberId) {
        let runs = self.bindings.get(&member).is_some_and(|binding| binding.phase == Phase::Running);
        if runs && self.is_gang(member.job) {
            self.mark_stopping(member);
            self.update_queue(member.job);
        }
    }

    /// The bound members of a job without those that are stopping.
    pub(super) fn staying_members(&self, id: JobId) -> impl Iterator<Item = (MemberId, &Binding)> + Clone {
        self.members(id).filter(|(_, binding)| binding.phase != Phase::Stopping)
    }

    /// A claimed member with the claimed members of its gang; empty if it has no claim.
    pub(super) fn claimed_with(&self, member: MemberId) -> Vec<MemberId> {
        let is_claimed = |binding: &Binding| binding.phase == Phase::Claimed;
        match self.bindings.get(&member) {
            Some(binding) if !is_claimed(binding) => Vec::new(),
            None => Vec::new(),
            Some(_) if !self.is_gang(member.job) => alloc::vec![member],
            Some(_) => {
                let claimed = self.members(member.job).filter(|(_, binding)| is_claimed(binding));
                claimed.map(|(member, _)| member).collect()
            }
        }
    }

    /// Shapes in which a job waits in its project's queue.
    pub(super) fn waiting_shapes(&self, id: JobId) -> Vec<JobShape> {
        let Some(job) = self.jobs.get(&id) else { return Vec::new() };
        let shape = JobShape { request: id.is_request(), ..job.spec.shape() };
        if job.spec.is_gang() {
            return gang_shape(id, job, shape).into_iter().collect();
        }
        let parked = self.returning(id).into_iter();
        let parked = parked.map(|member| JobShape { parked: Some(member), ..shape });
        parked.chain(job.next().map(|_| shape)).collect()
    }

    /// Members that a candidate stands for: one, or all of a gang.
    pub(super) fn members_of(&self, candidate: &JobCandidate<'_>) -> Vec<MemberId> {
        let id = candidate.job();
        let Some(job) = self.jobs.get(&id) else { return Vec::new() };
        let member = |index: u32| MemberId { job: id, index };
        match (job.spec.is_gang(), candidate.shape.parked) {
            (true, Some(_)) => job.parked.keys().copied().map(member).collect(),
            (true, None) => job.all_pending().map(member).collect(),
            (false, Some(parked)) => alloc::vec![parked],
            (false, None) => job.next().map(member).into_iter().collect(),
        }
    }

    /// Recalls the members of gangs of which a mate is not there.
    pub(super) fn recall_mates(&mut self, actions: &mut Vec<Action>) {
        let begun = |job: &Job| (job.placed > 0 || !job.parked.is_empty()) && !job.deleted;
        let gangs = self.gangs.iter().filter(|id| self.jobs.get(id).is_some_and(begun));
        for id in gangs.copied().collect::<Vec<_>>() {
            self.recall_mates_of(id, actions);
        }
    }

    fn recall_mates_of(&mut self, id: JobId, actions: &mut Vec<Action>) {
        let Some(job) = self.jobs.get(&id) else { return };
        let starts_over = job.all_pending().next().map(|index| MemberId { job: id, index });
        let away = self.returning_or_held(id).next();
        let leaving = self.members(id).find(|(_, binding)| binding.phase == Phase::Stopping);
        let leaving = leaving.map(|(member, _)| member);
        let Some(mate) = starts_over.or(leaving).or(away) else { return };
        let staying: Vec<(MemberId, Phase)> =
            self.staying_members(id).map(|(member, binding)| (member, binding.phase)).collect();
        for (member, phase) in staying {
            if phase == Phase::Claimed {
                self.requeue(member);
            } else {
                self.mark_stopping(member);
                let continues = starts_over.is_none() && leaving.is_none();
                actions.push(Action::Recall { member, mate, continues });
            }
        }
        if starts_over.is_some() {
            self.recall_parked(id, mate, actions);
        }
        self.update_queue(id);
    }

    /// Has the parked members of a gang exit, once each.
    fn recall_parked(&mut self, id: JobId, mate: MemberId, actions: &mut Vec<Action>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        for index in job.parked.keys() {
            if job.recalled.insert(*index) {
                let member = MemberId { job: id, index: *index };
                actions.push(Action::Recall { member, mate, continues: false });
            }
        }
    }
}

/// Shape of a gang, all members of which can start or return once there is room.
fn gang_shape(id: JobId, job: &Job, shape: JobShape) -> Option<JobShape> {
    if job.is_held() || job.placed > 0 || !job.recalled.is_empty() {
        return None;
    }
    let (pending, first) = (job.all_pending().count(), job.parked.keys().next());
    let (members, parked) = match first {
        Some(first) if pending == 0 => (job.parked.len(), Some(MemberId { job: id, index: *first })),
        None if pending > 0 => (pending, None),
        _ => return None,
    };
    Some(JobShape { members: u32::try_from(members).unwrap_or(u32::MAX), parked, ..shape })
}
