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

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::amount::MilliGpus;
use super::board::{Board, Phase, Seat};
use super::choose::{choices, combinations, subsets};
use super::floor::{Reach, Spot, Tile};
use super::job::{Job, MemberId, Size};
use super::name::ProjectName;
use super::project::{Account, Level, Shape};

/// On a GPU with more candidates than this the smallest set is approximated.
const EXACT: usize = 12;
/// With more choices of GPUs than this likewise.
const CHOICES: usize = 20_000;

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

/// Newest first, for the choice among victims that are alike.
type Newest = Reverse<u64>;

/// What makes one set of victims better than another: in this order, the least.
type Rank = (bool, MilliGpus, usize, Reverse<Level>, Vec<Newest>);

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

/// A set of GPUs, who leaves them, and how good that is.
type Found = (Rank, Vec<Spot>, Vec<MemberId>);

struct Search<'a> {
    board: &'a Board,
    claimant: &'a Claimant<'a>,
    victims: Vec<Victim<'a>>,
}

impl<'a> Search<'a> {
    /// For a part of one GPU.
    fn part(&self, reach: &Reach<'_>) -> Option<Found> {
        let spots = self.board.floor.reachable(reach);
        spots.filter_map(|(spot, tile)| self.part_of(spot, tile)).min()
    }

