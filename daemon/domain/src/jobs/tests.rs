//! Tests of the quota scheduler on a simulated node.

mod forecast;
mod gangs;
mod oracle;
mod parked;
mod parts;
mod properties;
mod rules;
mod scenario;
mod user_slices;

use core::num::NonZeroU32;
use std::collections::BTreeSet;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use super::scheduler::{Exit, Phase, QuotaScheduler};
use super::{
    Action, JobId, JobKind, JobSpec, MemberId, MilliGpus, PoolGpu, Project, ProjectName, Size, UserRequest,
    UserSlice,
};
use crate::compute::Priority;
use crate::id::GpuUuid;
use crate::request::Share;
use crate::units::Bytes;

/// Islands of eight GPUs.
pub(super) fn islands(count: u32, size: u32) -> Vec<PoolGpu> {
    let gpu = |index: u32| PoolGpu {
        index,
        uuid: GpuUuid::from_bytes([index as u8; 16]),
        island: index / size,
        capacity: Bytes::mib(16 << 10),
        outside: MilliGpus::ZERO,
        cordon: None,
        targets: Vec::new(),
    };
    (0..count * size).map(gpu).collect()
}

pub(super) fn size(text: &str) -> Size {
    match text.parse().unwrap() {
        Share::Fraction(fraction) => Size::Part(fraction),
        Share::Whole(count) => Size::Whole(count),
        Share::Memory(_) => panic!("{text} is no size of a job"),
    }
}

pub(super) fn project(name: &str, quota: &str) -> Project {
    Project::new(name.parse().unwrap(), quota.parse().unwrap())
}

pub(super) fn spec(project: &str, name: &str, gpus: &str, kind: JobKind) -> JobSpec {
    JobSpec {
        project: project.parse().unwrap(),
        name: name.parse().unwrap(),
        size: size(gpus),
        part: None,
        kind,
        preemptible: kind == JobKind::Training,
        priority: Priority::DEFAULT,
        parallelism: NonZeroU32::MIN,
        completions: NonZeroU32::MIN,
        latency: None,
        gang: false,
        service: None,
    }
}

/// A scheduler whose stopped members exit at once, unless `slow`.
pub(super) struct World {
    pub(super) scheduler: QuotaScheduler,
    /// True if stopped members stay until a test lets them exit.
    pub(super) slow: bool,
    /// True if members of jobs are parked instead of stopped.
    pub(super) parks: bool,
    pub(super) stopped: Vec<String>,
    pub(super) unparked: Vec<String>,
    pub(super) recalled: Vec<String>,
    pub(super) users: Vec<UserSlice>,
    pub(super) requests: Vec<UserRequest>,
}

impl core::fmt::Debug for World {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let gpus = self.scheduler.pool().gpus().map(|gpu| (gpu.index, gpu.island, gpu.outside.to_string()));
        writeln!(f, "GPUs {:?}", gpus.collect::<Vec<_>>())?;
        for account in self.scheduler.accounts.values() {
            let Project { name, quota, weight, .. } = &account.project;
            writeln!(f, "{name}: {} of {quota}, weight {weight:?}", account.used)?;
        }
        for (member, binding) in &self.scheduler.bindings {
            let spec = &self.scheduler.jobs()[&member.job].spec;
            let JobSpec { project, name, size, .. } = spec;
            writeln!(f, "{project}/{name} {size} {binding:?} lasting {}", spec.is_non_preemptible())?;
        }
        for (id, job) in self.scheduler.jobs().iter().filter(|(_, job)| job.pending().is_some()) {
            let JobSpec { project, name, size, .. } = &job.spec;
            writeln!(f, "{project}/{name} {size} waits: {:?}", self.scheduler.wait(*id))?;
        }
        write!(f, "hold {:?}", self.scheduler.reserved)
    }
}

