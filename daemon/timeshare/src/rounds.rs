//! One iteration of the scheduling loop, whatever woke it.
//!
//! Time is an argument, and the outside is behind a [`SliceSite`], so simulations in virtual time run the same code.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tranche_domain::compute::{Arbiter, ComputeTerms, Instant, Nanos, Rules, Window};
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::units::Permille;

use super::member::ScheduledSlice;
use super::site::SliceSite;

/// Period of heartbeats; a launch gate considers the daemon gone after 800 ms without one.
pub(super) const HEARTBEAT: Nanos = Nanos::millis(200);
/// Least time between two decisions without a wakeup.
const LEAST_PAUSE: Nanos = Nanos::micros(50);

/// Scheduled slices with the scheduler that decides about their leases.
#[derive(Debug)]
pub struct Rounds<S> {
    arbiter: Arbiter,
    members: BTreeMap<SliceName, ScheduledSlice<S>>,
    next_beat: Instant,
}

impl<S: SliceSite> Rounds<S> {
    /// A scheduler with these rules, and no slice.
    pub const fn new(rules: Rules) -> Self {
        Self { arbiter: Arbiter::new(rules), members: BTreeMap::new(), next_beat: Instant::from_nanos(0) }
    }

    /// Adds a slice with these devices. Replaces one of the same name, and returns its site.
    pub fn admit(
        &mut self,
        now: Instant,
        name: SliceName,
        terms: ComputeTerms,
        devices: &[GpuUuid],
        site: S,
    ) -> Option<S> {
        let before = self.members.insert(name.clone(), ScheduledSlice::new(site, devices));
        self.arbiter.admit(now, name, terms);
        before.map(ScheduledSlice::into_site)
    }

    /// Changes a slice's terms. Use until now is charged by the previous terms.
    pub fn change(&mut self, now: Instant, name: &SliceName, terms: ComputeTerms) {
        self.look_at_all(now);
        self.arbiter.change(now, name, terms);
    }

    /// Sets the slices that use their GPUs without recording it, each with the unrecorded use until now.
    pub fn mistrust(&mut self, now: Instant, whom: &BTreeMap<SliceName, Duration>) {
        self.look_at_all(now);
        for name in self.members.keys() {
            let unsaid =
                whom.get(name).map(|unsaid| Nanos::new(unsaid.as_nanos().try_into().unwrap_or(u64::MAX)));
            self.arbiter.mistrust(now, name, unsaid);
        }
    }

    /// Takes in the share of time in which the driver saw a slice's processes compute. `None` if the driver does not
    /// report it.
    pub fn confirm(&mut self, now: Instant, name: &SliceName, gpu: GpuUuid, busy: Option<Permille>) {
        self.look_at_all(now);
        self.arbiter.confirm(now, name, gpu, busy);
    }

    /// Observes every slice. Time that is charged before its use is observed counts as withheld from others, and the
    /// use is then added on top.
    fn look_at_all(&mut self, now: Instant) {
        for (name, member) in &mut self.members {
            self.arbiter.observe(now, name, member.look(now));
        }
    }

    /// Observes a single slice, as before a record of it is cleared.
    pub fn settle(&mut self, now: Instant, name: &SliceName) {
        if let Some(member) = self.members.get_mut(name) {
            self.arbiter.observe(now, name, member.look(now));
        }
    }

    /// Sets the slices that keep their GPUs from others without computing.
    pub fn expect_nothing(&mut self, now: Instant, of: &BTreeSet<SliceName>) {
        for name in self.members.keys() {
            self.arbiter.expect_nothing(now, name, of.contains(name));
        }
    }

    /// Removes a slice; returns its site if there was one.
    pub fn leave(&mut self, now: Instant, name: &SliceName) -> Option<S> {
        let member = self.members.remove(name)?;
        self.arbiter.leave(now, name);
        Some(member.into_site())
    }

    /// State of the scheduler, for reading.
    pub const fn arbiter(&self) -> &Arbiter {
        &self.arbiter
    }

    /// Access to a scheduled slice's records and control region; `None` if there is no slice of that name.
    pub fn site(&self, name: &SliceName) -> Option<&S> {
        self.members.get(name).map(ScheduledSlice::site)
    }

    /// Bypasses of a slice: launches admitted without progress of its work, and in the daemon's absence.
    pub fn let_through(&self, name: &SliceName) -> Option<(u64, u64)> {
        self.members.get(name).map(ScheduledSlice::let_through)
    }

    /// Busy time of each device of a slice since it was added.
    pub fn busy(&self, name: &SliceName) -> Option<Vec<Nanos>> {
        self.members.get(name).map(ScheduledSlice::busy)
    }

    /// Names of the scheduled slices.
    pub fn names(&self) -> impl Iterator<Item = &SliceName> {
        self.members.keys()
    }

    /// Time by which the next unconditional iteration is overdue; zero before the first.
    pub fn lateness(&self, now: Instant) -> Nanos {
        if self.next_beat == Instant::default() { Nanos::ZERO } else { now.since(self.next_beat) }
    }

    /// Observes slices that may need a decision, decides, and publishes leases. Returns the time of the next
    /// iteration. `rang` returns true for a site that signalled since the last one; with `all`, every slice is observed.
    pub fn go(&mut self, now: Instant, all: bool, rang: impl Fn(&S) -> bool) -> Instant {
        let beat = now >= self.next_beat;
        if beat {
            self.next_beat = now + HEARTBEAT;
        }
        for (name, member) in &mut self.members {
            let rang = rang(member.site());
            if rang {
                member.count_wakeup(now);
            }
            if beat || all || rang || member.needs_look(now) {
                self.arbiter.observe(now, name, member.look(now));
            }
        }
        let decision = self.arbiter.decide(now);
        for (name, lease) in decision.leases {
            if let Some(member) = self.members.get_mut(&name)
                && member.take_decision(now, lease)
            {
                self.arbiter.observe(now, &name, member.look(now));
            }
        }
        for (name, next) in decision.next {
            if let Some(member) = self.members.get_mut(&name) {
                member.expect(next);
            }
        }
        let mut deadline = self.next_beat;
        for (name, member) in &mut self.members {
            member.publish_lease(now);
            if beat {
                let used = |gpu| self.arbiter.used(now, name, gpu, Window::Second);
                member.site().beat(now, &used);
            }
            deadline = member.unmute(now).map_or(deadline, |at| deadline.min(at));
        }
        let again = decision.look_again.map_or(deadline, |at| at.max(now + LEAST_PAUSE));
        deadline.min(again)
    }
}
