//! Who gives back, when somebody has a better claim: the smallest set of victims that makes the room.
//!
//! Of a project's members those within its quota are safe: the lasting ones first, then as they started, as far as they fit
//! into the quota together. The others it runs on what others do not want. They are taken
//! - by a project that stays within its quota with what it gets, or
//! - by one that has borrowed less for its weight than they have even without what they give.
//!
//! So whoever has the least for its weight comes to more, and nobody comes to as little as it had. That cannot go on for
//! ever, even if what a victim leaves is more than what was asked for and somebody else gets the rest.
//!
//! A lasting job of a project that has its quota full of training takes the place of that training; where that place is of
//! no use to it, the training gives back what it takes elsewhere.
//!
//! As long as there is another way no victim's project falls below its quota. With a job larger than what its project is
//! beyond its quota it may: what it was promised is then free for it to ask for.

mod search;

#[cfg(test)]
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use self::search::Search;
use super::amount::MilliGpus;
use super::board::{Board, Phase, Seat};
use super::floor::{Reach, Spot};
use super::job::{Job, MemberId, Size};
use super::name::ProjectName;
use super::project::{Account, Level, Shape};

/// Who wants room.
pub(super) struct Claimant<'a> {
    pub(super) account: &'a Account,
    pub(super) shape: Shape,
}

/// A member that somebody could take the place of.
#[derive(Clone, Copy)]
pub(super) struct Victim<'a> {
    id: MemberId,
    seat: &'a Seat,
    job: &'a Job,
    account: &'a Account,
}

/// The members that run on what others do not want, with the level of each one's project without it.
pub(super) struct Borrowers<'a> {
    members: Vec<(Level, Victim<'a>)>,
    highest: Option<Level>,
}

impl<'a> Victim<'a> {
    fn project(&self) -> &'a ProjectName {
        &self.job.spec.project
    }

    fn total(&self) -> MilliGpus {
        self.job.spec.size.total()
    }

    fn of_each(&self) -> MilliGpus {
        self.job.spec.size.of_each()
    }
}

#[cfg(test)]
impl Borrowers<'_> {
    pub(super) fn projects(&self) -> BTreeSet<ProjectName> {
        self.members.iter().map(|(_, victim)| victim.project().clone()).collect()
    }
}

impl Claimant<'_> {
    fn used_after(&self, own: MilliGpus) -> MilliGpus {
        self.account.used.plus(self.shape.size.total()).less(own)
    }

    fn is_within_quota(&self, own: MilliGpus) -> bool {
        self.used_after(own) <= self.account.project.quota
    }

    /// Whether its own project's training makes way for it.
    pub(super) fn displaces_its_own(&self) -> bool {
        self.shape.lasting
            && !self.is_within_quota(MilliGpus::ZERO)
            && self.account.may_last(self.shape.size.total())
    }

    fn is(&self, project: &ProjectName) -> bool {
        self.account.project.name == *project
    }
}

impl Board {
    /// The members beyond their projects' quotas.
    pub(super) fn borrowers(&self) -> Borrowers<'_> {
        let beyond = self.accounts.values().filter(|account| account.used > account.project.quota);
        let members: Vec<_> = beyond.flat_map(|account| self.borrowed_by(account)).collect();
        let members: Vec<_> = members.into_iter().map(|victim| (victim.account.level(), victim)).collect();
        let highest = members.iter().map(|(level, _)| *level).max();
        Borrowers { members, highest }
    }

    fn borrowed_by<'a>(&'a self, account: &'a Account) -> Vec<Victim<'a>> {
        let mut members = self.staying(account);
        members.sort_by_key(|victim| (!victim.job.spec.is_lasting(), victim.seat.order));
        let mut safe = MilliGpus::ZERO;
        members.retain(|victim| {
            let with = safe.plus(victim.total());
            let is_safe = with <= account.project.quota;
            safe = if is_safe { with } else { safe };
            !is_safe && !victim.job.spec.is_lasting()
        });
        members
    }

    /// A project's members that are not on their way out.
    fn staying<'a>(&'a self, account: &'a Account) -> Vec<Victim<'a>> {
        let here = self.seats.iter().filter(|(_, seat)| seat.phase != Phase::Stopping);
        let victims = here.filter_map(|(id, seat)| {
            let job = self.jobs.get(&id.job)?;
            Some(Victim { id: *id, seat, job, account })
        });
        victims.filter(|victim| *victim.project() == account.project.name).collect()
    }

    /// The GPUs that a claimant gets, and who has to leave them.
    pub(super) fn reclaim(
        &self,
        claimant: &Claimant<'_>,
        reach: &Reach<'_>,
        borrowers: &Borrowers<'_>,
    ) -> Option<(Vec<Spot>, Vec<MemberId>)> {
        let victims = self.within_reach(claimant, borrowers);
        if victims.is_empty() {
            return None;
        }
        let search = Search { board: self, claimant, victims };
        let found = match claimant.shape.size {
            Size::Part(_) => search.part(reach),
            Size::Whole(count) => search.whole(reach, count.get() as usize),
        };
        found.map(|(_, spots, victims)| (spots, victims))
    }

    /// Those who can be asked at all, each for itself.
    fn within_reach<'a>(&'a self, claimant: &Claimant<'a>, borrowers: &Borrowers<'a>) -> Vec<Victim<'a>> {
        if claimant.displaces_its_own() {
            let own = self.staying(claimant.account).into_iter().filter(|own| !own.job.spec.is_lasting());
            let others = borrowers.members.iter().map(|(_, victim)| *victim);
            return own.chain(others.filter(|other| !claimant.is(other.project()))).collect();
        }
        let entitled = claimant.is_within_quota(MilliGpus::ZERO);
        let level = claimant.account.level();
        if !entitled && borrowers.highest.is_none_or(|highest| highest <= level) {
            return Vec::new();
        }
        let asked = borrowers.members.iter().filter(|(without, _)| entitled || *without > level);
        asked.map(|(_, victim)| *victim).filter(|victim| !claimant.is(victim.project())).collect()
    }
}
