//! The arbiter: keeps what is known of each slice, charges it for the time it used, and hands out turns.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::compute::charge;
use crate::compute::gpu::Gpu;
use crate::compute::member::Member;
use crate::compute::rules::Rules;
use crate::compute::terms::{Decision, Lease, Observed, Terms, Why, Window};
use crate::compute::time::{Instant, Nanos};
use crate::compute::turns::{Reason, Round};
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
    gpus: BTreeMap<GpuUuid, Gpu>,
    now: Instant,
    charged: Instant,
}

impl Arbiter {
    /// An arbiter of no slices.
    pub const fn new(rules: Rules) -> Self {
        let beginning = Instant::from_nanos(0);
        Self { rules, slices: Vec::new(), gpus: BTreeMap::new(), now: beginning, charged: beginning }
    }

    /// A slice begins. One that is known already begins anew.
    pub fn admit(&mut self, now: Instant, name: SliceName, terms: Terms) {
        let now = self.pass(now);
        let mut member = Member::new(now, terms, &self.rules);
        member.clock = self.floor(&member);
        match self.find(&name) {
            Ok(at) => self.slices[at].1 = member,
            Err(at) => self.slices.insert(at, (name, member)),
        }
    }

    /// A slice's terms change; what it used stays charged. Nothing happens if it is not known.
    pub fn change(&mut self, now: Instant, name: &SliceName, terms: Terms) {
        let now = self.pass(now);
        self.charge(now);
        if let Ok(at) = self.find(name) {
            self.slices[at].1.set_terms(terms);
            self.level(at);
        }
    }

    /// A slice ends.
    pub fn leave(&mut self, now: Instant, name: &SliceName) {
        self.pass(now);
        if let Ok(at) = self.find(name) {
            self.slices.remove(at);
        }
    }

    /// What is seen of a slice now. Nothing happens if it is not known.
    pub fn observe(&mut self, now: Instant, name: &SliceName, seen: Observed) {
        let now = self.pass(now);
        let Ok(at) = self.find(name) else { return };
        let member = &mut self.slices[at].1;
        let idled = member.has_idled(now, &seen, &self.rules);
        member.observe(now, seen);
        member.rejoins |= idled && member.wants();
    }

    /// Decides. What it says is taken as done: the next decision names only what changes after that.
    pub fn decide(&mut self, now: Instant) -> Decision {
        let now = self.pass(now);
        self.charge(now);
        self.rejoin();
        self.foretell(now);
        let relaxed: Vec<bool> = self.slices.iter().map(|(_, member)| self.is_relaxed(member)).collect();
        let outcome = Round::new(now, &self.rules, &self.slices, &relaxed).decide();
        let mut decision = Decision { leases: Vec::new(), look_again: outcome.look_again };
        for ((name, member), verdict) in self.slices.iter_mut().zip(outcome.verdicts) {
            if member.obey(now, verdict) {
                decision.leases.push((name.clone(), verdict.lease));
            }
        }
        decision.leases.sort_by_key(|(_, lease)| lease.open);
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

    /// The virtual time of the least served on the GPUs of a slice.
    fn floor(&self, of: &Member) -> u128 {
        of.terms.gpus.iter().filter_map(|gpu| Some(self.gpus.get(gpu)?.floor)).max().unwrap_or(0)
    }

    /// Charges everybody for what was used since the last time.
    fn charge(&mut self, now: Instant) {
        let passed = now.since(self.charged);
        if passed == Nanos::ZERO {
            return;
        }
        self.charged = now;
        let mut used: Vec<Vec<Nanos>> =
            self.slices.iter_mut().map(|(_, member)| member.take_busy()).collect();
        let mut gpus: BTreeMap<GpuUuid, Vec<(usize, usize)>> = BTreeMap::new();
        for (at, (_, member)) in self.slices.iter().enumerate() {
            for (device, gpu) in member.terms.gpus.iter().enumerate() {
                gpus.entry(*gpu).or_default().push((at, device));
            }
        }
        for places in gpus.values() {
            let busy: Vec<Nanos> = places.iter().map(|(at, device)| used[*at][*device]).collect();
            for ((at, device), charged) in places.iter().zip(charge::split(passed, &busy)) {
                used[*at][*device] = charged;
            }
        }
        for ((_, member), used) in self.slices.iter_mut().zip(&used) {
            member.charge(now, passed, used, &self.rules);
        }
        self.weigh(&gpus, &used);
    }

    /// Those who were idle begin not far behind the least served of those who were not, now that these are charged.
    fn rejoin(&mut self) {
        for at in 0..self.slices.len() {
            let floor = self.floor(&self.slices[at].1);
            let member = &mut self.slices[at].1;
            if core::mem::take(&mut member.rejoins) {
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
                let before = self.busy_others(at).map(|other| &self.slices[other].1);
                let (tail, most) = before.fold((now, Nanos::ZERO), |(tail, most), other| {
                    (tail.max(other.ends), most + other.seen.outstanding)
                });
                let member = &mut self.slices[at].1;
                // Two that are open at once come after each other in turn: not later than all that is there.
                member.ends = tail.min(now + most) + member.seen.outstanding;
            }
            if ended {
                let began = self.slices[at].1.busy_since;
                let behind: Vec<usize> = self.busy_others(at).collect();
                for other in behind {
                    let other = &mut self.slices[other].1;
                    if other.busy_since > began {
                        other.ends = other.ends.max(now + other.seen.outstanding);
                    }
                }
            }
        }
    }

    /// Those who share a GPU with a slice and have work outstanding.
    fn busy_others(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        let mine = &self.slices[at].1;
        let busy = move |(other, (_, member)): (usize, &(SliceName, Member))| {
            let busy = other != at && member.seen.outstanding > Nanos::ZERO;
            (busy && member.shares_gpu_with(mine)).then_some(other)
        };
        self.slices.iter().enumerate().filter_map(busy)
    }

    /// What the charges mean for each GPU: from where newcomers begin, and whether there is time to spare.
    fn weigh(&mut self, shares: &BTreeMap<GpuUuid, Vec<(usize, usize)>>, used: &[Vec<Nanos>]) {
        self.gpus.retain(|gpu, _| shares.contains_key(gpu));
        for (gpu, places) in shares {
            let members: Vec<&Member> = places.iter().map(|(at, _)| &self.slices[*at].1).collect();
            let used = places.iter().map(|(at, device)| used[*at][*device]).sum();
            let state = self.gpus.entry(*gpu).or_insert_with(|| Gpu::new(self.now));
            state.raise_floor(self.now, &members, &self.rules);
            if state.weigh(self.now, used, &members, &self.rules) {
                // Nobody owes anybody for time that nobody lacked.
                let most = members.iter().map(|member| member.clock).max().unwrap_or(0);
                places.iter().for_each(|(at, _)| self.slices[*at].1.clock = most);
            }
        }
    }

    fn is_relaxed(&self, member: &Member) -> bool {
        let gpu = |gpu| self.gpus.get(gpu).is_some_and(Gpu::is_relaxed);
        member.terms.gpus.len() == 1 && member.terms.gpus.iter().all(gpu)
    }

    /// Under new terms a slice neither owes nor is owed more than it can be by idling.
    fn level(&mut self, at: usize) {
        let floor = self.floor(&self.slices[at].1);
        let member = &mut self.slices[at].1;
        member.clock = member.clock.max(floor);
    }
}

#[cfg(test)]
#[path = "arbiter_tests.rs"]
mod tests;
