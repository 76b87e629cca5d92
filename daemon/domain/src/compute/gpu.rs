//! The scheduler's state of one GPU.

use alloc::vec::Vec;

use crate::compute::charge::{Use, split};
use crate::compute::member::SliceState;
use crate::compute::rules::Rules;
use crate::compute::time::{Instant, Nanos};
use crate::id::{GpuUuid, SliceName};
use crate::units::Permille;

/// All slices, by their places.
type Slices = [(SliceName, SliceState)];

/// Time for which use is watched before a conclusion.
const WATCH: Nanos = Nanos::millis(20);
/// Time for which turns stay after there was no time to spare.
const LESSON: Nanos = Nanos::millis(1000);
/// Greatest sum of uses in permille, each as if alone on the GPU, with time to spare.
///
/// A little more than all of it, as changes of contexts are in it.
const FULL: u64 = 1150;
/// Kernels shorter than this end before a turn can be handed over.
const BRIEF: Nanos = Nanos::micros(300);

/// The scheduler's state of one GPU.
#[derive(Clone, Debug)]
pub(super) struct ScheduledGpu {
    pub(super) uuid: GpuUuid,
    /// The slices that have it, and its place among the GPUs of each.
    pub(super) places: Vec<(usize, usize)>,
    /// Virtual time below which no slice begins.
    pub(super) floor: u128,
    watched_since: Instant,
    /// Busy time of each of its slices since then, beside others or not.
    busy: Vec<Nanos>,
    relaxed: bool,
    not_before: Instant,
    /// Present use by each of its slices.
    uses: Vec<Use>,
    /// Virtual time by which each of its slices was behind the others when it had the GPU.
    lags: Vec<u128>,
}

impl ScheduledGpu {
    pub(super) const fn new(now: Instant, uuid: GpuUuid) -> Self {
        Self {
            uuid,
            places: Vec::new(),
            floor: 0,
            watched_since: now,
            busy: Vec::new(),
            relaxed: false,
            not_before: now,
            uses: Vec::new(),
            lags: Vec::new(),
        }
    }

    /// Tests if turns are off.
    ///
    /// All slices launch a little now and then, and hand-overs would take longer than their work.
    pub(super) const fn is_relaxed(&self) -> bool {
        self.relaxed
    }

    /// Removes all slices, until they are entered anew.
    pub(super) fn vacate(&mut self, now: Instant) {
        self.places.clear();
        self.lags.clear();
        self.begin_watch(now);
    }

    fn begin_watch(&mut self, now: Instant) {
        self.watched_since = now;
        self.busy.clear();
    }

    /// Divides a time that passed among the slices with work outstanding here.
    pub(super) fn charge(&mut self, now: Instant, passed: Nanos, slices: &mut Slices, rules: &Rules) {
        let uses = self.places.iter().map(|(at, device)| {
            let member = &slices[*at].1;
            let first = if member.is_open() { Nanos::ZERO } else { member.tail };
            Use {
                busy: member.used[*device],
                first,
                late: member.late(now, rules),
                contexts: member.seen.contexts,
                charged: Nanos::ZERO,
            }
        });
        self.uses.clear();
        self.uses.extend(uses);
        self.busy.resize(self.places.len(), Nanos::ZERO);
        for (busy, since) in self.busy.iter_mut().zip(&self.uses) {
            *busy += since.busy.min(passed);
        }
        split(passed, &mut self.uses);
        for ((at, device), own) in self.places.iter().zip(&self.uses) {
            let member = &mut slices[*at].1;
            member.used[*device] = own.charged;
            if !member.is_open() {
                member.tail = own.first;
            }
        }
    }

    /// Bounds the time by which each slice is behind the others that want the GPU.
    ///
    /// The bound is [`Rules::lag`], or the lag that it had during a turn for which it had waited. Time that it did not want,
    /// or wanted only until its turn came, is not owed to it.
    pub(super) fn bound_lags(&mut self, now: Instant, slices: &mut Slices, rules: &Rules) {
        let least = self.two_least(now, slices, rules);
        self.lags.resize(self.places.len(), 0);
        for ((at, _), kept) in self.places.iter().zip(&mut self.lags) {
            let member = &mut slices[*at].1;
            let behind = lag(*at, member, least);
            if member.has_turn() && member.wants() && member.passage.had_waited() {
                *kept = behind;
            } else if !member.seen.waiting {
                member.clock += behind.saturating_sub(member.paces(rules.lag).max(*kept));
                *kept = (*kept).min(behind);
            }
        }
    }

