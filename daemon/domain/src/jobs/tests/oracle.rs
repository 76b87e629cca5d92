//! Exhaustive oracle: tries every placement and every set of victims.

use std::collections::BTreeMap;

use super::*;
use crate::jobs::job::Job;

/// Job, GPUs preempted in thousandths, number of victims, and whether a project falls below its quota.
pub(super) type Choice = (JobId, u32, usize, bool);

/// A bound member that is not stopping.
struct BoundMember<'a> {
    member: MemberId,
    job: &'a Job,
    indices: &'a [usize],
    order: u64,
}

/// Use, non-preemptible use, quota and weight of a project, in thousandths of a GPU.
#[derive(Clone, Copy)]
struct Usage {
    used: i64,
    non_preemptible: i64,
    quota: i64,
    weight: i64,
}

impl Usage {
    /// Tests if the level of `self` is higher than that of `other`.
    fn is_beyond(self, other: Self) -> bool {
        (self.used - self.quota) * other.weight.max(1) > (other.used - other.quota) * self.weight.max(1)
    }
}

/// The choice that the scheduler has to make next.
pub(super) fn choice(scheduler: &QuotaScheduler) -> Option<Choice> {
    Oracle::new(scheduler).choice()
}

struct Oracle<'a> {
    scheduler: &'a QuotaScheduler,
    members: Vec<BoundMember<'a>>,
    usages: BTreeMap<ProjectName, Usage>,
}

fn total(job: &Job) -> i64 {
    i64::from(job.spec.size.total().get())
}

impl<'a> Oracle<'a> {
    fn new(scheduler: &'a QuotaScheduler) -> Self {
        let stays = scheduler.bindings.iter().filter(|(_, binding)| binding.phase != Phase::Stopping);
        let members: Vec<BoundMember<'_>> = stays
            .map(|(member, binding)| BoundMember {
                member: *member,
                job: &scheduler.jobs()[&member.job],
                indices: &binding.indices,
                order: binding.order,
            })
            .collect();
        let usage = |project: &Project| {
            let own = || members.iter().filter(|one| one.job.spec.project == project.name);
            Usage {
                used: own().map(|one| total(one.job)).sum(),
                non_preemptible: own()
                    .filter(|one| one.job.spec.is_non_preemptible())
                    .map(|one| total(one.job))
                    .sum(),
                quota: project.quota.get().into(),
                weight: project.weight().get().into(),
            }
        };
        let usages = scheduler
            .projects()
            .chain(scheduler.implicit_project())
            .map(|project| (project.name.clone(), usage(project)))
            .collect();
        Self { scheduler, members, usages }
    }

    fn choice(&self) -> Option<Choice> {
        self.queue().into_iter().find_map(|id| {
            let (taken, count, below) = self.best(&self.scheduler.jobs()[&id], id)?;
            Some((id, taken, count, below))
        })
    }

    /// All candidates, in order.
    fn queue(&self) -> Vec<JobId> {
        let waiting = || self.scheduler.jobs().iter().filter(|(_, job)| job.next().is_some());
        let mut guaranteed: Vec<JobId> =
            waiting().filter(|(_, job)| self.is_guaranteed(job)).map(|(id, _)| *id).collect();
        let may_borrow = |job: &Job| !job.spec.is_non_preemptible() && self.usage(job).weight > 0;
        let borrows =
            waiting().filter(|(id, job)| !id.is_request() && !self.is_guaranteed(job) && may_borrow(job));
        let mut borrowing: Vec<JobId> = borrows.map(|(id, _)| *id).collect();
        self.sort(&mut guaranteed, |usage, _| (ratio(usage.used, usage.quota), ratio(0, 1)));
        self.sort(&mut borrowing, |usage, size| {
            let level = |used| ratio(used - usage.quota, usage.weight);
            (level(usage.used), level(usage.used + size))
        });
        guaranteed.into_iter().chain(borrowing).collect()
    }

    /// Sorts by project, in the order of the first job of each.
    ///
    /// Within a project non-preemptible jobs are first, then priority and age decide.
    fn sort(&self, ids: &mut [JobId], key: impl Fn(Usage, i64) -> (Ratio, Ratio)) {
        let within = |id: &JobId| {
            let spec = &self.scheduler.jobs()[id].spec;
            (!spec.is_non_preemptible(), core::cmp::Reverse(spec.priority), *id)
        };
        ids.sort_by_key(within);
        let mut first: BTreeMap<ProjectName, JobId> = BTreeMap::new();
        for id in ids.iter() {
            first.entry(self.scheduler.jobs()[id].spec.project.clone()).or_insert(*id);
        }
        ids.sort_by_key(|id| {
            let first = first[&self.scheduler.jobs()[id].spec.project];
            let job = &self.scheduler.jobs()[&first];
            (key(self.usage(job), total(job)), first)
        });
    }

