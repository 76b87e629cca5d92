//! Preemption: the smallest set of victims that makes room for a job with a stronger claim.
//!
//! Members within their project's quota are safe: non-preemptible ones first, then in the order of their
//! bindings, as far as they fit into the quota together. Under the policy `preempt-first` idle members come last. The remaining members run on surplus. They are
//! preempted
//! - by a project that stays within its quota with the GPUs it gets, or
//! - by a project that has borrowed less for its weight than the victims' projects have even without the
//!   victims.
//!
//! With each such preemption the minimum level rises and no project falls to the former minimum, so
//! preemption terminates, even if victims free more than was needed and another project takes the rest.
//!
//! A non-preemptible job of a project whose quota is filled by its own training displaces that training. If
//! the freed GPUs are of no use to the job, training elsewhere is stopped as well, so that the project's use
//! stays the same.
//!
//! A gang is preempted as a whole, and counts as one member of all its GPUs. A gang that starts takes the victims of all
//! its members together; its members are placed one after the other, so that its set is small but may not be the smallest.
//!
//! A slice that a user has without a job is preempted only for a job within its project's quota, and rather than it a
//! job that frees as much: the job starts again by itself.
//!
//! Idle members of such projects are preempted rather than busy ones, even if they have more GPUs.
//!
//! A victim stays if in the end of the decision nothing takes what it would leave.
//!
//! A victim's project does not fall below its quota while another choice exists. A job larger than its
//! project's excess may take it below; the quota that is freed in this way is then guaranteed to it again.

mod parties;
mod search;
mod spared;

#[cfg(test)]
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use self::search::VictimSearch;
use super::amount::MilliGpus;
use super::pool::{GpuConstraints, GpuPool, PoolIndex};
use super::project::{Level, ProjectAccount};
use super::scheduler::{Phase, QuotaScheduler};
use super::size::Size;

pub(super) use self::parties::{Preemptor, Victim};

/// Members that run on surplus, each with the level of its project without it.
pub(super) struct Borrowers<'a> {
    members: Vec<(Level, Victim<'a>)>,
    highest: Option<Level>,
}

#[cfg(test)]
impl Borrowers<'_> {
    pub(super) fn projects(&self) -> BTreeSet<super::name::ProjectName> {
        self.members.iter().map(|(_, victim)| victim.project().clone()).collect()
    }
}

impl QuotaScheduler {
    /// The members beyond their projects' quotas.
    pub(super) fn borrowers(&self) -> Borrowers<'_> {
        let beyond = self.accounts.values().filter(|account| account.used > account.project.quota);
        let members: Vec<_> = beyond.flat_map(|account| self.borrowed_by(account)).collect();
        let members: Vec<_> = members.into_iter().map(|victim| (victim.account.level(), victim)).collect();
        let highest = members.iter().map(|(level, _)| *level).max();
        Borrowers { members, highest }
    }

    fn borrowed_by<'a>(&'a self, account: &'a ProjectAccount) -> Vec<Victim<'a>> {
        let mut members = self.staying(account);
        members.sort_by_key(|victim| {
            (!victim.job.spec.is_non_preemptible(), victim.is_idle, victim.binding.order)
        });
        let mut safe = MilliGpus::ZERO;
        members.retain(|victim| {
            let with = safe.plus(victim.total());
            let is_safe = with <= account.project.quota;
            safe = if is_safe { with } else { safe };
            !is_safe && !victim.job.spec.is_non_preemptible()
        });
        members
    }

    /// Members of a project that are not stopping, gangs as one.
    fn staying<'a>(&'a self, account: &'a ProjectAccount) -> Vec<Victim<'a>> {
        let here = self.bindings.iter().filter(|(_, binding)| binding.phase != Phase::Stopping);
        let victims = here.filter_map(|(id, binding)| {
            let job = self.jobs.get(&id.job).filter(|job| job.spec.project == account.project.name)?;
            let is_gang = job.spec.is_gang();
            let mut mates = is_gang.then(|| self.staying_members(id.job)).into_iter().flatten();
            if is_gang && mates.clone().next().is_some_and(|(first, _)| first != *id) {
                return None;
            }
            let is_idle = match is_gang {
                true => mates.all(|(mate, _)| self.idle.contains(&mate)),
                false => self.idle.contains(id),
            };
            Some(Victim { scheduler: self, id: *id, binding, job, account, is_idle })
        });
        victims.collect()
    }

    /// GPUs for a member of the preemptor, and the victims on them beside those that its mates take.
    pub(super) fn preempt<'a>(
        &'a self,
        pool: &GpuPool,
        preemptor: &Preemptor<'a>,
        reach: &GpuConstraints<'_>,
        borrowers: &Borrowers<'a>,
        taken: &[Victim<'a>],
    ) -> Option<(Vec<PoolIndex>, Vec<Victim<'a>>)> {
        let mut victims = self.candidates_for(preemptor, borrowers);
        victims.retain(|victim| !taken.iter().any(|known| known.id == victim.id));
        if victims.is_empty() {
            return None;
        }
        let search = VictimSearch { pool, preemptor, victims: victims.clone(), taken };
        let found = match preemptor.shape.size {
            Size::Part(_) => search.part(reach),
            Size::Whole(count) => search.whole(reach, count.get() as usize),
        };
        let (_, indices, chosen) = found?;
        victims.retain(|victim| chosen.contains(&victim.id));
        Some((indices, victims))
    }

    /// The members that this preemptor may preempt, each considered alone.
    fn candidates_for<'a>(&'a self, preemptor: &Preemptor<'a>, borrowers: &Borrowers<'a>) -> Vec<Victim<'a>> {
        if preemptor.displaces_its_own() {
            let own = self
                .staying(preemptor.account)
                .into_iter()
                .filter(|own| !own.job.spec.is_non_preemptible() && !own.is_slice());
            let others = borrowers.members.iter().map(|(_, victim)| *victim);
            return own.chain(others.filter(|other| !preemptor.is(other.project()))).collect();
        }
        let entitled = preemptor.is_within_quota(MilliGpus::ZERO);
        let level = preemptor.account.level();
        if !entitled && borrowers.highest.is_none_or(|highest| highest <= level) {
            return Vec::new();
        }
        let asked = borrowers.members.iter().filter(|(without, _)| entitled || *without > level);
        let others = asked.map(|(_, victim)| *victim).filter(|victim| !preemptor.is(victim.project()));
        others.filter(|victim| entitled || !victim.is_slice()).collect()
    }
}
