//! Saving and restoring the state of the quota scheduler.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::job::{Job, JobId, MemberId};
use super::pool::PoolIndex;
use super::scheduler::{Binding, GpuReservation, Phase, QuotaScheduler};
use crate::id::GpuUuid;

/// Saved binding of a member to its GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedBinding {
    /// Member that has the GPUs.
    pub member: MemberId,
    /// UUIDs of its GPUs, absent ones included.
    pub gpus: Vec<GpuUuid>,
    /// Phase of the member.
    pub phase: Phase,
    /// Sequence number of the binding.
    pub order: u64,
}

impl QuotaScheduler {
    /// The bindings of one job.
    pub fn saved_bindings(&self, job: JobId) -> Vec<SavedBinding> {
        self.members(job).map(|(member, binding)| self.save(member, binding)).collect()
    }

    /// The bindings of all jobs.
    pub fn all_saved_bindings(&self) -> Vec<SavedBinding> {
        let of_jobs =
            self.bindings.iter().filter(|(member, _)| !member.job.is_slice() && !member.job.is_request());
        of_jobs.map(|(member, binding)| self.save(*member, binding)).collect()
    }

    fn save(&self, member: MemberId, binding: &Binding) -> SavedBinding {
        SavedBinding { member, gpus: self.gpus_of(binding), phase: binding.phase, order: binding.order }
    }

    /// The job that GPUs are reserved for, and their UUIDs.
    pub fn reservation(&self) -> Option<(JobId, Vec<GpuUuid>)> {
        self.reserved.as_ref().map(|reserved| (reserved.job, self.pool.uuids(&reserved.indices)))
    }

    /// Restores a job without its bindings. Its project has to exist.
    pub fn restore_job(&mut self, id: JobId, job: Job) {
        let job = Job { placed: 0, ..job };
        let account = self.account_mut(&job.spec.project);
        account.names.insert(job.spec.name.clone(), id);
        self.enter_job(id, job);
        self.reserve_ids_below(JobId(id.0 + 1));
        self.update_queue(id);
    }

    /// Restores bindings of all jobs. Returns the bound members with an absent GPU: a running one keeps its
    /// GPUs until it exits, and the caller has to report the exit of one that does not run.
    pub fn restore_bindings(&mut self, mut saved: Vec<SavedBinding>) -> Vec<MemberId> {
        saved.sort_by_key(|saved| saved.order);
        saved.into_iter().filter_map(|saved| self.restore_binding(saved)).collect()
    }

    fn restore_binding(
        &mut self,
        SavedBinding { member, gpus, phase, .. }: SavedBinding,
    ) -> Option<MemberId> {
        let (seen, missing): (Vec<_>, Vec<_>) =
            gpus.into_iter().partition(|gpu| self.pool.index_of(*gpu).is_some());
        let lost = !missing.is_empty();
        let first = if phase == Phase::Stopping { Phase::Running } else { phase };
        self.bind(member, self.indices_of(&seen).unwrap_or_default(), first);
        if let Some(binding) = self.bindings.get_mut(&member) {
            binding.missing = missing;
        }
        match phase {
            Phase::Claimed if lost => self.requeue(member),
            Phase::Stopping => self.mark_stopping(member),
            Phase::Claimed | Phase::Running => {}
        }
        (lost && phase != Phase::Claimed).then_some(member)
    }

    /// Restores a reservation; drops it if one of the GPUs is absent.
    pub fn restore_reservation(&mut self, job: JobId, gpus: &[GpuUuid]) {
        self.reserved = self.indices_of(gpus).map(|indices| GpuReservation { job, indices });
    }

    fn indices_of(&self, gpus: &[GpuUuid]) -> Option<Vec<PoolIndex>> {
        gpus.iter().map(|gpu| self.pool.index_of(*gpu)).collect()
    }

    /// Id that the next submitted job gets.
    pub const fn next_job_id(&self) -> u64 {
        self.next_job
    }

