//! State of the quota scheduler, and the operations that change it from outside.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::amount::MilliGpus;
use super::job::{Job, JobId, JobShape, JobSpec, MemberId};
use super::name::{JobName, ProjectName};
use super::pool::{GpuPool, PoolGpu, PoolIndex};
use super::project::{IdlePolicy, Project, ProjectAccount, ProjectRefusal, QueueKey};
use super::refusal::JobRefusal;
use super::user_slice::UserSlices;
use crate::compute::Latency;
use crate::cordon::Cordon;
use crate::id::GpuUuid;

/// Projects, jobs and bindings of one node. [`QuotaScheduler::decide`] makes the decisions.
#[derive(Clone, Debug, Default)]
pub struct QuotaScheduler {
    pub(super) pool: GpuPool,
    pub(super) accounts: BTreeMap<ProjectName, ProjectAccount>,
    pub(super) jobs: BTreeMap<JobId, Job>,
    /// Those of the jobs that are gangs.
    pub(super) gangs: BTreeSet<JobId>,
    /// Those of the jobs that start after others.
    successors: BTreeSet<JobId>,
    pub(super) bindings: BTreeMap<MemberId, Binding>,
    pub(super) reserved: Option<GpuReservation>,
    pub(super) slices: UserSlices,
    /// Idle members of projects whose idle members are preempted first.
    pub(super) idle: BTreeSet<MemberId>,
    pub(super) next_job: u64,
    next_order: u64,
}

/// GPUs kept free, as they empty, for a job within its quota for which no preemption makes room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GpuReservation {
    pub(super) job: JobId,
    pub(super) indices: Vec<PoolIndex>,
}

/// GPUs assigned to a member of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub(super) indices: Vec<PoolIndex>,
    /// UUIDs of bound GPUs that are absent from the pool.
    pub(super) missing: Vec<GpuUuid>,
    /// Progress of the member on these GPUs.
    pub phase: Phase,
    /// Sequence number of the binding; a higher one was assigned later.
    pub(super) order: u64,
}

/// Progress of a bound member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The GPUs are assigned, but not yet empty.
    Claimed,
    /// The member occupies the GPUs.
    Running,
    /// The member was stopped and has not exited yet.
    Stopping,
}

/// Outcome of a member's exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The member ran to its end.
    Completed,
    /// The member has to start again: it was preempted, or failed with retries left.
    Requeued,
}

impl QuotaScheduler {
    /// A scheduler of these GPUs, without projects.
    pub fn new(gpus: Vec<PoolGpu>) -> Self {
        Self { pool: GpuPool::new(gpus), ..Self::default() }
    }

    /// The pool of GPUs.
    pub const fn pool(&self) -> &GpuPool {
        &self.pool
    }

    /// Sets the part of a GPU that is unavailable to jobs, and the latency targets of other slices there.
    pub fn set_outside(&mut self, gpu: GpuUuid, outside: MilliGpus, targets: Vec<Latency>) {
        self.pool.set_outside(gpu, outside, targets);
    }

    /// Sets or removes the cordon of a GPU.
    pub fn set_cordon(&mut self, gpu: GpuUuid, cordon: Option<Cordon>) {
        self.pool.set_cordon(gpu, cordon);
    }

    // Projects

    /// All projects that administrators made, by name.
    pub fn projects(&self) -> impl Iterator<Item = &Project> {
        self.accounts.values().filter(|account| !account.implicit).map(|account| &account.project)
    }

    /// The project with this name.
    ///
    /// # Errors
    /// If no administrator made a project with that name.
    pub fn project(&self, name: &ProjectName) -> Result<&Project, ProjectRefusal> {
        match self.accounts.get(name) {
            Some(account) if account.implicit => Err(ProjectRefusal::Implicit(name.clone())),
            Some(account) => Ok(&account.project),
            None => Err(ProjectRefusal::Unknown(name.clone())),
        }
    }

    /// Quota of a project, that of the implicit one included.
    pub fn quota(&self, name: &ProjectName) -> Option<MilliGpus> {
        self.accounts.get(name).map(|account| account.project.quota)
    }

    /// Policy of a project for what is idle.
    pub fn idle_policy(&self, name: &ProjectName) -> IdlePolicy {
        self.accounts.get(name).map(|account| account.project.idle_policy).unwrap_or_default()
    }

    /// Replaces the idle members that are preempted before others.
    pub fn set_idle(&mut self, idle: BTreeSet<MemberId>) {
        self.idle = idle;
    }

    /// GPUs used by a project, members in phase [`Phase::Stopping`] not counted.
    pub fn used(&self, name: &ProjectName) -> MilliGpus {
        self.accounts.get(name).map_or(MilliGpus::ZERO, |account| account.used)
    }

