//! The arbiter: holds the state of each slice, charges it for its use, and hands out turns.

mod between;

use alloc::vec::Vec;

use crate::compute::gpu::ScheduledGpu;
use crate::compute::latency::Waits;
use crate::compute::member::SliceState;
use crate::compute::rules::Rules;
use crate::compute::terms::{ComputeTerms, Decision, LeaseDecision, Observed, Why, Window};
use crate::compute::time::{Instant, Nanos};
use crate::compute::turns::{Round, Sheet};
use crate::compute::verdict::DecisionReason;
use crate::id::{GpuUuid, SliceName};
use crate::units::Permille;

/// Decides who may use which GPU now.
///
/// Every method takes the present moment; it may repeat, and one before the last counts as the last.
#[derive(Clone, Debug)]
pub struct Arbiter {
    rules: Rules,
    /// In the order of names.
    slices: Vec<(SliceName, SliceState)>,
    gpus: Vec<ScheduledGpu>,
    sheet: Sheet,
    now: Instant,
    charged: Instant,
    /// Next time at which a slice opens by itself.
    next_begin: Option<Instant>,
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
            next_begin: None,
        }
    }

    /// A slice begins. One that is known already begins anew.
    pub fn admit(&mut self, now: Instant, name: SliceName, terms: ComputeTerms) {
        let now = self.pass(now);
        let member = SliceState::new(now, terms, &self.rules);
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
    pub fn change(&mut self, now: Instant, name: &SliceName, terms: ComputeTerms) {
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

    /// Begins or ends a slice's state of use without a record, as the audit saw it.
    ///
    /// While it lasts the slice is charged as if it were busy all the time, and at once for its `unsaid` use until now.
    /// Unknown slices are ignored.
    pub fn mistrust(&mut self, now: Instant, name: &SliceName, unsaid: Option<Nanos>) {
        let now = self.pass(now);
        self.charge(now);
        if let Ok(at) = self.find(name) {
            self.slices[at].1.mistrust(unsaid, &self.rules);
        }
    }

    /// Takes in the part of the time in which NVML saw a slice's processes compute on a GPU.
    ///
    /// `busy` is `None` where NVML has no sample. Unknown slices and GPUs are ignored.
    pub fn confirm(&mut self, now: Instant, name: &SliceName, gpu: GpuUuid, busy: Option<Permille>) {
        let now = self.pass(now);
        self.charge(now);
        if let Ok(at) = self.find(name) {
            self.slices[at].1.confirm(now, gpu, busy, &self.rules);
        }
    }

    /// Sets if a slice keeps the GPU from others and computes nothing: its work is not waited for then.
    ///
    /// Unknown slices are ignored.
    pub fn expect_nothing(&mut self, now: Instant, name: &SliceName, hollow: bool) {
        self.pass(now);
        if let Ok(at) = self.find(name) {
            self.slices[at].1.set_hollow(hollow);
        }
    }

    /// Counts of a slice's waits; none if it is not known.
    pub fn waits(&self, name: &SliceName) -> Waits {
        self.member(name).map(SliceState::waits).unwrap_or_default()
    }

    /// Part of the last second in which others waited because of a slice; zero if it is not known.
    pub fn kept(&self, now: Instant, name: &SliceName) -> Permille {
        let kept = self.member(name).map(|member| member.kept.share(now.max(self.now), Window::Second));
        kept.unwrap_or(Permille::ZERO)
    }

    /// Removes a slice that ended.
    pub fn leave(&mut self, now: Instant, name: &SliceName) {
        self.pass(now);
        if let Ok(at) = self.find(name) {
            self.slices.remove(at);
            self.relink();
        }
    }

    /// Takes in an observation of a slice. Unknown slices are ignored.
    pub fn observe(&mut self, now: Instant, name: &SliceName, seen: Observed) {
        let now = self.pass(now);
        let Ok(at) = self.find(name) else { return };
        if self.slices[at].1.ends_long_after(now, &seen, &self.rules) {
            let by = self.begun_elsewhere(at);
            self.slices[at].1.trial.release(by);
        }
        let member = &mut self.slices[at].1;
        let idled = member.has_idled(now, &seen, &self.rules);
        let stood = member.beside;
        member.observe(now, seen, &self.rules);
        member.rejoins |= (idled || stood && !member.is_stalled(now, &self.rules)) && member.wants();
    }

    /// Decides. Its leases count as in force: the next decision has only changes after that.
    pub fn decide(&mut self, now: Instant) -> Decision {
        let now = self.pass(now);
        self.charge(now);
        self.rejoin();
        self.foretell(now);
        let sheet = core::mem::take(&mut self.sheet);
        let (sheet, look_again) = Round::new(now, &self.rules, &self.slices, &self.gpus, sheet).decide();
        let mut decision = Decision { leases: Vec::new(), next: Vec::new(), look_again };
        for (((name, member), verdict), keeps) in
            self.slices.iter_mut().zip(&sheet.verdicts).zip(&sheet.keeps)
        {
            member.keeps = keeps.then_some(Instant::from_nanos(u64::MAX));
            if member.obey(now, *verdict, &self.rules) {
                decision.leases.push((name.clone(), verdict.lease));
            }
            if let Some(next) = member.announcement.replace(verdict) {
                decision.next.push((name.clone(), next));
            }
        }
        self.next_begin = self.slices.iter().filter_map(|(_, member)| member.announcement.begins_at()).min();
        for at in &sheet.interrupts {
            self.slices[*at].1.interrupt(&self.rules);
        }
        decision.leases.sort_by_key(|(_, lease)| lease.open);
        self.sheet = sheet;
        decision
    }

    /// Last lease that was decided for a slice.
    pub fn lease(&self, name: &SliceName) -> Option<LeaseDecision> {
        self.member(name)?.told
    }

    /// Charged use of a GPU by a slice lately; zero if the slice is not known or not on that GPU.
    pub fn used(&self, now: Instant, name: &SliceName, gpu: GpuUuid, window: Window) -> Permille {
        let history = self.member(name).and_then(|member| {
            let device = member.terms.gpus.iter().position(|own| *own == gpu)?;
            member.history.get(device)
        });
        history.map_or(Permille::ZERO, |history| history.share(now.max(self.now), window))
    }

    /// Reason for which a slice waits, as of the last decision. An unknown slice has no work.
    pub fn why_waiting(&self, name: &SliceName) -> Why {
        let named = |at: usize| self.slices.get(at).map(|(name, _)| name.clone());
        match self.member(name).map_or(DecisionReason::NoWork, |member| member.reason) {
            DecisionReason::Running => Why::Running,
            DecisionReason::NoWork => Why::NoWork,
            DecisionReason::Limit => Why::LimitReached,
            DecisionReason::Frozen => Why::Frozen,
            DecisionReason::Behind(at) => {
                named(at).map_or(Why::Running, |slice| Why::BehindPriority { slice })
            }
            DecisionReason::Over(at) => named(at).map_or(Why::Running, |holder| Why::OverShare { holder }),
        }
    }

    fn pass(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        if self.next_begin.is_some_and(|at| at <= self.now) {
            self.begin_announced();
        }
        self.now
    }

    /// Opens the slices whose time for that has come. Those that they waited for keep nothing from them any more.
    fn begin_announced(&mut self) {
        for at in 0..self.slices.len() {
            let Some(began) = self.slices[at].1.begin(self.now) else { continue };
            for place in 0..self.slices[at].1.neighbours.len() {
                let other = self.slices[at].1.neighbours[place];
                let other = &mut self.slices[other].1;
                other.keeps = other.keeps.map(|until| until.min(began));
            }
        }
        self.next_begin = self.slices.iter().filter_map(|(_, member)| member.announcement.begins_at()).min();
    }

    fn find(&self, name: &SliceName) -> Result<usize, usize> {
        self.slices.binary_search_by(|(known, _)| known.cmp(name))
    }

    fn member(&self, name: &SliceName) -> Option<&SliceState> {
        self.find(name).ok().map(|at| &self.slices[at].1)
    }

    /// Computes anew which slices share which GPUs and gangs.
    fn relink(&mut self) {
        let now = self.now;
        self.gpus.iter_mut().for_each(|gpu| gpu.vacate(now));
        for (at, (_, member)) in self.slices.iter_mut().enumerate() {
            member.gpus.clear();
            member.trial.forget_partner();
            for (device, uuid) in member.terms.gpus.iter().enumerate() {
                let known = self.gpus.iter().position(|gpu| gpu.uuid == *uuid);
                let gpu = known.unwrap_or_else(|| {
                    self.gpus.push(ScheduledGpu::new(self.now, *uuid));
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

    /// Floor of the virtual times on the GPUs of a slice.
    fn floor(&self, at: usize) -> u128 {
        self.slices[at].1.gpus.iter().map(|gpu| self.gpus[*gpu].floor).max().unwrap_or(0)
    }

    /// Charges all slices for their use since the last charge.
    fn charge(&mut self, now: Instant) {
        let passed = now.since(self.charged);
        if passed == Nanos::ZERO {
            return;
        }
        self.charged = now;
        self.slices.iter_mut().for_each(|(_, member)| member.take_busy(passed));
        self.gpus.iter_mut().for_each(|gpu| gpu.charge(now, passed, &mut self.slices, &self.rules));
        for at in 0..self.slices.len() {
            let mut beside = self.slices[at].1.neighbours.iter().map(|other| &self.slices[*other].1);
            let hidden = beside.any(|other| other.hides);
            let charged = self.slices[at].1.charge(now, passed, hidden, &self.rules);
            if charged > Nanos::ZERO && self.slices[at].1.was_spared && self.delays_another(at) {
                self.slices[at].1.cost += charged;
            }
        }
        for gpu in &mut self.gpus {
            gpu.bound_lags(now, &mut self.slices, &self.rules);
            gpu.weigh(now, &mut self.slices, &self.rules);
        }
    }

    /// Moves the virtual times of slices that were idle to not far behind the least of the others.
    fn rejoin(&mut self) {
        for at in 0..self.slices.len() {
            if core::mem::take(&mut self.slices[at].1.rejoins) {
                let (floor, member) = (self.floor(at), &mut self.slices[at].1);
                let saved = u128::from(self.rules.memory.get()) * 1000 / u128::from(member.weight());
                member.clock = member.clock.max(floor.saturating_sub(saved));
            }
        }
    }
}

#[cfg(test)]
#[path = "arbiter_tests.rs"]
mod tests;