impl World {
    pub(super) fn new(gpus: Vec<PoolGpu>, projects: &[(&str, &str)]) -> Self {
        let mut scheduler = QuotaScheduler::new(gpus);
        for (name, quota) in projects {
            scheduler.set_project(project(name, quota), false).unwrap();
        }
        Self {
            scheduler,
            slow: false,
            parks: false,
            stopped: Vec::new(),
            unparked: Vec::new(),
            recalled: Vec::new(),
            users: Vec::new(),
            requests: Vec::new(),
        }
    }

    pub(super) fn submit(&mut self, project: &str, name: &str, gpus: &str, kind: JobKind) -> JobId {
        self.submit_spec(spec(project, name, gpus, kind))
    }

    pub(super) fn submit_spec(&mut self, spec: JobSpec) -> JobId {
        let id = self.scheduler.submit(spec).unwrap();
        self.settle();
        id
    }

    /// Decides until nothing changes; returns the number of rounds with changes.
    pub(super) fn settle(&mut self) -> usize {
        for round in 0..1000 {
            let actions = self.scheduler.decide();
            self.check_gangs();
            self.check_stops(&actions);
            self.check_successors();
            assert_eq!(self.scheduler.decide(), [], "a decision was not the last one: {self:?}");
            if actions.is_empty() {
                return round;
            }
            self.apply_actions(&actions);
        }
        panic!("the board never comes to rest");
    }

    /// Checks the index of jobs that start after others.
    fn check_successors(&self) {
        let all = self.scheduler.jobs().iter().filter(|(_, job)| !job.after.is_empty());
        let all: Vec<_> = all.map(|(id, job)| (*id, &job.after)).collect();
        assert_eq!(self.scheduler.successors().collect::<Vec<_>>(), all);
    }

    /// Checks that others take a part at least of what each stopped member or gang leaves.
    fn check_stops(&self, actions: &[Action]) {
        let scheduler = &self.scheduler;
        let is_taken = |member: MemberId| {
            scheduler.bindings[&member].indices.iter().any(|index| {
                let here = scheduler.bindings.iter().filter(|(other, binding)| {
                    let is_mate = scheduler.is_gang(member.job) && other.job == member.job;
                    let would_stay = binding.phase != Phase::Stopping || **other == member || is_mate;
                    would_stay && binding.indices.contains(index)
                });
                let parts = here.map(|(other, _)| scheduler.jobs()[&other.job].spec.size.of_each());
                let outside = scheduler.pool.entry(*index).gpu.unavailable();
                let reserved = scheduler.reserved.iter().any(|reserved| reserved.indices.contains(index));
                reserved || parts.sum::<MilliGpus>().plus(outside) > MilliGpus::ONE
            })
        };
        for one in actions {
            let Action::Stop { member, .. } = one else { continue };
            let spec = &scheduler.jobs()[&member.job].spec;
            let account = &scheduler.accounts[&spec.project];
            let may_return = account.project.weight() > MilliGpus::ZERO;
            let mut leaving = scheduler.members(member.job).map(|(mate, _)| mate);
            let is_taken = if spec.is_gang() { leaving.any(is_taken) } else { is_taken(*member) };
            assert!(is_taken || !may_return, "{} was stopped for nothing: {self:?}", spec.name);
        }
    }

    fn apply_actions(&mut self, actions: &[Action]) {
        for one in actions {
            if let Action::Start { member, gpus } = one {
                self.grant(*member, gpus);
            }
            if let Action::Unpark { member } = one {
                self.unparked.push(self.name(*member));
            }
            if let Action::Recall { member, continues, .. } = one {
                self.recall(*member, *continues);
            }
            if let Action::Stop { member, .. } = one {
                self.stopped.push(self.name(*member));
                if !self.slow && self.end_user_slice(*member) {
                    continue;
                }
                if !self.slow {
                    self.leave_gpus(*member);
                }
            }
        }
    }

