//! Whose turn it is.
//!
//! Each decision is made anew from what is known, in three steps: who keeps its turn, who gets one, and who of these
//! may begin because what the former holder left is nearly done.

mod leases;

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::compute::member::Member;
use crate::compute::rules::Rules;
use crate::compute::terms::{Lease, Priority};
use crate::compute::time::{Instant, Nanos};
use crate::id::SliceName;
use crate::units::Permille;

/// The shortest time for which it is worth setting an alarm.
const GLANCE: Nanos = Nanos::micros(50);

/// What is decided on one slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    pub(super) lease: Lease,
    pub(super) fills: bool,
    pub(super) spared: bool,
    pub(super) reason: Reason,
}

/// Why a slice runs or not; others by their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Running,
    NoWork,
    Limit,
    Frozen,
    Behind(usize),
    Over(usize),
}

/// What is decided on all slices, in their order.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) verdicts: Vec<Verdict>,
    pub(super) look_again: Option<Instant>,
}

/// One decision in the making.
pub(super) struct Round<'a> {
    now: Instant,
    rules: &'a Rules,
    slices: &'a [(SliceName, Member)],
    /// Whose GPU has time to spare.
    relaxed: &'a [bool],
    /// Who may have a turn, the first first.
    order: Vec<usize>,
    /// Who has one.
    chosen: Vec<usize>,
    /// Who has one, and nothing more to do with it.
    leavers: Vec<usize>,
    look_again: Option<Instant>,
}

impl<'a> Round<'a> {
    pub(super) fn new(
        now: Instant,
        rules: &'a Rules,
        slices: &'a [(SliceName, Member)],
        relaxed: &'a [bool],
    ) -> Self {
        let (order, chosen, leavers) = (Vec::new(), Vec::new(), Vec::new());
        Self { now, rules, slices, relaxed, order, chosen, leavers, look_again: None }
    }

    pub(super) fn decide(mut self) -> Outcome {
        self.rank();
        self.choose();
        let verdicts = (0..self.slices.len()).map(|at| self.judge(at)).collect();
        self.watch_tails();
        Outcome { verdicts, look_again: self.look_again }
    }

    fn at(&self, at: usize) -> &'a Member {
        &self.slices[at].1
    }

    fn look_in(&mut self, time: Nanos) {
        let at = self.now + time.max(GLANCE);
        self.look_again = Some(self.look_again.map_or(at, |other| other.min(at)));
    }

    /// Everybody else who shares a GPU with a slice.
    fn others(&self, at: usize) -> impl Iterator<Item = usize> + use<'a> {
        let slices = self.slices;
        let mine = &slices[at].1;
        (0..slices.len()).filter(move |other| *other != at && slices[*other].1.shares_gpu_with(mine))
    }
}

/// Who goes before whom.
impl Round<'_> {
    fn rank(&mut self) {
        let mut order: Vec<usize> = (0..self.slices.len()).filter(|at| self.may_run(*at)).collect();
        let first = order.first().map(|at| self.at(*at).terms.priority);
        let mixed = order.iter().any(|at| Some(self.at(*at).terms.priority) != first);
        order.sort_by_key(|at| (self.tier(*at, mixed), self.at(*at).clock, *at));
        self.order = order;
    }

    fn may_run(&self, at: usize) -> bool {
        let member = self.at(at);
        member.wants() && !member.terms.frozen && !member.limited && !member.is_stalled(self.now, self.rules)
    }

    /// The starved first; then who has less than it was promised, where there are priorities at all; then by
    /// priority. Who was promised nothing comes last, unless its priority is high.
    fn tier(&self, at: usize, mixed: bool) -> (bool, u8, Reverse<Priority>) {
        let member = self.at(at);
        let promised = member.terms.request > Permille::ZERO;
        let class = match (promised, mixed) {
            (true, false) => 0,
            (true, true) => u8::from(!member.is_owed()),
            (false, _) => 1 + u8::from(member.terms.priority <= Priority::DEFAULT),
        };
        (!self.is_starved(at), class, Reverse(member.terms.priority))
    }

    fn mixed(&self) -> bool {
        let mut priorities = self.order.iter().map(|at| self.at(*at).terms.priority);
        let first = priorities.next();
        priorities.any(|other| Some(other) != first)
    }

    fn is_starved(&self, at: usize) -> bool {
        let member = self.at(at);
        let bound = self.rules.starved + member.seen.longest.scaled(20, 1);
        member.waits_since.is_some_and(|since| self.now.since(since) >= bound)
    }

    /// The first in order that wants a GPU of this slice and is not open.
    fn challenger(&self, at: usize) -> Option<usize> {
        let mine = self.at(at);
        let rival = |other: &&usize| {
            **other != at && !self.at(**other).is_open() && self.at(**other).shares_gpu_with(mine)
        };
        self.order.iter().find(rival).copied()
    }
}

