//! The arbiter: keeps what is known of each slice, charges it for the time it used, and hands out turns.

use alloc::vec::Vec;

use crate::compute::gpu::Gpu;
use crate::compute::member::Member;
use crate::compute::rules::Rules;
use crate::compute::terms::{Decision, Lease, Observed, Terms, Why, Window};
use crate::compute::time::{Instant, Nanos};
use crate::compute::turns::{Round, Sheet};
use crate::compute::verdict::Reason;
use crate::id::{GpuUuid, SliceName};
use crate::units::Permille;

/// Decides who may use which GPU now.
///
/// Every method takes the present moment; it may repeat, and one before the last counts as the last.
#[derive(Clone, Debug)]
pub struct Arbiter {
    rules: Rules,
    /// Sorted by name.
    slices: Vec<(SliceName, Member)>,
    gpus: Vec<Gpu>,
    sheet: Sheet,
    now: Instant,
    charged: Instant,
}

impl Arbiter {
    /// An arbiter of no slices.
    pub const fn new(rules: Rules) -> Self {
        let beginning = Instant::from_nanos(0);
        Self {
            rules,
            slices: Vec::new(),
            gpus: Vec::new(),
            sheet: Sheet::new(),
            now: beginning,
            charged: beginning,
        }
    }

    /// A slice begins. One that is known already begins anew.
    pub fn admit(&mut self, now: Instant, name: SliceName, terms: Terms) {
        let now = self.pass(now);
        let member = Member::new(now, terms, &self.rules);
        let at = match self.find(&name) {
            Ok(at) => {
                self.slices[at].1 = member;
                at
            }
            Err(at) => {
                self.slices.insert(at, (name, member));
                at
            }
        };
        self.relink();
        self.slices[at].1.clock = self.floor(at);
    }

    /// A slice's terms change; what it used stays charged. Nothing happens if it is not known.
    pub fn change(&mut self, now: Instant, name: &SliceName, terms: Terms) {
        let now = self.pass(now);
        self.charge(now);
        if let Ok(at) = self.find(name) {
            let mean = self.mean_clock(at);
            let member = &mut self.slices[at].1;
            let took_part = member.counts(now, &self.rules) && member.terms.gpus == terms.gpus;
            member.reweigh(terms, mean);
            self.relink();
            if !took_part {
                self.slices[at].1.clock = self.slices[at].1.clock.max(self.floor(at));
            }
        }
    }

    /// The mean virtual time, by weight, of the slices that want the GPUs of one, that one included. A slice that is ahead of
    /// it has used more than its share, by as much for its weight.
    fn mean_clock(&self, at: usize) -> u128 {
        let members = self.slices[at].1.neighbours.iter().map(|other| &self.slices[*other].1);
        let wanting = members.filter(|member| {
            member.counts(self.now, &self.rules) && member.wanted_within(self.now, self.rules.hysteresis)
        });
        let (mut sum, mut weights) = (0, 0);
        for member in wanting.chain([&self.slices[at].1]) {
            sum += member.clock * u128::from(member.weight());
            weights += u128::from(member.weight());
        }
        sum / weights
    }

    /// From now on a slice is known to use its GPUs without saying so, or no more. As long as it is, it is charged as if it
    /// were busy all the time; and at once for what it has used until now and was not charged for. Nothing happens if the
    /// slice is not known.
    pub fn mistrust(&mut self, now: Instant, name: &SliceName, unsaid: Option<Nanos>) {
        let now = self.pass(now);
        self.charge(now);
        if let Ok(at) = self.find(name) {
            self.slices[at].1.mistrust(unsaid, &self.rules);
        }
    }

    /// What part of the time the driver saw a slice's processes compute on a GPU lately, if it can say. Nothing happens if
    /// the slice is not known or not on that GPU.
    pub fn confirm(&mut self, now: Instant, name: &SliceName, gpu: GpuUuid, busy: Option<Permille>) {
        let now = self.pass(now);
        self.charge(now);
        if let Ok(at) = self.find(name) {
            self.slices[at].1.confirm(now, gpu, busy, &self.rules);
        }
    }

