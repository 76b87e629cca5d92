//! The board: projects, their jobs, and who sits where. Everything that changes it from outside is here.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::amount::MilliGpus;
use super::floor::{Floor, Gpu, Spot};
use super::job::{Job, JobId, JobRefusal, JobSpec, MemberId};
use super::name::{JobName, ProjectName};
use super::project::{Account, Project, ProjectRefusal, Turn};
use crate::id::GpuUuid;

/// Projects, jobs and places. Its moves are made by [`Board::decide`].
#[derive(Clone, Debug, Default)]
pub struct Board {
    pub(super) floor: Floor,
    pub(super) accounts: BTreeMap<ProjectName, Account>,
    pub(super) jobs: BTreeMap<JobId, Job>,
    pub(super) seats: BTreeMap<MemberId, Seat>,
    pub(super) hold: Option<Hold>,
    pub(super) next_job: u64,
    next_place: u64,
}

/// GPUs that empty for a job that is within its quota and that no one else can make room for: nobody else is put on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) job: JobId,
    pub(super) spots: Vec<Spot>,
}

/// Where a member is, or is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    pub(super) spots: Vec<Spot>,
    /// Those of its GPUs that are not seen now.
    pub(super) unseen: Vec<GpuUuid>,
    /// How far it is there.
    pub phase: Phase,
    /// In which order places were given.
    pub(super) order: u64,
}

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It has a place, as soon as others have left it.
    Claimed,
    /// It runs.
    Running,
    /// It was told to leave, and has not left yet.
    Stopping,
}

/// Why a member has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It has come to its end.
    Done,
    /// It wants to begin again: it was stopped for others, or failed and may try once more.
    Again,
}

impl Board {
    /// A node without projects.
    pub fn new(gpus: Vec<Gpu>) -> Self {
        Self { floor: Floor::new(gpus), ..Self::default() }
    }

    /// The GPUs.
    pub const fn floor(&self) -> &Floor {
        &self.floor
    }

    /// Takes note of what is not for jobs on a GPU.
    pub fn set_outside(&mut self, gpu: GpuUuid, outside: MilliGpus) {
        self.floor.set_outside(gpu, outside);
    }

    // Projects

    /// The projects.
    pub fn projects(&self) -> impl Iterator<Item = &Project> {
        self.accounts.values().map(|account| &account.project)
    }

