//! Turns on the GPUs.
//!
//! Each decision is made anew from the present state, in three steps: slices that keep their turn, slices that get one, and
//! those of them that may begin because the work of the former holder is nearly done.

mod handover;
mod leases;
mod order;

use alloc::vec::Vec;

use crate::compute::gpu::ScheduledGpu;
use crate::compute::member::SliceState;
use crate::compute::rules::Rules;
use crate::compute::time::{Instant, Nanos};
use crate::compute::verdict::SliceDecision;
use crate::id::SliceName;
use crate::units::Permille;

/// Shortest time for which an alarm is set.
const GLANCE: Nanos = Nanos::micros(50);
/// Longest time between two decisions while work of unknown length is outstanding.
const UNKNOWN: Nanos = Nanos::micros(500);

/// Buffers of one decision, used again for the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Sheet {
    /// Slices that may have a turn, in order.
    order: Vec<usize>,
    /// Slices that get a turn.
    chosen: Vec<usize>,
    /// Slices that have a turn and work for it.
    keepers: Vec<usize>,
    /// Slices that have a turn and no work left for it.
    leavers: Vec<usize>,
    /// Slices for which another's turn ends before its time.
    pub(super) interrupts: Vec<usize>,
    /// By slice: another that may run waits because of it.
    pub(super) keeps: Vec<bool>,
    /// By slice: virtual time of its gang since the floors of its GPUs.
    ages: Vec<i128>,
    /// By slice: time by which its request should be done, if it has a target that counts.
    dues: Vec<Option<Instant>>,
    /// By slice: the decision on it.
    pub(super) verdicts: Vec<SliceDecision>,
}

impl Sheet {
    pub(super) const fn new() -> Self {
        Self {
            order: Vec::new(),
            chosen: Vec::new(),
            keepers: Vec::new(),
            leavers: Vec::new(),
            interrupts: Vec::new(),
            keeps: Vec::new(),
            ages: Vec::new(),
            dues: Vec::new(),
            verdicts: Vec::new(),
        }
    }

    fn wiped(mut self) -> Self {
        for list in [&mut self.order, &mut self.chosen, &mut self.keepers, &mut self.leavers] {
            list.clear();
        }
        self.interrupts.clear();
        self.keeps.clear();
        self.ages.clear();
        self.dues.clear();
        self.verdicts.clear();
        self
    }
}

/// One decision in the making.
pub(super) struct Round<'a> {
    now: Instant,
    rules: &'a Rules,
    slices: &'a [(SliceName, SliceState)],
    gpus: &'a [ScheduledGpu],
    sheet: Sheet,
    /// The slices that may have a turn differ in priority.
    mixed: bool,
    look_again: Option<Instant>,
}

impl<'a> Round<'a> {
    pub(super) fn new(
        now: Instant,
        rules: &'a Rules,
        slices: &'a [(SliceName, SliceState)],
        gpus: &'a [ScheduledGpu],
        sheet: Sheet,
    ) -> Self {
        Self { now, rules, slices, gpus, sheet: sheet.wiped(), mixed: false, look_again: None }
    }

    /// Decides, and returns the time of the next decision if nothing happens until then.
    pub(super) fn decide(mut self) -> (Sheet, Option<Instant>) {
        self.sheet.keeps.resize(self.slices.len(), false);
        self.rank();
        self.choose();
        for at in 0..self.slices.len() {
            let verdict = self.judge(at);
            self.sheet.verdicts.push(verdict);
        }
        self.find_keepers();
        self.watch_tails();
        (self.sheet, self.look_again)
    }

