//! Users' slices in the quota scheduler.
//!
//! Each is bound to its GPUs as a member of training is. What a project has within its quota is safe, slices and jobs
//! alike, in the order in which they came; what it borrowed is preempted for a job that is within its quota. A slice is
//! not restarted afterwards, so no job that borrows preempts one, nor does a job of its own project.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::amount::MilliGpus;
use super::job::{Job, JobId, JobKind, JobSpec, MemberId};
use super::name::ProjectName;
use super::project::{Project, ProjectAccount};
use super::scheduler::{Phase, QuotaScheduler};
use super::user_slice::UserSlice;
use crate::compute::Priority;
use crate::id::{GpuUuid, SliceName};
use crate::units::Permille;

impl QuotaScheduler {
    /// The user's slice behind a member of a decision; `None` for a job's member.
    pub fn user_slice(&self, member: MemberId) -> Option<&UserSlice> {
        self.slices.slices.get(&member.job)
    }

    /// Replaces the users' slices by those that exist now.
    ///
    /// A changed slice keeps its place among those that are safe, and its phase.
    pub fn set_user_slices(&mut self, mut now: Vec<UserSlice>) {
        let names: BTreeSet<&SliceName> = now.iter().map(|slice| &slice.name).collect();
        let gone = self.slices.slices.iter().filter(|(_, known)| !names.contains(&known.name));
        for id in gone.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.drop_user_slice(id);
        }
        now.sort_by_key(|slice| slice.created_unix_ms);
        for slice in now {
            let known = self.slices.ids.get(&slice.name).copied();
            match known.filter(|id| self.slices.slices.get(id) == Some(&slice)) {
                Some(_) => {}
                None => self.replace_user_slice(known, slice),
            }
        }
        self.drop_idle_default();
    }

    fn replace_user_slice(&mut self, known: Option<JobId>, slice: UserSlice) {
        let same = |id: &JobId| {
            self.slices.slices.get(id).is_some_and(|known| known.created_unix_ms == slice.created_unix_ms)
        };
        let before = known.filter(same).and_then(|id| {
            let binding = self.bindings.get(&MemberId { job: id, index: 0 })?;
            Some((binding.order, binding.phase))
        });
        known.into_iter().for_each(|id| self.drop_user_slice(id));
        let member = self.bind_user_slice(slice);
        if let Some((order, phase)) = before {
            if let Some(binding) = self.bindings.get_mut(&member) {
                binding.order = order;
            }
            if phase == Phase::Stopping {
                self.mark_stopping(member);
            }
        }
    }

    fn bind_user_slice(&mut self, slice: UserSlice) -> MemberId {
        let named = slice.project.clone().filter(|name| self.project(name).is_ok());
        let project = named.unwrap_or_else(|| self.default_account());
        let spec = JobSpec {
            project,
            name: "slice".parse().expect("it is a valid name"),
            size: slice.size,
            kind: JobKind::Training,
            preemptible: true,
            priority: Priority::DEFAULT,
            parallelism: NonZeroU32::MIN,
            completions: NonZeroU32::MIN,
            latency: slice.latency,
            gang: false,
        };
        let indices = slice.gpus.iter().filter_map(|gpu| self.pool.index_of(*gpu)).collect();
        let member = MemberId { job: self.slices.insert(slice), index: 0 };
        self.jobs.insert(member.job, Job::new(spec));
        self.bind(member, indices, Phase::Running);
        member
    }

    fn drop_user_slice(&mut self, id: JobId) {
        self.release(MemberId { job: id, index: 0 });
        self.jobs.remove(&id);
        self.slices.remove(id);
    }

    /// Drops the slices of a project that is removed. The next [`QuotaScheduler::set_user_slices`] binds them to the
    /// default project.
    pub(super) fn drop_user_slices_of(&mut self, project: &ProjectName) {
        let ids = self.slices.slices.keys().copied();
        let of_project = |id: &JobId| self.jobs.get(id).is_some_and(|job| job.spec.project == *project);
        for id in ids.filter(of_project).collect::<Vec<_>>() {
            self.drop_user_slice(id);
        }
    }

    /// Name of the default project, whose account exists now. Unless an administrator made it, it has what the quotas
    /// of all others leave of the node.
    fn default_account(&mut self) -> ProjectName {
        let name = ProjectName::default_project();
        if !self.accounts.contains_key(&name) {
            let account = ProjectAccount::new(Project::new(name.clone(), MilliGpus::ZERO));
            self.accounts.insert(name.clone(), ProjectAccount { implicit: true, ..account });
            self.set_default_quota();
        }
        name
    }

    /// Sets the quota of a default project that no administrator made.
    pub(super) fn set_default_quota(&mut self) {
        let others = self.projects().map(|project| project.quota).sum();
        let rest = self.pool.capacity().less(others);
        let account = self.accounts.get_mut(&ProjectName::default_project());
        if let Some(account) = account.filter(|account| account.implicit) {
            account.project.quota = rest;
        }
    }

    fn drop_idle_default(&mut self) {
        let name = ProjectName::default_project();
        let is_used = self.slices.slices.keys().any(|id| self.jobs[id].spec.project == name);
        if !is_used && self.accounts.get(&name).is_some_and(|account| account.implicit) {
            self.accounts.remove(&name);
        }
    }

    /// The default project that no administrator made, while slices count for it.
    pub fn implicit_project(&self) -> Option<&Project> {
        let account = self.accounts.get(&ProjectName::default_project())?;
        account.implicit.then_some(&account.project)
    }

    /// Part of each GPU that is kept for jobs: claimed, or reserved while it empties.
    pub fn kept(&self) -> BTreeMap<GpuUuid, Permille> {
        let reserved = self.reserved.as_ref().map_or(&[][..], |reserved| &reserved.indices);
        let kept = |(index, gpu): (usize, &super::PoolGpu)| {
            let claimed = self.pool.entry(index).claimed;
            let kept = if reserved.contains(&index) { MilliGpus::ONE } else { claimed };
            let kept = Permille::try_from(kept.get()).unwrap_or(Permille::WHOLE);
            (kept > Permille::ZERO).then_some((gpu.uuid, kept))
        };
        self.pool.gpus().enumerate().filter_map(kept).collect()
    }
}