    /// From now on a slice is known to keep the GPU from others and to compute nothing, or no more: as long as it is, its
    /// work is not waited for. Nothing happens if the slice is not known.
    pub fn expect_nothing(&mut self, now: Instant, name: &SliceName, hollow: bool) {
        self.pass(now);
        if let Ok(at) = self.find(name) {
            self.slices[at].1.set_hollow(hollow);
        }
    }

    /// What part of the last second others waited because of a slice. Nothing if it is not known.
    pub fn kept(&self, now: Instant, name: &SliceName) -> Permille {
        let kept = self.member(name).map(|member| member.kept.share(now.max(self.now), Window::Second));
        kept.unwrap_or(Permille::ZERO)
    }

    /// A slice ends.
    pub fn leave(&mut self, now: Instant, name: &SliceName) {
        self.pass(now);
        if let Ok(at) = self.find(name) {
            self.slices.remove(at);
            self.relink();
        }
    }

    /// What is seen of a slice now. Nothing happens if it is not known.
    pub fn observe(&mut self, now: Instant, name: &SliceName, seen: Observed) {
        let now = self.pass(now);
        let Ok(at) = self.find(name) else { return };
        let member = &mut self.slices[at].1;
        let idled = member.has_idled(now, &seen, &self.rules);
        let stood = member.beside;
        member.observe(now, seen, &self.rules);
        member.rejoins |= (idled || stood && !member.is_stalled(now, &self.rules)) && member.wants();
    }

    /// Decides. What it says is taken as done: the next decision names only what changes after that.
    pub fn decide(&mut self, now: Instant) -> Decision {
        let now = self.pass(now);
        self.charge(now);
        self.rejoin();
        self.foretell(now);
        let sheet = core::mem::take(&mut self.sheet);
        let (sheet, look_again) = Round::new(now, &self.rules, &self.slices, &self.gpus, sheet).decide();
        let mut decision = Decision { leases: Vec::new(), look_again };
        for (((name, member), verdict), keeps) in
            self.slices.iter_mut().zip(&sheet.verdicts).zip(&sheet.keeps)
        {
            member.keeps = *keeps;
            if member.obey(now, *verdict, &self.rules) {
                decision.leases.push((name.clone(), verdict.lease));
            }
        }
        for at in &sheet.interrupts {
            self.slices[*at].1.interrupt(&self.rules);
        }
        decision.leases.sort_by_key(|(_, lease)| lease.open);
        self.sheet = sheet;
        decision
    }

    /// The lease that a slice has been told last.
    pub fn lease(&self, name: &SliceName) -> Option<Lease> {
        self.member(name)?.told
    }

    /// What a slice used of a GPU lately, as it was charged. Nothing if it is not known or not on that GPU.
    pub fn used(&self, now: Instant, name: &SliceName, gpu: GpuUuid, window: Window) -> Permille {
        let history = self.member(name).and_then(|member| {
            let device = member.terms.gpus.iter().position(|own| *own == gpu)?;
            member.history.get(device)
        });
        history.map_or(Permille::ZERO, |history| history.share(now.max(self.now), window))
    }

    /// Why a slice waits, as of the last decision. One that is not known has no work.
    pub fn why_waiting(&self, name: &SliceName) -> Why {
        let named = |at: usize| self.slices.get(at).map(|(name, _)| name.clone());
        match self.member(name).map_or(Reason::NoWork, |member| member.reason) {
            Reason::Running => Why::Running,
            Reason::NoWork => Why::NoWork,
            Reason::Limit => Why::LimitReached,
            Reason::Frozen => Why::Frozen,
            Reason::Behind(at) => named(at).map_or(Why::Running, |slice| Why::BehindPriority { slice }),
            Reason::Over(at) => named(at).map_or(Why::Running, |holder| Why::OverShare { holder }),
        }
    }

    fn pass(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }

    fn find(&self, name: &SliceName) -> Result<usize, usize> {
        self.slices.binary_search_by(|(known, _)| known.cmp(name))
    }

    fn member(&self, name: &SliceName) -> Option<&Member> {
        self.find(name).ok().map(|at| &self.slices[at].1)
    }