    fn part_of(&self, spot: Spot, tile: &Tile) -> Option<Found> {
        let part = self.claimant.shape.size.of_each();
        let here: Vec<Victim<'a>> = self.on(spot).collect();
        let frees = |set: &[Victim<'a>]| tile.free_without(set.iter().map(Victim::of_each).sum()) >= part;
        let sets = few_of(here, &frees).into_iter();
        let enough = sets.filter(|set| frees(set));
        enough.filter_map(|set| self.judge(set, alloc::vec![spot])).min()
    }

    /// For whole GPUs of one island.
    fn whole(&self, reach: &Reach<'_>, count: usize) -> Option<Found> {
        let islands = self.board.floor.islands(reach);
        islands.into_values().filter_map(|spots| self.whole_of(&spots, count)).min()
    }

    fn whole_of(&self, spots: &[Spot], count: usize) -> Option<Found> {
        let mut clearable: Vec<Spot> = spots.iter().copied().filter(|spot| self.can_clear(*spot)).collect();
        if clearable.len() < count {
            return None;
        }
        if choices(clearable.len(), count) > CHOICES {
            clearable.sort_by_cached_key(|spot| (total(&self.on(*spot).collect::<Vec<_>>()), *spot));
            clearable.truncate(count);
        }
        let sets = combinations(&clearable, count).into_iter();
        sets.filter_map(|spots| self.judge(self.on_any(&spots), spots)).min()
    }

    /// How good it is that a set leaves these GPUs, and if that is better, some more of the claimant's own elsewhere.
    fn judge(&self, set: Vec<Victim<'a>>, spots: Vec<Spot>) -> Option<Found> {
        let sets = [Some(&set), self.with_more_of_its_own(&set).as_ref()].map(|set| {
            let set = set?;
            Some((self.rank(set)?, ids(set)))
        });
        let (rank, ids) = sets.into_iter().flatten().min()?;
        Some((rank, spots, ids))
    }

    /// A set, with as few of the claimant's own besides as make its claim the better one.
    fn with_more_of_its_own(&self, set: &[Victim<'a>]) -> Option<Vec<Victim<'a>>> {
        if !self.claimant.displaces_its_own() {
            return None;
        }
        let (here, given) = (ids(set), self.given(set));
        let enough = |more: &[Victim<'_>]| self.is_better(given.own.plus(total(more)), &given);
        let own = self.victims.iter().filter(|victim| self.claimant.is(victim.project()));
        let elsewhere = own.filter(|own| !here.contains(&own.id));
        let sets = few_of(elsewhere.copied().collect(), &enough).into_iter().filter(|more| enough(more));
        let more = sets.min_by_key(|more| (total(more), more.len(), newest(more)))?;
        Some(set.iter().copied().chain(more).collect())
    }

    /// Whether a GPU would be empty without those who can be asked to leave.
    fn can_clear(&self, spot: Spot) -> bool {
        let freed: MilliGpus = self.on(spot).map(|victim| victim.of_each()).sum();
        self.board.floor.tile(spot).free_without(freed) == MilliGpus::ONE
    }

    fn on(&self, spot: Spot) -> impl Iterator<Item = Victim<'a>> {
        self.victims.iter().filter(move |victim| victim.seat.spots.contains(&spot)).copied()
    }

    fn on_any(&self, spots: &[Spot]) -> Vec<Victim<'a>> {
        let here = |victim: &&Victim<'a>| victim.seat.spots.iter().any(|spot| spots.contains(spot));
        self.victims.iter().filter(here).copied().collect()
    }

    /// How good a set of victims is; nothing if the claim is no better than theirs.
    fn rank(&self, set: &[Victim<'a>]) -> Option<Rank> {
        let given = self.given(set);
        let below = given.left().any(|(account, left)| left < account.project.quota);
        let highest = set.iter().map(|victim| victim.account.level()).max()?;
        let is_better = self.is_better(given.own, &given);
        is_better.then(|| (below, total(set), set.len(), Reverse(highest), newest(set)))
    }

    fn given(&self, set: &[Victim<'a>]) -> Given<'a> {
        let mut given = Given { own: MilliGpus::ZERO, others: BTreeMap::new() };
        for victim in set {
            let sum = match self.claimant.is(victim.project()) {
                true => &mut given.own,
                false => {
                    &mut given.others.entry(victim.project()).or_insert((victim.account, MilliGpus::ZERO)).1
                }
            };
            *sum = sum.plus(victim.total());
        }
        given
    }

    /// Whether the claim is better than that of each project that gives, if the claimant itself gives so much.
    fn is_better(&self, own: MilliGpus, given: &Given<'_>) -> bool {
        let level = self.claimant.account.level_with(self.claimant.account.used.less(own));
        self.claimant.is_within_quota(own)
            || given.left().all(|(account, left)| account.level_with(left) > level)
    }
}

/// What a set of victims has: those of the claimant's own project, and those of others.
struct Given<'a> {
    own: MilliGpus,
    others: BTreeMap<&'a ProjectName, (&'a Account, MilliGpus)>,
}

impl Given<'_> {
    /// The projects of others, with what each has left.
    fn left(&self) -> impl Iterator<Item = (&Account, MilliGpus)> {
        self.others.values().map(|(account, sum)| (*account, account.used.less(*sum)))
    }
}

fn total(set: &[Victim<'_>]) -> MilliGpus {
    set.iter().map(Victim::total).sum()
}

fn ids(set: &[Victim<'_>]) -> Vec<MemberId> {
    let ids: BTreeSet<MemberId> = set.iter().map(|victim| victim.id).collect();
    ids.into_iter().collect()
}

fn newest(set: &[Victim<'_>]) -> Vec<Newest> {
    set.iter().map(|victim| Reverse(victim.seat.order)).collect()
}

/// The sets to choose from: all, or one that is about as small as can be where they are many.
fn few_of<'a>(all: Vec<Victim<'a>>, enough: &impl Fn(&[Victim<'a>]) -> bool) -> Vec<Vec<Victim<'a>>> {
    if all.len() <= EXACT { subsets(&all) } else { alloc::vec![smaller_and_smaller(all, enough)] }
}

/// All, without those that are not needed; the largest are left out first.
fn smaller_and_smaller<'a>(
    mut all: Vec<Victim<'a>>,
    enough: &impl Fn(&[Victim<'a>]) -> bool,
) -> Vec<Victim<'a>> {
    all.sort_by_key(|victim| (victim.total(), victim.seat.order));
    for at in (0..all.len()).rev() {
        let mut fewer = all.clone();
        fewer.remove(at);
        if enough(&fewer) {
            all = fewer;
        }
    }
    all
}