    fn at(&self, at: usize) -> &'a SliceState {
        &self.slices[at].1
    }

    fn look_in(&mut self, time: Nanos) {
        let at = self.now + time.max(GLANCE);
        self.look_again = Some(self.look_again.map_or(at, |other| other.min(at)));
    }

    /// Other slices that share a GPU with a slice.
    fn others(&self, at: usize) -> impl Iterator<Item = usize> + use<'a> {
        self.at(at).neighbours.iter().copied()
    }

    /// A slice with the mates of its gang that have turns with it.
    ///
    /// Those are the mates that want the GPU, or did a moment ago.
    fn party(&self, at: usize) -> impl Iterator<Item = usize> + Clone + use<'a> {
        let (now, rules, slices) = (self.now, self.rules, self.slices);
        let mates = self.at(at).mates.iter().copied();
        let joins = move |mate: &usize| {
            let mate = &slices[*mate].1;
            !mate.terms.frozen && mate.wanted_within(now, rules.hysteresis)
        };
        core::iter::once(at).chain(mates.filter(joins))
    }

    /// Tests if a slice or one of its mates shares a GPU with another slice.
    fn collide(&self, at: usize, other: usize) -> bool {
        self.party(at).any(|mine| self.at(mine).shares_gpu_with(self.at(other)))
    }

    /// Tests if its GPU has time to spare.
    fn is_relaxed(&self, at: usize) -> bool {
        matches!(*self.at(at).gpus, [gpu] if self.gpus[gpu].is_relaxed())
    }
}

