//! Search for the smallest set of victims, and comparison of claims.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::parties::{Preemptor, Victim};
use crate::jobs::amount::MilliGpus;
use crate::jobs::combinations::{choices, combinations, least_sets};
use crate::jobs::job::MemberId;
use crate::jobs::name::ProjectName;
use crate::jobs::pool::{GpuConstraints, GpuPool, PoolEntry, PoolIndex};
use crate::jobs::project::{Level, ProjectAccount};

/// Maximum number of candidates on a GPU for an exact search.
///
/// Beyond it the smallest set is approximated.
const EXACT: usize = 12;
/// Maximum number of GPU combinations for an exact search.
const CHOICES: usize = 20_000;

/// Sort key that prefers the latest binding among otherwise equal victims.
pub(super) type Newest = Reverse<u64>;

/// Cost of a set of victims, compared in this order. A project below its quota, GPUs of members that are not known to be
/// idle, all GPUs, members, users' slices, level, age.
pub(super) type Rank = (bool, MilliGpus, MilliGpus, usize, usize, Reverse<Level>, Vec<Newest>);

/// Cost, GPUs and victims of one choice.
pub(super) type Choice = (Rank, Vec<PoolIndex>, Vec<MemberId>);

/// State of a search for members whose end makes room.
pub(super) struct VictimSearch<'a> {
    pub(super) pool: &'a GpuPool,
    pub(super) preemptor: &'a Preemptor<'a>,
    pub(super) victims: Vec<Victim<'a>>,
    /// Victims for mates of the member, which are not in the pool any more.
    pub(super) taken: &'a [Victim<'a>],
}

impl<'a> VictimSearch<'a> {
    /// The best choice for a fraction of one GPU.
    pub(super) fn part(&self, reach: &GpuConstraints<'_>) -> Option<Choice> {
        let indices = self.pool.reachable(reach);
        indices.filter_map(|(index, entry)| self.part_of(index, entry)).min()
    }

    fn part_of(&self, index: PoolIndex, entry: &PoolEntry) -> Option<Choice> {
        let part = self.preemptor.shape.size.of_each();
        let here: Vec<Victim<'a>> = self.on(index).collect();
        let frees = |set: &[Victim<'a>]| {
            entry.free_without(set.iter().map(|victim| victim.part_of(index)).sum()) >= part
        };
        let sets = candidate_sets(here, &frees).into_iter();
        let enough = sets.filter(|set| frees(set));
        enough.filter_map(|set| self.judge(set, alloc::vec![index])).min()
    }

    /// The best choice of whole GPUs on one island.
    pub(super) fn whole(&self, reach: &GpuConstraints<'_>, count: usize) -> Option<Choice> {
        let islands = self.pool.islands(reach);
        islands.into_values().filter_map(|indices| self.whole_of(&indices, count)).min()
    }

    fn whole_of(&self, indices: &[PoolIndex], count: usize) -> Option<Choice> {
        let mut clearable: Vec<PoolIndex> =
            indices.iter().copied().filter(|index| self.can_clear(*index)).collect();
        if clearable.len() < count {
            return None;
        }
        if choices(clearable.len(), count) > CHOICES {
            clearable.sort_by_cached_key(|index| {
                let here: Vec<_> = self.on(*index).collect();
                (busy_total(&here), total(&here), *index)
            });
            clearable.truncate(count);
        }
        let sets = combinations(&clearable, count).into_iter();
        sets.filter_map(|indices| self.judge(self.on_any(&indices), indices)).min()
    }

    /// Cost of preempting this set, or this set and further own members elsewhere if that is cheaper.
    fn judge(&self, set: Vec<Victim<'a>>, indices: Vec<PoolIndex>) -> Option<Choice> {
        let sets = [Some(&set), self.with_own_elsewhere(&set).as_ref()].map(|set| {
            let set = set?;
            Some((self.rank(set)?, ids(set)))
        });
        let (rank, ids) = sets.into_iter().flatten().min()?;
        Some((rank, indices, ids))
    }

