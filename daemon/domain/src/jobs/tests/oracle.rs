//! A second mind, simple and slow: it tries every place and every set of victims, and has to come to the same choice.

use std::collections::BTreeMap;

use super::*;
use crate::jobs::job::Job;

/// What was chosen: whose turn it is, how much is taken, from how many, and whether a project falls below its quota.
pub(super) type Choice = (JobId, u32, usize, bool);

/// A member that stays, as plain numbers.
struct Here<'a> {
    member: MemberId,
    job: &'a Job,
    spots: &'a [usize],
    order: u64,
}

/// What a project has: used, of that lasting, quota, weight.
#[derive(Clone, Copy)]
struct Purse {
    used: i64,
    lasting: i64,
    quota: i64,
    weight: i64,
}

impl Purse {
    /// Whether `self` is further beyond its quota for its weight than `other`.
    fn is_beyond(self, other: Self) -> bool {
        (self.used - self.quota) * other.weight.max(1) > (other.used - other.quota) * self.weight.max(1)
    }
}

/// What the board has to choose next.
pub(super) fn choice(board: &Board) -> Option<Choice> {
    Oracle::new(board).choice()
}

struct Oracle<'a> {
    board: &'a Board,
    here: Vec<Here<'a>>,
    purses: BTreeMap<ProjectName, Purse>,
}

fn total(job: &Job) -> i64 {
    i64::from(job.spec.size.total().get())
}

impl<'a> Oracle<'a> {
    fn new(board: &'a Board) -> Self {
        let stays = board.seats.iter().filter(|(_, seat)| seat.phase != Phase::Stopping);
        let here: Vec<Here<'_>> = stays
            .map(|(member, seat)| Here {
                member: *member,
                job: &board.jobs()[&member.job],
                spots: &seat.spots,
                order: seat.order,
            })
            .collect();
        let purse = |project: &Project| {
            let own = || here.iter().filter(|one| one.job.spec.project == project.name);
            Purse {
                used: own().map(|one| total(one.job)).sum(),
                lasting: own().filter(|one| one.job.spec.is_lasting()).map(|one| total(one.job)).sum(),
                quota: project.quota.get().into(),
                weight: project.weight().get().into(),
            }
        };
        let purses = board.projects().map(|project| (project.name.clone(), purse(project))).collect();
        Self { board, here, purses }
    }

    fn choice(&self) -> Option<Choice> {
        self.queue().into_iter().find_map(|id| {
            let (taken, count, below) = self.best(&self.board.jobs()[&id], id)?;
            Some((id, taken, count, below))
        })
    }

    /// Everybody who may be tried, in order.
    fn queue(&self) -> Vec<JobId> {
        let waiting = || self.board.jobs().iter().filter(|(_, job)| job.next().is_some());
        let mut promised: Vec<JobId> =
            waiting().filter(|(_, job)| self.is_promised(job)).map(|(id, _)| *id).collect();
        let may_borrow = |job: &Job| !job.spec.is_lasting() && self.purse(job).weight > 0;
        let borrows = waiting().filter(|(_, job)| !self.is_promised(job) && may_borrow(job));
        let mut borrowing: Vec<JobId> = borrows.map(|(id, _)| *id).collect();
        self.sort(&mut promised, |purse, _| (ratio(purse.used, purse.quota), ratio(0, 1)));
        self.sort(&mut borrowing, |purse, size| {
            let level = |used| ratio(used - purse.quota, purse.weight);
            (level(purse.used), level(purse.used + size))
        });
        promised.into_iter().chain(borrowing).collect()
    }

    /// Project by project, by the first job of each; within one, those that stay first, then by priority and age.
    fn sort(&self, ids: &mut [JobId], key: impl Fn(Purse, i64) -> (Ratio, Ratio)) {
        let within = |id: &JobId| {
            let spec = &self.board.jobs()[id].spec;
            (!spec.is_lasting(), core::cmp::Reverse(spec.priority), *id)
        };
        ids.sort_by_key(within);
        let mut first: BTreeMap<ProjectName, JobId> = BTreeMap::new();
        for id in ids.iter() {
            first.entry(self.board.jobs()[id].spec.project.clone()).or_insert(*id);
        }
        ids.sort_by_key(|id| {
            let first = first[&self.board.jobs()[id].spec.project];
            let job = &self.board.jobs()[&first];
            (key(self.purse(job), total(job)), first)
        });
    }