/// Choice of the slices that get a turn.
impl Round<'_> {
    fn choose(&mut self) {
        self.ask_holders();
        let mut keepers = core::mem::take(&mut self.sheet.keepers);
        keepers.sort_by_key(|at| self.sheet.order.iter().position(|other| other == at));
        // Slices that keep their turn first, then all in order.
        keepers.extend_from_slice(&self.sheet.order);
        for at in &keepers {
            if !self.sheet.leavers.contains(at) && self.may_claim(*at) && !self.is_held_back(*at) {
                self.sheet.chosen.extend(self.party(*at));
            }
        }
        self.sheet.keepers = keepers;
        for place in 0..self.sheet.leavers.len() {
            let at = self.sheet.leavers[place];
            if self.may_claim(at) {
                self.sheet.chosen.extend(self.party(at));
            }
        }
    }

    /// Finds the slices that keep their turn, and those that keep it only while no other slice takes it.
    ///
    /// The mates of a gang have theirs together.
    fn ask_holders(&mut self) {
        for at in 0..self.slices.len() {
            let holds = |mate: &usize| {
                let member = self.at(*mate);
                member.has_turn()
                    && (!member.wants() || self.may_run(*mate))
                    && !member.limited
                    && !member.terms.frozen
            };
            let first = self.party(at).filter(holds).min();
            if first == Some(at) {
                self.ask_holder(at);
            }
        }
    }

    fn ask_holder(&mut self, at: usize) {
        let holders = self.party(at).filter(|mate| self.at(*mate).has_turn());
        let idle = holders.clone().all(|mate| !self.at(mate).wants());
        let Some(challenger) = self.challenger(at) else {
            if !idle {
                self.sheet.keepers.push(at);
            }
            return;
        };
        if holders.clone().any(|mate| self.turn_ends(mate, challenger)) {
            if holders.clone().all(|mate| self.at(mate).turn < self.quantum(mate)) {
                self.sheet.interrupts.push(challenger);
            }
            return;
        }
        let dries = holders.clone().all(|mate| self.at(mate).is_drying(self.now, self.rules));
        match self.rules.width {
            2.. if idle => {}
            0 | 1 if dries => {
                let leavers: Vec<usize> = holders.collect();
                self.sheet.leavers.extend(leavers);
            }
            _ => self.sheet.keepers.push(at),
        }
    }

    /// Tests if a slice may take a turn: all GPUs of its gang are free.
    ///
    /// With a part of them it would hold a GPU that another needs while it waits itself.
    fn may_claim(&self, at: usize) -> bool {
        let is_free = |gpu: &usize| {
            let holders = self.sheet.chosen.iter().filter(|other| self.at(**other).gpus.contains(gpu));
            holders.count() < self.rules.width.max(1) as usize
        };
        let free =
            self.party(at).all(|mate| !self.at(mate).limited && self.at(mate).gpus.iter().all(is_free));
        free && !self.sheet.chosen.contains(&at) && self.is_within_window(at)
    }

    /// Tests if a slice is not too far ahead of the last to run beside others.
    fn is_within_window(&self, at: usize) -> bool {
        if self.rules.width <= 1 {
            return true;
        }
        let mine = self.at(at);
        let rivals = self.sheet.order.iter().filter(|other| self.at(**other).shares_gpu_with(mine));
        let last = rivals.min_by_key(|other| self.at(**other).clock);
        last.is_none_or(|last| mine.lead_over(self.at(*last)) <= self.rules.lead)
    }

    /// Tests if a slice leaves the GPU idle for another that is about to come back.
    ///
    /// That one is far behind it, or has a request where it has none, and its kernel would not end before.
    fn is_held_back(&mut self, at: usize) -> bool {
        let mine = self.at(at);
        if self.rules.width > 1 {
            return false;
        }
        let mut held = false;
        for other in self.others(at) {
            let other_is = self.at(other);
            let worth_it = other_is.is_worth_keeping_for(self.now, self.rules);
            if !self.is_away(other) || other_is.terms.frozen || other_is.limited || !worth_it {
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
                self.sheet.keeps[other] = true;
                self.look_in(self.rules.grace + left);
            }
        }
        held
    }

    /// Length of a turn: the shorter the more slices want one, so that rounds stay short.
    fn quantum(&self, at: usize) -> Nanos {
        let mine = self.at(at);
        let wanting =
            self.sheet.order.iter().filter(|other| self.at(**other).shares_gpu_with(mine)).count() as u64;
        let most = if mine.is_erratic(self.rules) { Nanos::ZERO } else { self.rules.quantum };
        self.rules.round.scaled(1, wanting).min(most).max(self.rules.least_quantum)
    }

    /// Marks the slices that have a turn while others that may run wait closed.
    ///
    /// Until the next decision they are charged for all the time that passes, whatever their records show of it.
    fn find_keepers(&mut self) {
        for place in 0..self.sheet.chosen.len() {
            let at = self.sheet.chosen[place];
            let waits = |other: usize| {
                !self.sheet.verdicts[other].lease.open
                    && self.may_run(other)
                    && !self.at(other).passage.is_on()
                    && !self.at(other).runs_on(self.now, self.rules)
                    && !self.sheet.chosen.contains(&other)
            };
            if self.sheet.verdicts[at].lease.open && self.others(at).any(waits) {
                self.sheet.keeps[at] = true;
            }
        }
    }

    fn turn_ends(&self, at: usize, challenger: usize) -> bool {
        let (mine, rival) = (self.at(at), self.at(challenger));
        let (my_tier, its_tier) = (self.tier(at), self.tier(challenger));
        if mine.spared && mine.seen.outstanding == Nanos::ZERO && !mine.dawdles(self.now, self.rules) {
            return false;
        }
        if its_tier != my_tier {
            return its_tier < my_tier;
        }
        if let Some((mine, its)) = self.sheet.dues[at].zip(self.sheet.dues[challenger]) {
            return its < mine;
        }
        let behind = self.sheet.ages[challenger] < self.sheet.ages[at];
        let waited = rival.waits_since.map_or(Nanos::ZERO, |since| self.now.since(since));
        let is_wide = rival.terms.gpus.len() > 1 || self.party(challenger).nth(1).is_some();
        let passed_over = is_wide && waited > self.rules.quantum.scaled(2, 1);
        let woke = rival.woke && mine.lead_over(rival) > self.rules.preempt;
        let over = mine.turn >= self.quantum(at) || mine.yields() || self.rules.width > 1;
        passed_over || behind && (over || woke)
    }
}
