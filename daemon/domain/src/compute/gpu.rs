//! One GPU as the arbiter knows it.

use crate::compute::member::Member;
use crate::compute::rules::Rules;
use crate::compute::time::{Instant, Nanos};
use crate::units::Permille;

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
    /// The virtual time below which nobody begins.
    pub(super) floor: u128,
    watched_since: Instant,
    used: Nanos,
    relaxed: bool,
    not_before: Instant,
}

impl Gpu {
    pub(super) const fn new(now: Instant) -> Self {
        Self { floor: 0, watched_since: now, used: Nanos::ZERO, relaxed: false, not_before: now }
    }

    /// Whether turns are not worth their while: everybody launches a little now and then, and handing turns over
    /// would take longer than what they run.
    pub(super) const fn is_relaxed(&self) -> bool {
        self.relaxed
    }

    pub(super) fn raise_floor(&mut self, now: Instant, members: &[&Member], rules: &Rules) {
        let active = members.iter().filter(|member| {
            member.terms.request > Permille::ZERO
                && !member.terms.frozen
                && !member.rejoins
                && member.wanted_within(now, rules.hysteresis)
        });
        let least = active.map(|member| member.clock).min().unwrap_or(0);
        self.floor = self.floor.max(least);
    }

    /// Takes in what was used since the last time. Says whether turns begin again.
    pub(super) fn weigh(&mut self, now: Instant, used: Nanos, members: &[&Member], rules: &Rules) -> bool {
        self.used += used;
        let watched = now.since(self.watched_since);
        let was_relaxed = self.relaxed;
        let apt = are_light(now, members, rules);
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
fn are_light(now: Instant, members: &[&Member], rules: &Rules) -> bool {
    let mut active = members.iter().filter(|member| member.wanted_within(now, rules.about)).peekable();
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
