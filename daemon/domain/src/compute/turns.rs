//! Whose turn it is.
//!
//! Each decision is made anew from what is known, in three steps: who keeps its turn, who gets one, and who of these
//! may begin because what the former holder left is nearly done.

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
/// How often a slice that has the GPU to itself is looked at.
const LEISURE: Nanos = Nanos::millis(100);
/// Kernels longer than this are launched one by one while others wait: a gap between them costs little, another
/// of them in the queue much.
const LONG: Nanos = Nanos::millis(5);
/// The same while a slice of higher priority is about, which would have to wait for both.
const SHORT: Nanos = Nanos::millis(1);

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
    /// Who may have a turn, the first first.
    order: Vec<usize>,
    /// Who has one.
    chosen: Vec<usize>,
    /// Who has one, and nothing more to do with it.
    leavers: Vec<usize>,
    look_again: Option<Instant>,
}

impl<'a> Round<'a> {
    pub(super) fn new(now: Instant, rules: &'a Rules, slices: &'a [(SliceName, Member)]) -> Self {
        Self {
            now,
            rules,
            slices,
            order: Vec::new(),
            chosen: Vec::new(),
            leavers: Vec::new(),
            look_again: None,
        }
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

/// What each is told.
impl Round<'_> {
    fn judge(&mut self, at: usize) -> Verdict {
        let member = self.at(at);
        let reason = self.reason(at);
        let chosen = self.chosen.contains(&at);
        if member.terms.frozen || member.limited && !chosen {
            self.watch_limit(at);
            return self.closed(at, reason);
        }
        if !member.wants() {
            return self.judge_idle(at, chosen, reason);
        }
        if member.is_stalled(self.now, self.rules) {
            // It may go on whenever it can. Nobody waits for it.
            let lease = Lease { open: true, depth: self.rules.overlap, least: 1, bell: true, frozen: false };
            return Verdict { lease, fills: true, spared: false, reason };
        }
        if !chosen {
            self.watch_starving(at);
            return self.closed(at, reason);
        }
        if !member.is_open() && !self.is_clear(at) {
            return self.closed(at, reason);
        }
        self.watch_holder(at);
        self.opened(at)
    }

    /// Who is idle keeps what it has until somebody else gets it; who is above all others stays open.
    fn judge_idle(&mut self, at: usize, chosen: bool, reason: Reason) -> Verdict {
        let member = self.at(at);
        let alone = self.others(at).next().is_none();
        let stays = member.is_open() && !self.others(at).any(|other| self.chosen.contains(&other));
        if chosen {
            self.look_in(self.rules.grace);
        }
        if alone || chosen || stays || self.is_above_all(at) {
            return Verdict { reason, ..self.opened(at) };
        }
        self.closed(at, reason)
    }

    /// Whether it is of a higher priority than everybody who might want its GPUs, and has not used up what it was
    /// promised: then it is never closed, so that its launches never wait.
    fn is_above_all(&self, at: usize) -> bool {
        let mine = self.at(at);
        let above = self.others(at).all(|other| {
            let other = self.at(other);
            other.terms.priority < mine.terms.priority
        });
        above && (mine.is_owed() || mine.terms.request == Permille::ZERO)
    }

    fn is_away(&self, at: usize) -> bool {
        !self.at(at).wants() || self.leavers.contains(&at)
    }

    fn closed(&self, at: usize, reason: Reason) -> Verdict {
        let member = self.at(at);
        let lease = Lease {
            open: false,
            depth: self.rules.depth,
            least: 2,
            bell: member.seen.outstanding > Nanos::ZERO,
            frozen: member.terms.frozen,
        };
        Verdict { lease, fills: false, spared: false, reason }
    }

    fn opened(&self, at: usize) -> Verdict {
        let member = self.at(at);
        let now = self.now;
        let kernel = member.seen.kernel;
        let mut others = self.others(at).map(|other| self.at(other)).peekable();
        let (sole, rules) = (others.peek().is_none(), self.rules);
        let others: Vec<&Member> = others.collect();
        let contended = others.iter().any(|other| other.wanted_within(now, rules.hysteresis));
        let below = others.iter().any(|other| {
            other.terms.priority > member.terms.priority
                && other.waits_for_itself()
                && other.wanted_within(now, rules.about)
        });
        let fills = self.others(at).any(|other| {
            let away = self.is_away(other);
            let other = self.at(other);
            away && !other.terms.frozen
                && !other.limited
                && other.wanted_within(now, rules.hysteresis)
                && other.clock < member.clock
        });
        let spared = self.is_starved(at) || member.spared && member.seen.outstanding == Nanos::ZERO;
        let long = if below { SHORT } else { LONG };
        let singly = contended && (kernel >= long || member.is_erratic(rules));
        let depth = match () {
            () if spared => Nanos::ZERO,
            () if below && singly => Nanos::ZERO,
            () if below => kernel.scaled(2, 1).max(GLANCE + GLANCE).min(rules.depth),
            () if fills => kernel.max(rules.overlap).min(rules.depth),
            () if contended && member.is_erratic(rules) => Nanos::ZERO,
            () if contended => rules.depth,
            () if sole => Nanos::millis(1000),
            () => rules.lone_depth,
        };
        let least = if spared || fills || singly { 1 } else { 2 };
        let above = others.iter().any(|other| other.terms.priority < member.terms.priority);
        let lease = Lease { open: true, depth, least, bell: contended || above, frozen: false };
        Verdict { lease, fills, spared, reason: Reason::Running }
    }

    fn reason(&self, at: usize) -> Reason {
        let member = self.at(at);
        let holder = self.chosen.iter().find(|other| self.at(**other).shares_gpu_with(member));
        match holder.copied() {
            _ if member.terms.frozen => Reason::Frozen,
            _ if !member.wants() => Reason::NoWork,
            _ if member.limited => Reason::Limit,
            Some(holder) if holder == at => Reason::Running,
            Some(holder) if self.at(holder).terms.priority > member.terms.priority => Reason::Behind(holder),
            Some(holder) => Reason::Over(holder),
            None => Reason::Running,
        }
    }
}

/// When to look again.
impl Round<'_> {
    /// Whether what others left on the GPUs of a chosen slice is nearly done. If not, that is looked at again.
    fn is_clear(&mut self, at: usize) -> bool {
        let left: Vec<usize> = self
            .others(at)
            .filter(|other| !self.chosen.contains(other))
            .filter(|other| self.at(*other).seen.outstanding > Nanos::ZERO)
            .filter(|other| !self.at(*other).is_stalled(self.now, self.rules))
            .collect();
        let mut clear = true;
        for other in left {
            let wait = self.still_busy(other);
            if wait > Nanos::ZERO {
                clear = false;
                let member = self.at(other);
                let last = member.is_predictable() && member.seen.outstanding <= member.seen.kernel;
                self.look_in(if last { wait } else { wait.scaled(1, 2) });
            }
        }
        clear
    }