    /// Number of a project's jobs that wait although they are within its quota.
    pub fn queued_within_quota(&self, name: &ProjectName) -> usize {
        let Some(account) = self.accounts.get(name) else { return 0 };
        let owed = |shape: &JobShape| !shape.request && account.is_guaranteed(shape);
        let queues = account.queue.iter().filter(|(shape, _)| owed(shape));
        queues.map(|(_, keys)| keys.len()).sum()
    }

    /// Creates or replaces a project.
    ///
    /// # Errors
    /// If the sum of all quotas would exceed the node's capacity and `beyond_capacity` is false.
    pub fn set_project(&mut self, project: Project, beyond_capacity: bool) -> Result<(), ProjectRefusal> {
        let others = self.projects().filter(|other| other.name != project.name);
        let sum = others.map(|other| other.quota).sum::<MilliGpus>().plus(project.quota);
        let capacity = self.pool.capacity();
        if sum > capacity && !beyond_capacity {
            return Err(ProjectRefusal::TooMuch { sum, capacity });
        }
        match self.accounts.get_mut(&project.name) {
            Some(account) => (account.project, account.implicit) = (project, false),
            None => drop(self.accounts.insert(project.name.clone(), ProjectAccount::new(project))),
        }
        self.set_default_quota();
        Ok(())
    }

    /// Removes a project.
    ///
    /// # Errors
    /// If no project has that name, or the project has jobs.
    pub fn remove_project(&mut self, name: &ProjectName) -> Result<(), ProjectRefusal> {
        self.project(name)?;
        match self.accounts.get(name).map_or(0, |account| account.names.len()) {
            0 => {
                self.drop_user_slices_of(name);
                self.accounts.remove(name);
                self.set_default_quota();
            }
            jobs => return Err(ProjectRefusal::InUse { name: name.clone(), jobs }),
        }
        Ok(())
    }

    // Jobs

    /// All jobs, in order of submission, and users' slices after them.
    pub const fn jobs(&self) -> &BTreeMap<JobId, Job> {
        &self.jobs
    }

    /// Id of the job with this name.
    ///
    /// # Errors
    /// If the project or the job does not exist.
    pub fn find(&self, project: &ProjectName, name: &JobName) -> Result<JobId, JobRefusal> {
        let account = self.accounts.get(project).ok_or_else(|| JobRefusal::NoProject(project.clone()))?;
        let unknown = || JobRefusal::Unknown(project.clone(), name.clone());
        account.names.get(name).copied().ok_or_else(unknown)
    }

    /// Phase and GPUs of a bound member.
    pub fn binding(&self, member: MemberId) -> Option<(Phase, Vec<GpuUuid>)> {
        let binding = self.bindings.get(&member)?;
        Some((binding.phase, self.gpus_of(binding)))
    }

    /// Tests if the member is bound to a GPU that is absent from the pool.
    pub fn has_missing_gpu(&self, member: MemberId) -> bool {
        self.bindings.get(&member).is_some_and(|binding| !binding.missing.is_empty())
    }

    pub(super) fn gpus_of(&self, binding: &Binding) -> Vec<GpuUuid> {
        let mut gpus = self.pool.uuids(&binding.indices);
        gpus.extend(&binding.missing);
        gpus
    }

    /// The bound members of a job, stopping ones included.
    pub fn members(&self, job: JobId) -> impl Iterator<Item = (MemberId, &Binding)> + Clone {
        let (first, last) = (MemberId { job, index: 0 }, MemberId { job, index: u32::MAX });
        self.bindings.range(first..=last).map(|(member, binding)| (*member, binding))
    }

    /// Queues a job, with the size that counts for each member. [`QuotaScheduler::decide`] starts it.
    ///
    /// # Errors
    /// If the job could never run, or its name is taken.
    pub fn submit(&mut self, spec: JobSpec) -> Result<JobId, JobRefusal> {
        let account =
            self.accounts.get(&spec.project).ok_or_else(|| JobRefusal::NoProject(spec.project.clone()))?;
        let spec = JobSpec { size: self.size_of(account, &spec)?, ..spec };
        self.check(account, &spec)?;
        let id = JobId(self.next_job);
        self.next_job += 1;
        let account = self.account_mut(&spec.project);
        account.names.insert(spec.name.clone(), id);
        self.enter_job(id, Job::new(spec));
        self.update_queue(id);
        Ok(id)
    }

    pub(super) fn enter_job(&mut self, id: JobId, job: Job) {
        if job.spec.is_gang() {
            self.gangs.insert(id);
        }
        if !job.after.is_empty() {
            self.successors.insert(id);
        }
        self.jobs.insert(id, job);
    }

    /// Jobs that start after others that have not succeeded yet, with these.
    pub fn successors(&self) -> impl Iterator<Item = (JobId, &BTreeSet<JobId>)> {
        self.successors.iter().filter_map(|id| Some((*id, &self.jobs.get(id)?.after)))
    }

