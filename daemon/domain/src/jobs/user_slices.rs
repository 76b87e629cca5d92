//! Users' slices in the quota scheduler.
//!
//! Each is bound to its GPUs as a member of training is. What a project has within its quota is safe, slices and jobs
//! alike, in the order in which they came; what it borrowed is preempted for a job that is within its quota. A slice is
//! not restarted afterwards, so no job that borrows preempts one, nor does a job of its own project.
//!
//! A request for a slice that waits for room is a job in the queue as long as it is within the quota. It is granted when
//! its GPUs are empty. One that would borrow waits until there is room, and preempts nothing.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::amount::MilliGpus;
use super::job::{Job, JobId, JobKind, JobSpec, MemberId};
use super::name::ProjectName;
use super::pool::PoolIndex;
use super::project::{Project, ProjectAccount};
use super::scheduler::{Binding, Phase, QuotaScheduler};
use super::size::Size;
use super::user_slice::{UserRequest, UserSlice};
use crate::compute::{Latency, Priority};
use crate::id::SliceName;
use crate::node::KeptGpus;
use crate::units::Permille;

impl QuotaScheduler {
    /// The user's slice behind a member of a decision; `None` for a job's member.
    pub fn user_slice(&self, member: MemberId) -> Option<&UserSlice> {
        self.slices.slices.get(&member.job)
    }

    /// Users' slices, each with the project that it counts for.
    pub fn user_slices(&self) -> impl Iterator<Item = (&ProjectName, &UserSlice)> {
        let slices = self.slices.slices.iter();
        slices.filter_map(|(id, slice)| Some((&self.jobs.get(id)?.spec.project, slice)))
    }