    /// For how long a slice should be waited for; nothing if the next may begin.
    fn still_busy(&self, at: usize) -> Nanos {
        let member = self.at(at);
        let left = member.ends.since(self.now);
        if self.rules.strict_drain {
            return left.max(GLANCE);
        }
        let overdue = self.now.since(member.ends);
        if member.is_predictable() && overdue <= self.rules.overlap {
            let early = self.rules.overlap.min(member.seen.kernel.scaled(1, 2).max(GLANCE + GLANCE));
            return left - early;
        }
        // Nobody knows how long the last kernel is: look more seldom the longer it lasts.
        let since = if member.is_predictable() { overdue } else { self.now.since(member.closed_at) };
        since.scaled(1, 8).max(GLANCE + GLANCE)
    }

    fn watch_holder(&mut self, at: usize) {
        let member = self.at(at);
        if let Some(turns) = member.limit_turns_in(self.rules) {
            self.look_in(turns);
        }
        let Some(challenger) = self.challenger(at) else { return self.look_in(LEISURE) };
        let rival = self.at(challenger);
        let behind = rival.clock.saturating_sub(member.clock) * u128::from(member.weight()) / 1000;
        let behind = Nanos::new(u64::try_from(behind).unwrap_or(u64::MAX));
        let left = if member.fills { Nanos::ZERO } else { self.quantum(at) - member.turn };
        let spared = if member.spared { GLANCE + GLANCE } else { Nanos::MAX };
        self.look_in(behind.max(left).min(LEISURE).min(spared).max(self.rules.overlap));
        if member.waits_for_itself() && member.seen.outstanding <= member.seen.kernel {
            let short = self.rules.least_turn - member.turn;
            self.look_in((member.ends.since(self.now) - self.rules.overlap).max(short));
        }
    }

    /// Whoever was closed is looked at when it should be done: what is seen later is charged to it meanwhile.
    fn watch_tails(&mut self) {
        for at in 0..self.slices.len() {
            let member = self.at(at);
            let left = member.seen.outstanding > Nanos::ZERO && !self.chosen.contains(&at);
            if left && member.is_predictable() && !member.is_stalled(self.now, self.rules) {
                let overdue = self.now.since(member.ends.max(member.closed_at));
                self.look_in(member.ends.since(self.now).max(overdue.scaled(1, 4)));
            }
        }
    }

    fn watch_limit(&mut self, at: usize) {
        let member = self.at(at);
        if let (true, Some(turns)) = (member.wants(), member.limit_turns_in(self.rules)) {
            self.look_in(turns);
        }
    }

    fn watch_starving(&mut self, _at: usize) {
        self.look_in(LEISURE);
    }
}