/// Who has a turn.
impl Round<'_> {
    fn choose(&mut self) {
        let order = self.order.clone();
        let mixed = self.mixed();
        let mut keepers = Vec::new();
        for at in 0..self.slices.len() {
            let member = self.at(at);
            let idle = !member.wants();
            if !member.is_open() || member.limited || member.terms.frozen || !idle && !order.contains(&at) {
                continue;
            }
            match self.challenger(at) {
                Some(_) if self.turn_ends(at, mixed) => {}
                Some(_) if self.rules.width > 1 && idle => {}
                Some(_) if self.rules.width <= 1 && member.is_drying(self.now, self.rules) => {
                    self.leavers.push(at);
                }
                None if idle => {}
                _ => keepers.push(at),
            }
        }
        keepers.sort_by_key(|at| order.iter().position(|other| other == at));
        let rest: Vec<usize> = order.into_iter().filter(|at| !self.leavers.contains(at)).collect();
        for at in keepers.into_iter().chain(rest) {
            if !self.is_held_back(at) {
                self.claim(at);
            }
        }
        self.leavers.clone().into_iter().for_each(|at| self.claim(at));
    }

    /// Takes a turn if all its GPUs are free: never some of them, so that nobody waits holding what another needs.
    fn claim(&mut self, at: usize) {
        let mine = self.at(at);
        let free = mine.terms.gpus.iter().all(|gpu| {
            let holders = self.chosen.iter().filter(|other| self.at(**other).terms.gpus.contains(gpu));
            holders.count() < self.rules.width.max(1) as usize
        });
        if free && !self.chosen.contains(&at) && self.is_within_window(at) {
            self.chosen.push(at);
        }
    }

    /// Beside others only those run that are not far ahead of the last.
    fn is_within_window(&self, at: usize) -> bool {
        let mine = self.at(at);
        let rivals = self.order.iter().filter(|other| self.at(**other).shares_gpu_with(mine));
        let last = rivals.min_by_key(|other| self.at(**other).clock);
        self.rules.width <= 1 || last.is_none_or(|last| mine.lead_over(self.at(*last)) <= self.rules.lead)
    }

    /// Whether a slice has to leave the GPU idle: another is about to come back which it is far ahead of, or to which
    /// the time was promised, and it cannot be done before.
    fn is_held_back(&mut self, at: usize) -> bool {
        let mine = self.at(at);
        if self.rules.width > 1 {
            return false;
        }
        let mut held = false;
        for other in self.others(at) {
            let other_is = self.at(other);
            if !self.is_away(other) || other_is.terms.frozen || other_is.limited {
                continue;
            }
            let first = if mine.terms.request > Permille::ZERO {
                mine.lead_over(other_is) > self.rules.lead
            } else {
                other_is.terms.request > Permille::ZERO && other_is.is_owed()
            };
            let Some(left) = other_is.returns_in(self.now, self.rules) else { continue };
            if first && left + self.rules.overlap < mine.seen.kernel {
                held = true;
                self.look_in(self.rules.grace + left);
            }
        }
        held
    }

    /// How long a turn is: the shorter the more want one, so that rounds stay short.
    fn quantum(&self, at: usize) -> Nanos {
        let mine = self.at(at);
        let wanting = self.order.iter().filter(|other| self.at(**other).shares_gpu_with(mine)).count() as u64;
        let most = if mine.is_erratic(self.rules) { Nanos::ZERO } else { self.rules.quantum };
        self.rules.round.scaled(1, wanting).min(most).max(self.rules.least_quantum)
    }

    fn turn_ends(&self, at: usize, mixed: bool) -> bool {
        let mine = self.at(at);
        let Some(challenger) = self.challenger(at) else { return false };
        let rival = self.at(challenger);
        let (my_tier, its_tier) = (self.tier(at, mixed), self.tier(challenger, mixed));
        if mine.spared && mine.seen.outstanding == Nanos::ZERO {
            return false;
        }
        if its_tier != my_tier {
            return its_tier < my_tier;
        }
        let behind = rival.clock < mine.clock;
        let waited = rival.waits_since.map_or(Nanos::ZERO, |since| self.now.since(since));
        let passed_over = rival.terms.gpus.len() > 1 && waited > self.rules.quantum.scaled(2, 1);
        let woke = rival.woke && mine.lead_over(rival) > self.rules.preempt;
        let over = mine.turn >= self.quantum(at) || mine.fills || self.rules.width > 1;
        passed_over || behind && (over || woke)
    }
}