    /// Member as which a user's slice counts.
    pub fn member_of_slice(&self, name: &SliceName) -> Option<MemberId> {
        self.slices.ids.get(name).map(|job| MemberId { job: *job, index: 0 })
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

    /// Enters a slice that is new or has changed. A changed one keeps its id, so that a decision about it stays valid.
    fn replace_user_slice(&mut self, known: Option<JobId>, slice: UserSlice) {
        let same = |id: &JobId| {
            self.slices.slices.get(id).is_some_and(|known| known.created_unix_ms == slice.created_unix_ms)
        };
        let Some(id) = known.filter(same) else {
            known.into_iter().for_each(|id| self.drop_user_slice(id));
            let id = self.slices.insert(slice.clone());
            return self.bind_user_slice(id, &slice);
        };
        let binding = self.bindings.get(&MemberId { job: id, index: 0 });
        let before = binding.map(|binding| (binding.order, binding.phase));
        self.release(MemberId { job: id, index: 0 });
        self.slices.slices.insert(id, slice.clone());
        self.bind_user_slice(id, &slice);
        if let Some((order, phase)) = before {
            let member = MemberId { job: id, index: 0 };
            if let Some(binding) = self.bindings.get_mut(&member) {
                binding.order = order;
            }
            if phase == Phase::Stopping {
                self.mark_stopping(member);
            }
        }
    }

    fn bind_user_slice(&mut self, id: JobId, slice: &UserSlice) {
        let spec = self.spec_of(slice.project.as_ref(), slice.size, slice.latency);
        let indices = slice.gpus.iter().filter_map(|gpu| self.pool.index_of(*gpu)).collect();
        self.jobs.insert(id, Job::new(spec));
        self.bind(MemberId { job: id, index: 0 }, indices, Phase::Running);
    }

    /// Specification by which a slice or request counts as a job.
    fn spec_of(&mut self, project: Option<&ProjectName>, size: Size, latency: Option<Latency>) -> JobSpec {
        let named = project.filter(|name| self.project(name).is_ok()).cloned();
        JobSpec {
            project: named.unwrap_or_else(|| self.default_account()),
            name: "slice".parse().expect("it is a valid name"),
            size,
            part: None,
            kind: JobKind::Training,
            preemptible: true,
            priority: Priority::DEFAULT,
            parallelism: NonZeroU32::MIN,
            completions: NonZeroU32::MIN,
            latency,
            gang: false,
            service: None,
        }
    }

    /// Replaces the requests that wait by those that wait now.
    pub fn set_user_requests(&mut self, now: Vec<UserRequest>) {
        let ids: BTreeSet<JobId> = now.iter().map(|request| JobId::of_request(request.number)).collect();
        let gone = self.slices.requests.keys().filter(|id| !ids.contains(id));
        for id in gone.copied().collect::<Vec<_>>() {
            self.drop_user_request(id);
        }
        for request in now {
            let id = JobId::of_request(request.number);
            if !self.slices.requests.contains_key(&id) {
                let spec = self.spec_of(request.project.as_ref(), request.size, request.latency);
                self.slices.requests.insert(id, request);
                self.jobs.insert(id, Job::new(spec));
                self.update_queue(id);
            }
        }
    }

    /// Number of the user's request behind a member of a decision; `None` for a job's member.
    pub fn user_request(&self, member: MemberId) -> Option<u64> {
        self.slices.requests.get(&member.job).map(|request| request.number)
    }

    fn drop_user_request(&mut self, id: JobId) {
        self.slices.requests.remove(&id);
        if let Some(job) = self.jobs.get_mut(&id) {
            job.deleted = true;
        }
        self.update_queue(id);
        self.release(MemberId { job: id, index: 0 });
        self.jobs.remove(&id);
    }

    pub(super) fn drop_user_slice(&mut self, id: JobId) {
        self.release(MemberId { job: id, index: 0 });
        self.jobs.remove(&id);
        self.slices.remove(id);
    }

    /// Drops the slices of a project that is removed. The next [`QuotaScheduler::set_user_slices`] binds them to the
    /// default project.
    pub(super) fn drop_user_slices_of(&mut self, project: &ProjectName) {
        let ids = self.slices.slices.keys().copied();
        let of_project = |id: &JobId| self.jobs.get(id).is_some_and(|job| job.spec.project == *project);
        let requests = self.slices.requests.keys().copied().filter(of_project).collect::<Vec<_>>();
        for id in ids.filter(of_project).collect::<Vec<_>>() {
            self.drop_user_slice(id);
        }
        requests.into_iter().for_each(|id| self.drop_user_request(id));
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
        let mut ids = self.slices.slices.keys().chain(self.slices.requests.keys());
        let is_used = ids.any(|id| self.jobs.get(id).is_some_and(|job| job.spec.project == name));
        if !is_used && self.accounts.get(&name).is_some_and(|account| account.implicit) {
            self.accounts.remove(&name);
        }
    }

    /// The default project that no administrator made, while slices count for it.
    pub fn implicit_project(&self) -> Option<&Project> {
        let account = self.accounts.get(&ProjectName::default_project())?;
        account.implicit.then_some(&account.project)
    }

    /// GPUs that are kept for jobs and granted requests.
    pub fn kept(&self) -> KeptGpus {
        let reserved = self.reserved.as_ref().map_or(&[][..], |reserved| &reserved.indices);
        let kept = |(index, gpu): (usize, &super::PoolGpu)| {
            let claimed = self.pool.entry(index).claimed.plus(self.granted(index));
            let kept = if reserved.contains(&index) { MilliGpus::ONE } else { claimed };
            (kept > MilliGpus::ZERO).then_some((gpu.uuid, permille(kept)))
        };
        let running = self.bindings.iter().filter(|(member, binding)| {
            binding.phase == Phase::Running && !member.job.is_slice() && !member.job.is_request()
        });
        let starting = running.filter_map(|(member, binding)| {
            let part = self.jobs.get(&member.job)?.spec.size.of_each();
            Some((*member, self.pool.uuids(&binding.indices), permille(part)))
        });
        KeptGpus {
            parts: self.pool.gpus().enumerate().filter_map(kept).collect(),
            starting: starting.collect(),
        }
    }

    /// Part of a GPU that is granted to requests whose slices are not there yet.
    fn granted(&self, index: PoolIndex) -> MilliGpus {
        let here = |binding: &Binding| binding.phase == Phase::Running && binding.indices.contains(&index);
        let requests = self.slices.requests.keys().filter_map(|id| {
            let binding = self.bindings.get(&MemberId { job: *id, index: 0 })?;
            here(binding).then(|| self.jobs.get(id))?
        });
        requests.map(|job| job.spec.size.of_each()).sum()
    }
}

fn permille(part: MilliGpus) -> Permille {
    Permille::try_from(part.get()).unwrap_or(Permille::WHOLE)
}