    /// A project.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn project(&self, name: &ProjectName) -> Result<&Project, ProjectRefusal> {
        let account = self.accounts.get(name).ok_or_else(|| ProjectRefusal::Unknown(name.clone()))?;
        Ok(&account.project)
    }

    /// What a project's jobs have, those on their way out not counted.
    pub fn used(&self, name: &ProjectName) -> MilliGpus {
        self.accounts.get(name).map_or(MilliGpus::ZERO, |account| account.used)
    }

    /// How many of a project's jobs wait although they are within its quota.
    pub fn owed(&self, name: &ProjectName) -> usize {
        let Some(account) = self.accounts.get(name) else { return 0 };
        let queues = account.queue.iter().filter(|(shape, _)| account.is_guaranteed(shape));
        queues.map(|(_, turns)| turns.len()).sum()
    }

    /// Makes a project, or changes one.
    ///
    /// # Errors
    /// If the quotas together would be more than the node has, and that is not allowed.
    pub fn set_project(&mut self, project: Project, beyond_capacity: bool) -> Result<(), ProjectRefusal> {
        let others = self.projects().filter(|other| other.name != project.name);
        let sum = others.map(|other| other.quota).sum::<MilliGpus>().plus(project.quota);
        let capacity = self.floor.capacity();
        if sum > capacity && !beyond_capacity {
            return Err(ProjectRefusal::TooMuch { sum, capacity });
        }
        match self.accounts.get_mut(&project.name) {
            Some(account) => account.project = project,
            None => drop(self.accounts.insert(project.name.clone(), Account::new(project))),
        }
        Ok(())
    }

    /// Forgets a project.
    ///
    /// # Errors
    /// If there is none of that name, or it has jobs.
    pub fn remove_project(&mut self, name: &ProjectName) -> Result<(), ProjectRefusal> {
        self.project(name)?;
        match self.accounts.get(name).map_or(0, |account| account.names.len()) {
            0 => drop(self.accounts.remove(name)),
            jobs => return Err(ProjectRefusal::InUse { name: name.clone(), jobs }),
        }
        Ok(())
    }

    // Jobs

    /// The jobs, in the order in which they came.
    pub const fn jobs(&self) -> &BTreeMap<JobId, Job> {
        &self.jobs
    }

    /// The job of that name.
    ///
    /// # Errors
    /// If there is no such project or job.
    pub fn find(&self, project: &ProjectName, name: &JobName) -> Result<JobId, JobRefusal> {
        let account = self.accounts.get(project).ok_or_else(|| JobRefusal::NoProject(project.clone()))?;
        let unknown = || JobRefusal::Unknown(project.clone(), name.clone());
        account.names.get(name).copied().ok_or_else(unknown)
    }

    /// Where a member is.
    pub fn seat(&self, member: MemberId) -> Option<(Phase, Vec<GpuUuid>)> {
        let seat = self.seats.get(&member)?;
        Some((seat.phase, self.gpus_of(seat)))
    }

    /// Whether a member has a place on a GPU that is not seen now.
    pub fn is_unseen(&self, member: MemberId) -> bool {
        self.seats.get(&member).is_some_and(|seat| !seat.unseen.is_empty())
    }

    pub(super) fn gpus_of(&self, seat: &Seat) -> Vec<GpuUuid> {
        let mut gpus = self.floor.uuids(&seat.spots);
        gpus.extend(&seat.unseen);
        gpus
    }

    /// The members of a job that have a place, or are about to leave one.
    pub fn members(&self, job: JobId) -> impl Iterator<Item = (MemberId, &Seat)> {
        let (first, last) = (MemberId { job, index: 0 }, MemberId { job, index: u32::MAX });
        self.seats.range(first..=last).map(|(member, seat)| (*member, seat))
    }

    /// Takes a job on. It starts when [`Board::decide`] says so.
    ///
    /// # Errors
    /// If it could never run, or its name is taken.
    pub fn submit(&mut self, spec: JobSpec) -> Result<JobId, JobRefusal> {
        self.check(&spec)?;
        let id = JobId(self.next_job);
        self.next_job += 1;
        let account = self.account_mut(&spec.project);
        account.names.insert(spec.name.clone(), id);
        self.jobs.insert(id, Job::new(spec));
        self.queue_or_not(id);
        Ok(id)
    }

    fn check(&self, spec: &JobSpec) -> Result<(), JobRefusal> {
        let account =
            self.accounts.get(&spec.project).ok_or_else(|| JobRefusal::NoProject(spec.project.clone()))?;
        if account.names.contains_key(&spec.name) {
            return Err(JobRefusal::Exists(spec.name.clone()));
        }
        let (size, quota) = (spec.size, account.project.quota);
        let (most, members) = (self.most_gpus(account, spec), spec.parallelism.max(spec.completions));
        match () {
            () if members.get() > JobSpec::MOST_MEMBERS => Err(JobRefusal::TooManyMembers(members)),
            () if size.gpus() > most => Err(JobRefusal::NeverFits { size, most }),
            () if spec.is_lasting() && size.total() > quota => Err(JobRefusal::AboveQuota { size, quota }),
            () => Ok(()),
        }
    }

    /// The most GPUs of one island that a job could ever have.
    fn most_gpus(&self, account: &Account, spec: &JobSpec) -> u32 {
        let reach = super::floor::Reach { affinity: account.project.affinity(spec.kind), kept: &[] };
        let most = self.floor.islands(&reach).values().map(Vec::len).max();
        most.and_then(|most| u32::try_from(most).ok()).unwrap_or(0)
    }

    /// Lets a job's members start, or not; returns those who have to be stopped now.
    pub fn suspend(&mut self, id: JobId, suspended: bool) -> Vec<MemberId> {
        let Some(job) = self.jobs.get_mut(&id) else { return Vec::new() };
        job.suspended = suspended;
        let leaving = if suspended { self.dismiss(id) } else { Vec::new() };
        self.queue_or_not(id);
        leaving
    }

    /// Forgets a job, at once or when its last member has left; returns those who have to be stopped now.
    pub fn delete(&mut self, id: JobId) -> Vec<MemberId> {
        let Some(job) = self.jobs.get_mut(&id) else { return Vec::new() };
        job.deleted = true;
        let leaving = self.dismiss(id);
        self.queue_or_not(id);
        self.forget_if_over(id);
        leaving
    }

    /// Tells all members of a job to leave.
    fn dismiss(&mut self, id: JobId) -> Vec<MemberId> {
        let here: Vec<(MemberId, Phase)> =
            self.members(id).map(|(member, seat)| (member, seat.phase)).collect();
        for (member, phase) in &here {
            match phase {
                Phase::Claimed => self.give_up(*member),
                Phase::Running => self.see_off(*member),
                Phase::Stopping => {}
            }
        }
        let runs = |(member, phase): (MemberId, Phase)| (phase == Phase::Running).then_some(member);
        here.into_iter().filter_map(runs).collect()
    }

    /// A member has left its place, of its own accord or not. Says whether its job is over with that.
    pub fn left(&mut self, member: MemberId, why: Left) -> bool {
        self.rise(member);
        let Some(job) = self.jobs.get_mut(&member.job) else { return true };
        match why {
            Left::Done => job.done += 1,
            Left::Again => drop(job.again.insert(member.index)),
        }
        self.queue_or_not(member.job);
        self.forget_if_over(member.job)
    }

    fn forget_if_over(&mut self, id: JobId) -> bool {
        let Some(job) = self.jobs.get(&id).filter(|job| job.is_over()) else { return false };
        let JobSpec { project, name, .. } = job.spec.clone();
        self.jobs.remove(&id);
        self.account_mut(&project).names.remove(&name);
        true
    }

    /// Puts a job into its project's queue if a member of it may start, and takes it out if none may.
    pub(super) fn queue_or_not(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let (spec, waits) = (job.spec.clone(), job.next().is_some());
        let turn: Turn = (Reverse(spec.priority), id);
        let queue = &mut self.account_mut(&spec.project).queue;
        let turns = queue.entry(spec.shape()).or_default();
        if waits {
            turns.insert(turn);
        } else {
            turns.remove(&turn);
        }
        if turns.is_empty() {
            queue.remove(&spec.shape());
        }
    }

    pub(super) fn account_mut(&mut self, name: &ProjectName) -> &mut Account {
        self.accounts.get_mut(name).expect("a project with jobs is not removed")
    }

    pub(super) fn next_place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place
    }
}