    /// The set, with the fewest own members elsewhere that make the claim strong enough.
    fn with_own_elsewhere(&self, set: &[Victim<'a>]) -> Option<Vec<Victim<'a>>> {
        if !self.preemptor.displaces_its_own() {
            return None;
        }
        let (here, freed) = (ids(set), self.freed(set));
        let enough = |more: &[Victim<'_>]| self.is_better(freed.own.plus(total(more)), &freed);
        let own = self.victims.iter().filter(|victim| self.preemptor.is(victim.project()));
        let elsewhere = own.filter(|own| !here.contains(&own.id));
        let sets =
            candidate_sets(elsewhere.copied().collect(), &enough).into_iter().filter(|more| enough(more));
        let more = sets.min_by_key(|more| (busy_total(more), total(more), more.len(), newest(more)))?;
        Some(set.iter().copied().chain(more).collect())
    }

    /// Tests if preempting all candidates on a GPU would empty it.
    fn can_clear(&self, index: PoolIndex) -> bool {
        let freed: MilliGpus = self.on(index).map(|victim| victim.part_of(index)).sum();
        self.pool.entry(index).free_without(freed) == MilliGpus::ONE
    }

    fn on(&self, index: PoolIndex) -> impl Iterator<Item = Victim<'a>> {
        self.victims.iter().filter(move |victim| victim.is_on(index)).copied()
    }

    fn on_any(&self, indices: &[PoolIndex]) -> Vec<Victim<'a>> {
        let here = |victim: &&Victim<'a>| indices.iter().any(|index| victim.is_on(*index));
        self.victims.iter().filter(here).copied().collect()
    }

    /// Cost of a set of victims; `None` if the claim is not stronger than theirs.
    fn rank(&self, set: &[Victim<'a>]) -> Option<Rank> {
        let freed = self.freed(set);
        let below = freed.left().any(|(account, left)| left < account.project.quota);
        let highest = set.iter().map(|victim| victim.account.level()).max()?;
        let is_better = self.is_better(freed.own, &freed);
        let slices = set.iter().filter(|victim| victim.is_slice()).count();
        let members = set.iter().map(|victim| victim.members().count()).sum();
        is_better
            .then(|| (below, busy_total(set), total(set), members, slices, Reverse(highest), newest(set)))
    }

    /// GPUs that the set and the victims for mates free.
    fn freed(&self, set: &[Victim<'a>]) -> Freed<'a> {
        let mut freed = Freed { own: MilliGpus::ZERO, others: BTreeMap::new() };
        for victim in self.taken.iter().chain(set) {
            let sum = match self.preemptor.is(victim.project()) {
                true => &mut freed.own,
                false => {
                    &mut freed.others.entry(victim.project()).or_insert((victim.account, MilliGpus::ZERO)).1
                }
            };
            *sum = sum.plus(victim.total());
        }
        freed
    }

    /// Tests if the claim is stronger than that of each losing project.
    ///
    /// `own` is the part of its own use that it gives up.
    fn is_better(&self, own: MilliGpus, freed: &Freed<'_>) -> bool {
        let level = self.preemptor.account.level_with(self.preemptor.account.used.less(own));
        self.preemptor.is_within_quota(own)
            || freed.left().all(|(account, left)| account.level_with(left) > level)
    }
}

/// GPUs that a set of victims frees: those of the preemptor's project, and those of each other project.
struct Freed<'a> {
    own: MilliGpus,
    others: BTreeMap<&'a ProjectName, (&'a ProjectAccount, MilliGpus)>,
}

impl Freed<'_> {
    /// The other projects, with the use that each has left.
    fn left(&self) -> impl Iterator<Item = (&ProjectAccount, MilliGpus)> {
        self.others.values().map(|(account, sum)| (*account, account.used.less(*sum)))
    }
}

fn total(set: &[Victim<'_>]) -> MilliGpus {
    set.iter().map(Victim::total).sum()
}

/// GPUs of members that are not known to be idle.
fn busy_total(set: &[Victim<'_>]) -> MilliGpus {
    set.iter().filter(|victim| !victim.is_idle).map(Victim::total).sum()
}

fn ids(set: &[Victim<'_>]) -> Vec<MemberId> {
    let ids: BTreeSet<MemberId> = set.iter().map(|victim| victim.id).collect();
    ids.into_iter().collect()
}

fn newest(set: &[Victim<'_>]) -> Vec<Newest> {
    set.iter().map(|victim| Reverse(victim.binding.order)).collect()
}

/// Candidate sets: all minimal ones, or one approximately minimal set if there are too many candidates. A
/// superset is never better, except with own members added, which `with_own_elsewhere` covers.
fn candidate_sets<'a>(all: Vec<Victim<'a>>, enough: &impl Fn(&[Victim<'a>]) -> bool) -> Vec<Vec<Victim<'a>>> {
    if all.len() <= EXACT { least_sets(&all, enough) } else { alloc::vec![shrink_greedily(all, enough)] }
}

/// Approximately minimal set: leaves out members that are not needed, busy and large ones first.
fn shrink_greedily<'a>(mut all: Vec<Victim<'a>>, enough: &impl Fn(&[Victim<'a>]) -> bool) -> Vec<Victim<'a>> {
    all.sort_by_key(|victim| (!victim.is_idle, victim.total(), victim.binding.order));
    for at in (0..all.len()).rev() {
        let mut fewer = all.clone();
        fewer.remove(at);
        if enough(&fewer) {
            all = fewer;
        }
    }
    all
}
