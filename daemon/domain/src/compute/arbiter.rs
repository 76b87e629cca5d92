//! The arbiter.

use alloc::collections::BTreeMap;

use crate::compute::rules::Rules;
use crate::compute::terms::{Decision, Lease, Observed, Terms, Why, Window};
use crate::compute::time::Instant;
use crate::id::{GpuUuid, SliceName};
use crate::units::Permille;

/// Decides who may use which GPU now.
///
/// Every method takes the present moment; it may repeat, and one before the last counts as the last.
#[derive(Clone, Debug)]
pub struct Arbiter {
    rules: Rules,
    slices: BTreeMap<SliceName, Member>,
}

#[derive(Clone, Debug)]
struct Member {
    terms: Terms,
    seen: Observed,
    told: Option<Lease>,
}

impl Arbiter {
    /// An arbiter of no slices.
    pub const fn new(rules: Rules) -> Self {
        Self { rules, slices: BTreeMap::new() }
    }

    /// A slice begins. One that is known already begins anew.
    pub fn admit(&mut self, _now: Instant, name: SliceName, terms: Terms) {
        self.slices.insert(name, Member { terms, seen: Observed::default(), told: None });
    }

    /// A slice's terms change; what it used stays charged. Nothing happens if it is not known.
    pub fn change(&mut self, _now: Instant, name: &SliceName, terms: Terms) {
        if let Some(member) = self.slices.get_mut(name) {
            member.terms = terms;
        }
    }

    /// A slice ends.
    pub fn leave(&mut self, _now: Instant, name: &SliceName) {
        self.slices.remove(name);
    }

    /// What is seen of a slice now. Nothing happens if it is not known.
    pub fn observe(&mut self, _now: Instant, name: &SliceName, seen: Observed) {
        if let Some(member) = self.slices.get_mut(name) {
            member.seen = seen;
        }
    }

    /// Decides. What it says is taken as done: the next decision names only what changes after that.
    pub fn decide(&mut self, _now: Instant) -> Decision {
        let mut decision = Decision::default();
        for (name, member) in &mut self.slices {
            let frozen = member.terms.frozen;
            let depth = self.rules.lone_depth;
            let lease = Lease { open: !frozen, depth, least: 2, bell: false, frozen };
            if member.told.replace(lease) != Some(lease) {
                decision.leases.push((name.clone(), lease));
            }
        }
        decision.leases.sort_by_key(|(_, lease)| lease.open);
        decision
    }

    /// The lease that a slice has been told last.
    pub fn lease(&self, name: &SliceName) -> Option<Lease> {
        self.slices.get(name)?.told
    }

    /// What a slice used of a GPU lately, as it was charged.
    pub fn used(&self, _now: Instant, _name: &SliceName, _gpu: GpuUuid, _window: Window) -> Permille {
        Permille::ZERO
    }

    /// Why a slice waits.
    pub fn why_waiting(&self, name: &SliceName) -> Why {
        match self.slices.get(name) {
            Some(member) if member.terms.frozen => Why::Frozen,
            Some(member) if member.seen.waiting => Why::Running,
            _ => Why::NoWork,
        }
    }
}
