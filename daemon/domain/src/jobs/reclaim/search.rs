//! The smallest set of victims that makes the room, and whether its claim is the better one.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Claimant, Victim};
use crate::jobs::amount::MilliGpus;
use crate::jobs::board::Board;
use crate::jobs::choose::{choices, combinations, least_sets};
use crate::jobs::floor::{Reach, Spot, Tile};
use crate::jobs::job::MemberId;
use crate::jobs::name::ProjectName;
use crate::jobs::project::{Account, Level};

/// On a GPU with more candidates than this the smallest set is approximated.
const EXACT: usize = 12;
/// With more choices of GPUs than this likewise.
const CHOICES: usize = 20_000;

/// Newest first, for the choice among victims that are alike.
pub(super) type Newest = Reverse<u64>;

/// What makes one set of victims better than another: in this order, the least.
pub(super) type Rank = (bool, MilliGpus, usize, Reverse<Level>, Vec<Newest>);

/// A set of GPUs, who leaves them, and how good that is.
pub(super) type Found = (Rank, Vec<Spot>, Vec<MemberId>);

/// Who may be asked, by whom.
pub(super) struct Search<'a> {
    pub(super) board: &'a Board,
    pub(super) claimant: &'a Claimant<'a>,
    pub(super) victims: Vec<Victim<'a>>,
}

impl<'a> Search<'a> {
    /// For a part of one GPU.
    pub(super) fn part(&self, reach: &Reach<'_>) -> Option<Found> {
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
    pub(super) fn whole(&self, reach: &Reach<'_>, count: usize) -> Option<Found> {
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

/// The sets to choose from: those with nobody to spare, or one that is about as small as can be where they are many.
/// Somebody to spare makes no claim better but one of the claimant's own, and those are looked for by themselves.
fn few_of<'a>(all: Vec<Victim<'a>>, enough: &impl Fn(&[Victim<'a>]) -> bool) -> Vec<Vec<Victim<'a>>> {
    if all.len() <= EXACT { least_sets(&all, enough) } else { alloc::vec![smaller_and_smaller(all, enough)] }
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
