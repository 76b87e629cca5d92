//! One GPU as the arbiter knows it.

use alloc::vec::Vec;

use crate::compute::charge;
use crate::compute::member::Member;
use crate::compute::rules::Rules;
use crate::compute::time::{Instant, Nanos};
use crate::id::{GpuUuid, SliceName};
use crate::units::Permille;

/// All slices, by their places.
type Slices = [(SliceName, Member)];

/// How long use is watched before anything is concluded from it.
const WATCH: Nanos = Nanos::millis(20);
/// How long turns are kept after there turned out to be no time to spare.
const LESSON: Nanos = Nanos::millis(1000);
/// Below this part of the time in use there is time to spare, in permille.
const LITTLE: u64 = 750;
/// Above this part there is none.
const MUCH: u64 = 900;
/// Kernels shorter than this end before a turn can be handed over.
const BRIEF: Nanos = Nanos::micros(300);

/// One GPU.
#[derive(Clone, Debug)]
pub(super) struct Gpu {
    pub(super) uuid: GpuUuid,
    /// The slices that have it, and its place among the GPUs of each.
    pub(super) places: Vec<(usize, usize)>,
    /// The virtual time below which nobody begins.
    pub(super) floor: u128,
    watched_since: Instant,
    used: Nanos,
    relaxed: bool,
    not_before: Instant,
    /// What each of its slices is charged at the moment.
    charged: Vec<Nanos>,
}

impl Gpu {
    pub(super) const fn new(now: Instant, uuid: GpuUuid) -> Self {
        Self {
            uuid,
            places: Vec::new(),
            floor: 0,
            watched_since: now,
            used: Nanos::ZERO,
            relaxed: false,
            not_before: now,
            charged: Vec::new(),
        }
    }

    /// Whether turns are not worth their while: everybody launches a little now and then, and handing turns over
    /// would take longer than what they run.
    pub(super) const fn is_relaxed(&self) -> bool {
        self.relaxed
    }

    /// Divides a time that passed among those who had work outstanding here.
    pub(super) fn charge(&mut self, passed: Nanos, slices: &mut Slices) {
        self.charged.clear();
        self.charged.extend(self.places.iter().map(|(at, device)| slices[*at].1.used[*device]));
        charge::split(passed, &mut self.charged);
        for ((at, device), charged) in self.places.iter().zip(&self.charged) {
            slices[*at].1.used[*device] = *charged;
        }
    }

    /// Takes in what was charged: from where newcomers begin, and whether there is time to spare.
    pub(super) fn weigh(&mut self, now: Instant, slices: &mut Slices, rules: &Rules) {
        self.raise_floor(now, slices, rules);
        if self.ends_relaxing(now, slices, rules) {
            // Nobody owes anybody for time that nobody lacked.
            let most = self.members(slices).map(|member| member.clock).max().unwrap_or(0);
            self.places.iter().for_each(|(at, _)| slices[*at].1.clock = most);
        }
    }

    fn members<'a>(&'a self, slices: &'a Slices) -> impl Iterator<Item = &'a Member> + Clone {
        self.places.iter().map(|(at, _)| &slices[*at].1)
    }

    fn raise_floor(&mut self, now: Instant, slices: &Slices, rules: &Rules) {
        let active = self.members(slices).filter(|member| {
            member.terms.request > Permille::ZERO
                && !member.terms.frozen
                && !member.rejoins
                && member.wanted_within(now, rules.hysteresis)
        });
        let least = active.map(|member| member.clock).min().unwrap_or(0);
        self.floor = self.floor.max(least);
    }

    fn ends_relaxing(&mut self, now: Instant, slices: &Slices, rules: &Rules) -> bool {
        self.used += self.charged.iter().copied().sum();
        let watched = now.since(self.watched_since);
        let was_relaxed = self.relaxed;
        if !was_relaxed && watched < WATCH {
            return false;
        }
        let apt = are_light(now, self.members(slices), rules);
        self.relaxed &= apt;
        if watched >= WATCH {
            let part = self.used.get().saturating_mul(1000) / watched.get();
            self.relaxed = apt && now >= self.not_before && part < if was_relaxed { MUCH } else { LITTLE };
            (self.watched_since, self.used) = (now, Nanos::ZERO);
        }
        if was_relaxed && !self.relaxed {
            self.not_before = now + LESSON;
        }
        was_relaxed && !self.relaxed
    }
}

/// Whether several want the GPU, all alike in rank, each waiting for its own brief kernels.
fn are_light<'a>(now: Instant, members: impl Iterator<Item = &'a Member>, rules: &Rules) -> bool {
    let mut active = members.filter(|member| member.wanted_within(now, rules.about)).peekable();
    let Some(first) = active.peek() else { return false };
    let rank = (first.terms.priority, first.terms.request > Permille::ZERO);
    let mut count = 0;
    let light = active.all(|member| {
        count += 1;
        member.waits_for_itself()
            && member.seen.kernel < BRIEF
            && !member.limited
            && member.terms.gpus.len() == 1
            && (member.terms.priority, member.terms.request > Permille::ZERO) == rank
    });
    light && count > 1
}