    /// Raises the id of the next job, so that no id is used twice.
    pub fn reserve_ids_below(&mut self, next: JobId) {
        self.next_job = self.next_job.max(next.0);
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use proptest::prelude::*;

    use super::super::decision::Action;
    use super::super::job::JobKind;
    use super::super::pool::PoolGpu;
    use super::super::tests::{World, islands, spec};
    use super::*;

    fn restored(of: &QuotaScheduler) -> QuotaScheduler {
        let (scheduler, missing) = restored_on(of.pool.gpus().cloned().collect(), of);
        assert_eq!(missing, [], "a GPU is missing");
        scheduler
    }

    /// Restores onto other GPUs; also returns the members on absent ones.
    fn restored_on(gpus: Vec<PoolGpu>, of: &QuotaScheduler) -> (QuotaScheduler, Vec<MemberId>) {
        let mut scheduler = QuotaScheduler::new(gpus);
        for project in of.projects() {
            scheduler.set_project(project.clone(), true).unwrap();
        }
        of.jobs().iter().for_each(|(id, job)| scheduler.restore_job(*id, job.clone()));
        let missing = scheduler.restore_bindings(of.all_saved_bindings());
        if let Some((job, gpus)) = of.reservation() {
            scheduler.restore_reservation(job, &gpus);
        }
        (scheduler, missing)
    }

    /// The complete observable state.
    fn picture(scheduler: &QuotaScheduler) -> impl PartialEq + core::fmt::Debug {
        let bindings: Vec<_> = scheduler.jobs().keys().flat_map(|id| scheduler.saved_bindings(*id)).collect();
        let bindings: Vec<_> = bindings.into_iter().map(|saved| SavedBinding { order: 0, ..saved }).collect();
        let used: Vec<_> = scheduler.projects().map(|project| scheduler.used(&project.name)).collect();
        let waits: Vec<_> = scheduler.jobs().keys().map(|id| scheduler.wait(*id)).collect();
        (scheduler.jobs().clone(), bindings, used, waits, scheduler.pool.clone(), scheduler.reservation())
    }

    proptest! {
        #[test]
        fn restored_scheduler_equals_the_original_and_decides_alike(
            jobs in proptest::collection::vec((0..3usize, 0..4usize, any::<bool>()), 1..14),
            slow: bool,
        ) {
            let mut world = World::new(islands(2, 2), &[("a", "2"), ("b", "1"), ("c", "1")]);
            world.slow = slow;
            for (at, (project, gpus, non_preemptible)) in jobs.into_iter().enumerate() {
                let kind = if non_preemptible { JobKind::Interactive } else { JobKind::Training };
                let (project, gpus) = (["a", "b", "c"][project], ["0.3", "0.5", "1", "2"][gpus]);
                // Rejected submissions are irrelevant here.
                let _ = world.scheduler.submit(spec(project, &std::format!("j{at}"), gpus, kind));
                world.settle();
            }
            let mut again = restored(&world.scheduler);
            prop_assert_eq!(picture(&again), picture(&world.scheduler));
            let leaving: Vec<_> = world.scheduler.bindings.iter()
                .filter(|(_, binding)| binding.phase == Phase::Stopping).map(|(member, _)| *member).collect();
            for member in leaving {
                again.member_exited(member, super::super::Exit::Requeued);
                world.scheduler.member_exited(member, super::super::Exit::Requeued);
            }
            prop_assert_eq!(again.decide(), world.scheduler.decide());
            prop_assert_eq!(picture(&again), picture(&world.scheduler));
        }
    }

    /// Bindings and use of all GPUs.
    fn saved_bindings(scheduler: &QuotaScheduler) -> impl PartialEq + core::fmt::Debug {
        let mut saved = scheduler.all_saved_bindings();
        saved.iter_mut().for_each(|saved| saved.gpus.sort_unstable());
        let used: Vec<_> = scheduler.projects().map(|project| scheduler.used(&project.name)).collect();
        (
            scheduler.jobs().clone(),
            saved.into_iter().map(|saved| SavedBinding { order: 0, ..saved }).collect::<Vec<_>>(),
            used,
        )
    }

    proptest! {
        #[test]
        fn running_members_survive_a_temporary_loss_of_gpus(
            jobs in proptest::collection::vec((0..2usize, 0..4usize), 1..10),
            seen: [bool; 4],
        ) {
            let mut world = World::new(islands(2, 2), &[("a", "2"), ("b", "1")]);
            for (at, (project, gpus)) in jobs.into_iter().enumerate() {
                let (project, gpus) = (["a", "b"][project], ["0.3", "0.5", "1", "2"][gpus]);
                world.submit(project, &std::format!("j{at}"), gpus, JobKind::Training);
            }
            let here = world.scheduler.pool.gpus().filter(|gpu| seen[gpu.index as usize]);
            let (mut half, missing) = restored_on(here.cloned().collect(), &world.scheduler);
            prop_assert_eq!(saved_bindings(&half), saved_bindings(&world.scheduler));
            let (again, displaced) = restored_on(islands(2, 2), &half);
            prop_assert_eq!((saved_bindings(&again), displaced.len()), (saved_bindings(&world.scheduler), 0));
            for member in missing {
                half.member_exited(member, super::super::Exit::Requeued);
            }
            let missing = |saved: &SavedBinding| saved.gpus.iter().any(|gpu| half.pool.index_of(*gpu).is_none());
            prop_assert!(!half.all_saved_bindings().iter().any(missing));
        }
    }

    #[test]
    fn member_on_missing_gpu_stays_bound_until_exit() {
        let mut world = World::new(islands(1, 2), &[("a", "2")]);
        let id = world.submit("a", "j", "2", JobKind::Training);
        let member = MemberId { job: id, index: 0 };
        let (mut scheduler, missing) = restored_on(islands(1, 1), &world.scheduler);
        assert_eq!((missing, scheduler.binding(member)), (vec![member], world.scheduler.binding(member)));
        scheduler.submit(spec("a", "other", "0.5", JobKind::Training)).unwrap();
        assert_eq!(scheduler.decide(), [], "the half that is seen is taken");
        scheduler.member_exited(member, super::super::Exit::Requeued);
        let started = scheduler.decide();
        assert!(matches!(&started[..], [Action::Start { member, .. }] if member.job != id), "{started:?}");
        assert!(scheduler.wait(id).is_some(), "it needs two GPUs, and there is one");
    }

    #[test]
    fn claim_on_missing_gpu_is_requeued() {
        let mut world = World::new(islands(1, 2), &[("a", "1"), ("b", "1")]);
        world.slow = true;
        world.submit("b", "takes", "2", JobKind::Training);
        let id = world.submit("a", "waits", "1", JobKind::Training);
        let member = MemberId { job: id, index: 0 };
        assert_eq!(world.scheduler.binding(member).unwrap().0, Phase::Claimed);
        let (scheduler, missing) = restored_on(Vec::new(), &world.scheduler);
        assert!(!missing.contains(&member), "it has never run");
        assert_eq!(scheduler.binding(member), None);
        assert!(scheduler.wait(id).is_some());
    }
}
