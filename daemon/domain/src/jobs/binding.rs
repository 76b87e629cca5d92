//! Binding and release of GPUs: keeps the pool, the projects' accounts and the queues consistent.

use alloc::vec::Vec;

use super::amount::MilliGpus;
use super::job::MemberId;
use super::pool::{PoolEntry, PoolIndex};
use super::scheduler::{Binding, Phase, QuotaScheduler};
use crate::compute::Latency;

impl QuotaScheduler {
    /// Binds a member to GPUs and charges its project.
    pub(super) fn bind(&mut self, member: MemberId, indices: Vec<PoolIndex>, phase: Phase) {
        let order = self.next_order();
        let latency = self.latency_of(member);
        self.change_entries(member, &indices, |entry, part| {
            *sum(entry, phase) = sum(entry, phase).plus(part);
            entry.targets.extend(latency);
        });
        self.bindings.insert(member, Binding { indices, missing: Vec::new(), phase, order });
        self.charge(member, MilliGpus::plus);
        if let Some(job) = self.jobs.get_mut(&member.job) {
            job.take(member.index);
        }
        self.update_queue(member.job);
        if self.reserved.as_ref().is_some_and(|reserved| reserved.job == member.job) {
            self.reserved = None;
        }
    }

    /// Moves a claimed member to [`Phase::Running`].
    pub(super) fn mark_running(&mut self, member: MemberId) {
        self.enter_phase(member, Phase::Running);
    }

    /// Moves a member to [`Phase::Stopping`]: its project is not charged for it any more.
    pub(super) fn mark_stopping(&mut self, member: MemberId) {
        self.enter_phase(member, Phase::Stopping);
        self.charge(member, MilliGpus::less);
    }

    /// Takes back [`Self::mark_stopping`]. The member counts as bound anew, after those that were bound meanwhile.
    pub(super) fn mark_staying(&mut self, member: MemberId) {
        self.enter_phase(member, Phase::Running);
        self.charge(member, MilliGpus::plus);
        let order = self.next_order();
        if let Some(binding) = self.bindings.get_mut(&member) {
            binding.order = order;
        }
    }

    /// Releases the claim of a member and requeues it.
    pub(super) fn requeue(&mut self, member: MemberId) {
        self.release(member);
        if let Some(job) =
            self.jobs.get_mut(&member.job).filter(|job| !job.parked.contains_key(&member.index))
        {
            job.again.insert(member.index);
        }
        self.update_queue(member.job);
    }

    /// Releases the GPUs of a member in any phase.
    pub(super) fn release(&mut self, member: MemberId) {
        let Some(binding) = self.bindings.get(&member).cloned() else { return };
        if binding.phase != Phase::Stopping {
            self.charge(member, MilliGpus::less);
        }
        let phase = binding.phase;
        let latency = self.latency_of(member);
        self.change_entries(member, &binding.indices, |entry, part| {
            *sum(entry, phase) = sum(entry, phase).less(part);
            let own = entry.targets.iter().position(|target| Some(*target) == latency);
            own.map(|at| entry.targets.swap_remove(at));
        });
        self.bindings.remove(&member);
        if let Some(job) = self.jobs.get_mut(&member.job) {
            job.placed -= 1;
        }
    }

    fn latency_of(&self, member: MemberId) -> Option<Latency> {
        self.jobs.get(&member.job)?.spec.latency
    }

    fn enter_phase(&mut self, member: MemberId, phase: Phase) {
        let Some(binding) = self.bindings.get_mut(&member) else { return };
        let (before, indices) = (core::mem::replace(&mut binding.phase, phase), binding.indices.clone());
        self.change_entries(member, &indices, |entry, part| {
            *sum(entry, before) = sum(entry, before).less(part);
            *sum(entry, phase) = sum(entry, phase).plus(part);
        });
    }

    fn change_entries(
        &mut self,
        member: MemberId,
        indices: &[PoolIndex],
        change: impl Fn(&mut PoolEntry, MilliGpus),
    ) {
        let Some(job) = self.jobs.get(&member.job) else { return };
        let part = job.spec.size.of_each();
        for index in indices {
            change(self.pool.entry_mut(*index), part);
        }
    }

    /// Adds a member to the use of its project, or subtracts it, by `change`.
    fn charge(&mut self, member: MemberId, change: impl Fn(MilliGpus, MilliGpus) -> MilliGpus) {
        let Some(job) = self.jobs.get(&member.job) else { return };
        let (project, size, non_preemptible) =
            (job.spec.project.clone(), job.spec.size.total(), job.spec.is_non_preemptible());
        let account = self.account_mut(&project);
        account.used = change(account.used, size);
        if non_preemptible {
            account.non_preemptible = change(account.non_preemptible, size);
        }
    }
}

fn sum(entry: &mut PoolEntry, phase: Phase) -> &mut MilliGpus {
    match phase {
        Phase::Claimed => &mut entry.claimed,
        Phase::Running => &mut entry.running,
        Phase::Stopping => &mut entry.stopping,
    }
}