    /// The two slices with the least virtual time among those that want the GPU, and that time.
    fn two_least(&self, now: Instant, slices: &Slices, rules: &Rules) -> [Option<(u128, usize)>; 2] {
        let mut least: [Option<(u128, usize)>; 2] = [None, None];
        for (at, _) in &self.places {
            let member = &slices[*at].1;
            if !member.counts(now, rules) || !member.wants() {
                continue;
            }
            let own = (member.clock, *at);
            least = match least {
                [first, _] if first.is_none_or(|first| own < first) => [Some(own), first],
                [first, second] if second.is_none_or(|second| own < second) => [first, Some(own)],
                both => both,
            };
        }
        least
    }

    /// Updates the floor, and the state of time to spare, after a charge.
    pub(super) fn weigh(&mut self, now: Instant, slices: &mut Slices, rules: &Rules) {
        self.raise_floor(now, slices, rules);
        if self.ends_relaxing(now, slices, rules) {
            // Time that no slice lacked is owed to none.
            let most = self.members(slices).map(|member| member.clock).max().unwrap_or(0);
            self.places.iter().for_each(|(at, _)| slices[*at].1.clock = most);
        }
    }

    fn members<'a>(&'a self, slices: &'a Slices) -> impl Iterator<Item = &'a SliceState> + Clone {
        self.places.iter().map(|(at, _)| &slices[*at].1)
    }

    fn raise_floor(&mut self, now: Instant, slices: &Slices, rules: &Rules) {
        let active = self.members(slices).filter(|member| {
            member.counts(now, rules) && !member.rejoins && member.wanted_within(now, rules.hysteresis)
        });
        let least = active.map(|member| member.clock).min().unwrap_or(0);
        self.floor = self.floor.max(least);
    }

    fn ends_relaxing(&mut self, now: Instant, slices: &Slices, rules: &Rules) -> bool {
        let watched = now.since(self.watched_since);
        let was_relaxed = self.relaxed;
        if !was_relaxed && watched < WATCH {
            return false;
        }
        let active =
            self.members(slices).filter(|member| member.wanted_within(now, rules.about)).count() as u64;
        // Beside others a kernel seems to take as many times as long as there are.
        let brief = BRIEF.scaled(if was_relaxed { active } else { 1 }, 1);
        let apt = are_light(now, self.members(slices), brief, rules);
        self.relaxed &= apt;
        if watched >= WATCH {
            let demand = if was_relaxed {
                self.demand_beside(active, watched)
            } else {
                self.demand_in_turns(now, slices, rules)
            };
            self.relaxed = apt && now >= self.not_before && demand <= FULL;
            self.begin_watch(now);
        }
        if was_relaxed && !self.relaxed {
            self.not_before = now + LESSON;
        }
        was_relaxed && !self.relaxed
    }

    /// Sum of the uses of all slices, each as if alone on the GPU, in permille of the time.
    ///
    /// In turns, each is idle for a gap and then busy for a stint without the work of others. Slices that wanted nothing lately
    /// are left out.
    fn demand_in_turns(&self, now: Instant, slices: &Slices, rules: &Rules) -> u64 {
        let used = self.members(slices).filter(|member| member.wanted_within(now, rules.about));
        // A slice that is busy for longer at a time needs turns, and so do others beside it.
        let demand = |member: &SliceState| match member.rhythm.stint > rules.least_quantum {
            true => FULL + 1,
            false => part_of(member.rhythm.stint, member.rhythm.gap),
        };
        used.map(demand).sum()
    }

    /// The same sum where slices launch beside each other.
    ///
    /// Without time to spare each is busy for as many times as long as there are slices.
    fn demand_beside(&self, active: u64, watched: Nanos) -> u64 {
        self.busy.iter().map(|busy| part_of(*busy, (watched - *busy).scaled(active, 1))).sum()
    }
}

/// Virtual time by which a slice is behind the first of two that is another.
fn lag(at: usize, member: &SliceState, least: [Option<(u128, usize)>; 2]) -> u128 {
    let other = least.into_iter().flatten().find(|(_, other)| *other != at);
    other.map_or(0, |(clock, _)| clock.saturating_sub(member.clock))
}

/// A length in permille of the sum of it and another.
fn part_of(length: Nanos, rest: Nanos) -> u64 {
    length.scaled(1000, (length + rest).get()).get()
}

/// Tests if several slices of equal rank want the GPU, each of which waits for its own brief kernels.
fn are_light<'a>(
    now: Instant,
    members: impl Iterator<Item = &'a SliceState>,
    brief: Nanos,
    rules: &Rules,
) -> bool {
    let mut active = members.filter(|member| member.wanted_within(now, rules.about)).peekable();
    let Some(first) = active.peek() else { return false };
    let rank = (first.terms.priority, first.terms.request > Permille::ZERO);
    let mut count = 0;
    let light = active.all(|member| {
        count += 1;
        member.waits_for_itself()
            && member.admits_idleness()
            && member.seen.kernel < brief
            && !member.limited
            && member.terms.gpus.len() == 1
            && member.mates.is_empty()
            && (member.terms.priority, member.terms.request > Permille::ZERO) == rank
    });
    light && count > 1
}