    fn usage(&self, job: &Job) -> Usage {
        self.usages[&job.spec.project]
    }

    fn is_guaranteed(&self, job: &Job) -> bool {
        let (usage, size) = (self.usage(job), total(job));
        usage.used + size <= usage.quota
            || job.spec.is_non_preemptible() && usage.non_preemptible + size <= usage.quota
    }

    /// The least preemption that makes room for a job; `None` if none does.
    fn best(&self, job: &Job, id: JobId) -> Option<(u32, usize, bool)> {
        if self.fits(job, id, 0) {
            return Some((0, 0, false));
        }
        let sets = (1..1usize << self.members.len())
            .filter(|set| self.may_take(job, *set) && self.fits(job, id, *set));
        let cost = |set: usize| {
            let all: i64 = self.in_set(set).map(|one| total(one.job)).sum();
            (self.falls_below(job, set), u32::try_from(all).unwrap(), self.in_set(set).count())
        };
        sets.map(cost).min().map(|(below, all, count)| (all, count, below))
    }

    fn in_set(&self, set: usize) -> impl Iterator<Item = &BoundMember<'a>> {
        self.members.iter().enumerate().filter(move |(at, _)| set >> at & 1 == 1).map(|(_, one)| one)
    }

    /// Tests if the job fits without the members in `without`.
    fn fits(&self, job: &Job, id: JobId, without: usize) -> bool {
        let mut free: Vec<i64> =
            self.scheduler.pool.gpus().map(|gpu| 1000 - i64::from(gpu.outside.get())).collect();
        for (at, one) in self.members.iter().enumerate().filter(|(at, _)| without >> at & 1 == 0) {
            let _ = at;
            one.indices.iter().for_each(|index| free[*index] -= i64::from(one.job.spec.size.of_each().get()));
        }
        let reserved = self
            .scheduler
            .reserved
            .as_ref()
            .filter(|reserved| reserved.job != id)
            .map_or(&[][..], |reserved| &reserved.indices);
        let part = i64::from(job.spec.size.of_each().get());
        let mut of_island: BTreeMap<u32, u32> = BTreeMap::new();
        for (index, gpu) in self.scheduler.pool.gpus().enumerate() {
            if !reserved.contains(&index) && free[index] >= part {
                *of_island.entry(gpu.island).or_default() += 1;
            }
        }
        of_island.values().any(|count| *count >= job.spec.size.gpus())
    }

    /// Tests if a set may be preempted together for a job.
    fn may_take(&self, job: &Job, set: usize) -> bool {
        let mut mine = self.usage(job);
        mine.used += total(job);
        let displaces = job.spec.is_non_preemptible()
            && mine.used > mine.quota
            && mine.non_preemptible + total(job) <= mine.quota;
        let own = |one: &&BoundMember<'_>| one.job.spec.project == job.spec.project;
        mine.used -= self.in_set(set).filter(own).map(|one| total(one.job)).sum::<i64>();
        let without = Usage { used: mine.used - total(job), ..mine };
        self.in_set(set).all(|one| {
            let may = if own(&one) { displaces } else { !self.is_safe(one) };
            let is_owed = !own(&one) && self.is_guaranteed(job);
            may && !one.job.spec.is_non_preemptible()
                && (is_owed || !one.member.job.is_slice())
                && (own(&one) || mine.used <= mine.quota || self.left(one, set).is_beyond(without))
        })
    }

    /// Use of a member's project without the set.
    fn left(&self, one: &BoundMember<'_>, set: usize) -> Usage {
        let mut usage = self.usage(one.job);
        let its = self.in_set(set).filter(|other| other.job.spec.project == one.job.spec.project);
        usage.used -= its.map(|other| total(other.job)).sum::<i64>();
        usage
    }

    fn falls_below(&self, job: &Job, set: usize) -> bool {
        let others = self.in_set(set).filter(|one| one.job.spec.project != job.spec.project);
        let mut left = others.map(|one| self.left(one, set));
        left.any(|usage| usage.used < usage.quota)
    }

    /// Tests if a member is within its project's quota.
    fn is_safe(&self, one: &BoundMember<'_>) -> bool {
        let mut own: Vec<&BoundMember<'_>> =
            self.members.iter().filter(|other| other.job.spec.project == one.job.spec.project).collect();
        own.sort_by_key(|other| (!other.job.spec.is_non_preemptible(), other.order));
        let mut rest = self.usage(one.job).quota;
        for other in own {
            let safe = total(other.job) <= rest;
            rest -= if safe { total(other.job) } else { 0 };
            if other.member == one.member {
                return safe;
            }
        }
        false
    }
}

/// An exact fraction for comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ratio(i64, i64);

fn ratio(above: i64, below: i64) -> Ratio {
    Ratio(above, below.max(1))
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.0 * other.1).cmp(&(other.0 * self.1))
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