    /// Replaces the jobs that have to succeed before a member of this one may start.
    pub fn set_after(&mut self, id: JobId, after: BTreeSet<JobId>) {
        if let Some(job) = self.jobs.get_mut(&id) {
            if after.is_empty() {
                self.successors.remove(&id);
            } else {
                self.successors.insert(id);
            }
            job.after = after;
            self.update_queue(id);
        }
    }

    fn check(&self, account: &ProjectAccount, spec: &JobSpec) -> Result<(), JobRefusal> {
        if account.names.contains_key(&spec.name) {
            return Err(JobRefusal::Exists(spec.name.clone()));
        }
        let (size, quota) = (spec.size, account.project.quota);
        let (most, members) = (self.most_gpus(account, spec), spec.parallelism.max(spec.completions));
        match () {
            () if members.get() > JobSpec::MOST_MEMBERS => Err(JobRefusal::TooManyMembers(members)),
            () if spec.gang && spec.is_one_after_another() => {
                let (parallelism, completions) = (spec.parallelism, spec.completions);
                Err(JobRefusal::ScatteredGang { parallelism, completions })
            }
            () if size.gpus() > most => Err(JobRefusal::NeverFits { size, most }),
            () if spec.is_gang() && self.most_mates(account, spec) < spec.completions.get() => {
                let (members, most) = (spec.completions, self.most_mates(account, spec));
                Err(JobRefusal::GangNeverFits { members, size, most })
            }
            () if spec.is_non_preemptible() && spec.shape().total() > quota => {
                Err(JobRefusal::AboveQuota { size: spec.shape().total(), quota })
            }
            () => Ok(()),
        }
    }

    /// Suspends or resumes a job; returns the members that have to be stopped now.
    pub fn suspend(&mut self, id: JobId, suspended: bool) -> Vec<MemberId> {
        let Some(job) = self.jobs.get_mut(&id) else { return Vec::new() };
        job.suspended = suspended;
        let leaving = if suspended { self.stop_members(id) } else { Vec::new() };
        self.update_queue(id);
        leaving
    }

    /// Deletes a job as soon as its last member has exited.
    ///
    /// Returns the members that have to be stopped now.
    pub fn delete(&mut self, id: JobId) -> Vec<MemberId> {
        let Some(job) = self.jobs.get_mut(&id) else { return Vec::new() };
        job.deleted = true;
        let leaving = self.stop_members(id);
        self.update_queue(id);
        self.remove_if_over(id);
        leaving
    }

    /// Releases the claims of a job and marks its running members as stopping; returns the latter.
    fn stop_members(&mut self, id: JobId) -> Vec<MemberId> {
        let here: Vec<(MemberId, Phase)> =
            self.members(id).map(|(member, binding)| (member, binding.phase)).collect();
        for (member, phase) in &here {
            match phase {
                Phase::Claimed => self.requeue(*member),
                Phase::Running => self.mark_stopping(*member),
                Phase::Stopping => {}
            }
        }
        let runs = |(member, phase): (MemberId, Phase)| (phase == Phase::Running).then_some(member);
        here.into_iter().filter_map(runs).collect()
    }

    /// Releases the GPUs of a member that has exited, parked or not. Returns true if its job is over.
    pub fn member_exited(&mut self, member: MemberId, why: Exit) -> bool {
        self.release(member);
        let Some(job) = self.jobs.get_mut(&member.job) else { return true };
        job.parked.remove(&member.index);
        job.recalled.remove(&member.index);
        match why {
            Exit::Completed => job.done += 1,
            Exit::Requeued => drop(job.again.insert(member.index)),
        }
        self.update_queue(member.job);
        self.remove_if_over(member.job)
    }

    fn remove_if_over(&mut self, id: JobId) -> bool {
        let Some(job) = self.jobs.get(&id).filter(|job| job.is_over()) else { return false };
        let JobSpec { project, name, .. } = job.spec.clone();
        self.jobs.remove(&id);
        self.gangs.remove(&id);
        self.successors.remove(&id);
        self.account_mut(&project).names.remove(&name);
        true
    }

    /// Enters a job in its project's queue for the members that may start or return, and for no others.
    pub(super) fn update_queue(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let (project, key): (_, QueueKey) = (job.spec.project.clone(), (Reverse(job.spec.priority), id));
        let shapes = self.waiting_shapes(id);
        let queue = &mut self.account_mut(&project).queue;
        queue.retain(|_, keys| {
            keys.remove(&key);
            !keys.is_empty()
        });
        for shape in shapes {
            queue.entry(shape).or_default().insert(key);
        }
    }

    pub(super) fn account_mut(&mut self, name: &ProjectName) -> &mut ProjectAccount {
        self.accounts.get_mut(name).expect("a project with jobs is not removed")
    }

    pub(super) fn next_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }
}