    /// Finds out anew who shares which GPU with whom.
    fn relink(&mut self) {
        let now = self.now;
        self.gpus.iter_mut().for_each(|gpu| gpu.vacate(now));
        for (at, (_, member)) in self.slices.iter_mut().enumerate() {
            member.gpus.clear();
            for (device, uuid) in member.terms.gpus.iter().enumerate() {
                let known = self.gpus.iter().position(|gpu| gpu.uuid == *uuid);
                let gpu = known.unwrap_or_else(|| {
                    self.gpus.push(Gpu::new(self.now, *uuid));
                    self.gpus.len() - 1
                });
                self.gpus[gpu].places.push((at, device));
                member.gpus.push(gpu);
            }
        }
        for at in 0..self.slices.len() {
            let mine = &self.slices[at].1;
            let shares = |other: &usize| *other != at && self.slices[*other].1.shares_gpu_with(mine);
            self.slices[at].1.neighbours = (0..self.slices.len()).filter(shares).collect();
            let mine = &self.slices[at].1.terms;
            let is_mate = |other: &usize| {
                *other != at && mine.gang.is_some() && self.slices[*other].1.terms.gang == mine.gang
            };
            self.slices[at].1.mates = (0..self.slices.len()).filter(is_mate).collect();
        }
    }

    /// The virtual time of the least served on the GPUs of a slice.
    fn floor(&self, at: usize) -> u128 {
        self.slices[at].1.gpus.iter().map(|gpu| self.gpus[*gpu].floor).max().unwrap_or(0)
    }

    /// Charges everybody for what was used since the last time.
    fn charge(&mut self, now: Instant) {
        let passed = now.since(self.charged);
        if passed == Nanos::ZERO {
            return;
        }
        self.charged = now;
        self.slices.iter_mut().for_each(|(_, member)| member.take_busy(passed));
        self.gpus.iter_mut().for_each(|gpu| gpu.charge(passed, &mut self.slices));
        for at in 0..self.slices.len() {
            let mut beside = self.slices[at].1.neighbours.iter().map(|other| &self.slices[*other].1);
            let hidden = beside.any(|other| other.hides);
            self.slices[at].1.charge(now, passed, hidden, &self.rules);
        }
        for gpu in &mut self.gpus {
            gpu.bound_lags(now, &mut self.slices, &self.rules);
            gpu.weigh(now, &mut self.slices, &self.rules);
        }
    }

    /// Those who were idle begin not far behind the least served of those who were not, now that these are charged.
    fn rejoin(&mut self) {
        for at in 0..self.slices.len() {
            if core::mem::take(&mut self.slices[at].1.rejoins) {
                let (floor, member) = (self.floor(at), &mut self.slices[at].1);
                let saved = u128::from(self.rules.memory.get()) * 1000 / u128::from(member.weight());
                member.clock = member.clock.max(floor.saturating_sub(saved));
            }
        }
    }

    /// What was launched while others had work outstanding comes after that.
    fn foretell(&mut self, now: Instant) {
        for at in 0..self.slices.len() {
            let (launched, ended) = {
                let member = &mut self.slices[at].1;
                (core::mem::take(&mut member.launched), core::mem::take(&mut member.ended))
            };
            if launched {
                let mine = &self.slices[at].1;
                let before = mine.neighbours.iter().filter_map(|other| {
                    let other = &self.slices[*other].1;
                    Some((other.delays_until(now, &self.rules)?, other.seen.outstanding))
                });
                let (tail, most) = before.fold((now, Nanos::ZERO), |(tail, most), (until, outstanding)| {
                    (tail.max(until), most + outstanding)
                });
                let member = &mut self.slices[at].1;
                // Two that are open at once come after each other in turn: not later than all that is there.
                member.ends = tail.min(now + most) + member.seen.outstanding;
            }
            if ended {
                let began = self.slices[at].1.busy_since;
                for place in 0..self.slices[at].1.neighbours.len() {
                    let other = self.slices[at].1.neighbours[place];
                    let other = &mut self.slices[other].1;
                    if other.seen.outstanding > Nanos::ZERO && other.busy_since > began {
                        other.ends = other.ends.max(now + other.seen.outstanding);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "arbiter_tests.rs"]
mod tests;