    fn purse(&self, job: &Job) -> Purse {
        self.purses[&job.spec.project]
    }

    fn is_promised(&self, job: &Job) -> bool {
        let (purse, size) = (self.purse(job), total(job));
        purse.used + size <= purse.quota || job.spec.is_lasting() && purse.lasting + size <= purse.quota
    }

    /// The least that has to be taken for a job; nothing if it cannot have a place.
    fn best(&self, job: &Job, id: JobId) -> Option<(u32, usize, bool)> {
        if self.fits(job, id, 0) {
            return Some((0, 0, false));
        }
        let sets =
            (1..1usize << self.here.len()).filter(|set| self.may_take(job, *set) && self.fits(job, id, *set));
        let cost = |set: usize| {
            let all: i64 = self.those(set).map(|one| total(one.job)).sum();
            (self.falls_below(job, set), u32::try_from(all).unwrap(), self.those(set).count())
        };
        sets.map(cost).min().map(|(below, all, count)| (all, count, below))
    }

    fn those(&self, set: usize) -> impl Iterator<Item = &Here<'a>> {
        self.here.iter().enumerate().filter(move |(at, _)| set >> at & 1 == 1).map(|(_, one)| one)
    }

    /// Whether there is a place, with some gone.
    fn fits(&self, job: &Job, id: JobId, without: usize) -> bool {
        let mut free: Vec<i64> =
            self.board.floor.gpus().map(|gpu| 1000 - i64::from(gpu.outside.get())).collect();
        for (at, one) in self.here.iter().enumerate().filter(|(at, _)| without >> at & 1 == 0) {
            let _ = at;
            one.spots.iter().for_each(|spot| free[*spot] -= i64::from(one.job.spec.size.of_each().get()));
        }
        let kept = self.board.hold.as_ref().filter(|hold| hold.job != id).map_or(&[][..], |hold| &hold.spots);
        let part = i64::from(job.spec.size.of_each().get());
        let mut of_island: BTreeMap<u32, u32> = BTreeMap::new();
        for (spot, gpu) in self.board.floor.gpus().enumerate() {
            if !kept.contains(&spot) && free[spot] >= part {
                *of_island.entry(gpu.island).or_default() += 1;
            }
        }
        of_island.values().any(|count| *count >= job.spec.size.gpus())
    }

    /// Whether all of a set may be asked to leave for a job, together.
    fn may_take(&self, job: &Job, set: usize) -> bool {
        let mut mine = self.purse(job);
        mine.used += total(job);
        let displaces =
            job.spec.is_lasting() && mine.used > mine.quota && mine.lasting + total(job) <= mine.quota;
        let own = |one: &&Here<'_>| one.job.spec.project == job.spec.project;
        mine.used -= self.those(set).filter(own).map(|one| total(one.job)).sum::<i64>();
        let without = Purse { used: mine.used - total(job), ..mine };
        self.those(set).all(|one| {
            let may = if own(&one) { displaces } else { !self.is_safe(one) };
            may && !one.job.spec.is_lasting()
                && (own(&one) || mine.used <= mine.quota || self.left(one, set).is_beyond(without))
        })
    }

    /// What the project of one of a set has when the set is gone.
    fn left(&self, one: &Here<'_>, set: usize) -> Purse {
        let mut purse = self.purse(one.job);
        let its = self.those(set).filter(|other| other.job.spec.project == one.job.spec.project);
        purse.used -= its.map(|other| total(other.job)).sum::<i64>();
        purse
    }

    fn falls_below(&self, job: &Job, set: usize) -> bool {
        let others = self.those(set).filter(|one| one.job.spec.project != job.spec.project);
        let mut left = others.map(|one| self.left(one, set));
        left.any(|purse| purse.used < purse.quota)
    }

    /// Whether a member is within its project's quota.
    fn is_safe(&self, one: &Here<'_>) -> bool {
        let mut own: Vec<&Here<'_>> =
            self.here.iter().filter(|other| other.job.spec.project == one.job.spec.project).collect();
        own.sort_by_key(|other| (!other.job.spec.is_lasting(), other.order));
        let mut rest = self.purse(one.job).quota;
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

/// An exact fraction, to be compared only.
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