    /// Carries out a recall: what is parked exits, and what runs is parked if it may be.
    fn recall(&mut self, member: MemberId, continues: bool) {
        self.recalled.push(self.name(member));
        let is_parked = self.scheduler.is_parked(member);
        match (is_parked || !self.slow, self.parks && continues) {
            (true, true) => self.scheduler.member_parked(member),
            (true, false) => drop(self.scheduler.member_exited(member, Exit::Requeued)),
            (false, _) => {}
        }
    }

    /// Parks a stopping member, or has it exit.
    fn leave_gpus(&mut self, member: MemberId) {
        if self.parks {
            self.scheduler.member_parked(member);
        } else {
            self.scheduler.member_exited(member, Exit::Requeued);
        }
    }

    /// Makes the slice of a granted request; does nothing for a job's member.
    fn grant(&mut self, member: MemberId, gpus: &[GpuUuid]) {
        let Some(number) = self.scheduler.user_request(member) else { return };
        let at = self.requests.iter().position(|request| request.number == number).unwrap();
        let UserRequest { project, size, latency, .. } = self.requests.swap_remove(at);
        self.users.push(UserSlice {
            name: std::format!("r-{number}").parse().unwrap(),
            owner_uid: 7,
            created_unix_ms: number,
            project,
            gpus: gpus.to_vec(),
            size,
            latency,
        });
        self.tell_of_users();
    }

    pub(super) fn tell_of_users(&mut self) {
        self.scheduler.set_user_requests(self.requests.clone());
        self.scheduler.set_user_slices(self.users.clone());
    }

    /// Ends the slice behind a member; false if it is a job's.
    pub(super) fn end_user_slice(&mut self, member: MemberId) -> bool {
        let Some(name) = self.scheduler.user_slice(member).map(|slice| slice.name.clone()) else {
            return false;
        };
        self.users.retain(|slice| slice.name != name);
        self.tell_of_users();
        true
    }

    /// Name of a member's job; its number if that has gone with an earlier action of the same decision.
    pub(super) fn name(&self, member: MemberId) -> String {
        let job = self.scheduler.jobs().get(&member.job);
        job.map_or_else(|| std::format!("{member:?}"), |job| job.spec.name.to_string())
    }

    pub(super) fn delete(&mut self, project: &str, names: &[&str]) {
        for name in names {
            let id = self.scheduler.find(&project.parse().unwrap(), &name.parse().unwrap()).unwrap();
            for member in self.scheduler.delete(id) {
                self.scheduler.member_exited(member, Exit::Completed);
            }
        }
        self.settle();
    }

    pub(super) fn used(&self, project: &str) -> String {
        self.scheduler.used(&project.parse().unwrap()).to_string()
    }

    /// Names of a project's jobs without bound members.
    pub(super) fn queued(&self, project: &str) -> BTreeSet<String> {
        let project: ProjectName = project.parse().unwrap();
        let jobs = self.scheduler.jobs().iter().filter(|(_, job)| job.spec.project == project);
        let waits = |id: JobId| self.scheduler.members(id).next().is_none();
        jobs.filter(|(id, _)| waits(**id)).map(|(_, job)| job.spec.name.to_string()).collect()
    }

    pub(super) fn running(&self) -> Vec<(MemberId, Vec<u32>)> {
        let bindings = self.scheduler.bindings.iter().filter(|(_, binding)| binding.phase == Phase::Running);
        let gpus = |indices: &[usize]| {
            indices.iter().map(|index| self.scheduler.pool.entry(*index).gpu.index).collect()
        };
        bindings.map(|(member, binding)| (*member, gpus(&binding.indices))).collect()
    }

    pub(super) fn gpus_of(&self, project: &str, names: &[&str]) -> BTreeSet<u32> {
        let ids: Vec<JobId> = names
            .iter()
            .map(|name| self.scheduler.find(&project.parse().unwrap(), &name.parse().unwrap()).unwrap())
            .collect();
        let of_these = self.running().into_iter().filter(|(member, _)| ids.contains(&member.job));
        of_these.flat_map(|(_, gpus)| gpus).collect()
    }
}
