//! What the loop does each time that it wakes, whatever woke it.
//!
//! Time is an argument, and what lies outside is behind a [`Site`]: so a game in virtual time plays with what runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tranche_domain::compute::{Arbiter, Instant, Nanos, Rules, Terms, Window};
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::units::Permille;

use super::member::Member;
use super::site::Site;

/// Time between two signs of life; a gate takes a daemon for gone after 800 ms.
pub(super) const BEAT: Nanos = Nanos::millis(200);
/// The least time between two decisions that nobody asked for.
const BREATH: Nanos = Nanos::micros(50);

/// The slices that are governed.
#[derive(Debug)]
pub struct Rounds<S> {
    arbiter: Arbiter,
    members: BTreeMap<SliceName, Member<S>>,
    next_beat: Instant,
}

impl<S: Site> Rounds<S> {
    /// None yet.
    pub const fn new(rules: Rules) -> Self {
        Self { arbiter: Arbiter::new(rules), members: BTreeMap::new(), next_beat: Instant::from_nanos(0) }
    }

    /// Governs a slice from now on, whose devices are these GPUs. One of the same name is forgotten, and its site
    /// given back.
    pub fn admit(
        &mut self,
        now: Instant,
        name: SliceName,
        terms: Terms,
        devices: &[GpuUuid],
        site: S,
    ) -> Option<S> {
        let before = self.members.insert(name.clone(), Member::new(site, devices));
        self.arbiter.admit(now, name, terms);
        before.map(Member::into_site)
    }

    /// A slice's terms change. Use until now is charged by the terms until now.
    pub fn change(&mut self, now: Instant, name: &SliceName, terms: Terms) {
        self.look_at_all(now);
        self.arbiter.change(now, name, terms);
    }

    /// These slices use their GPUs without saying so, and no others; so much they did until now that was not known.
    pub fn mistrust(&mut self, now: Instant, whom: &BTreeMap<SliceName, Duration>) {
        self.look_at_all(now);
        for name in self.members.keys() {
            let unsaid =
                whom.get(name).map(|unsaid| Nanos::new(unsaid.as_nanos().try_into().unwrap_or(u64::MAX)));
            self.arbiter.mistrust(now, name, unsaid);
        }
    }

    /// So much of the time the driver saw a slice's processes compute on a GPU lately, if it can say.
    pub fn confirm(&mut self, now: Instant, name: &SliceName, gpu: GpuUuid, busy: Option<Permille>) {
        self.look_at_all(now);
        self.arbiter.confirm(now, name, gpu, busy);
    }

    /// Observes every slice: time that is charged without its use counts as kept from others, and the use comes on top later.
    fn look_at_all(&mut self, now: Instant) {
        for (name, member) in &mut self.members {
            self.arbiter.observe(now, name, member.look(now));
        }
    }

    /// These slices keep their GPUs from others and compute nothing, and no others.
    pub fn expect_nothing(&mut self, now: Instant, of: &BTreeSet<SliceName>) {
        for name in self.members.keys() {
            self.arbiter.expect_nothing(now, name, of.contains(name));
        }
    }

    /// A slice ends; gives its site if it was governed.
    pub fn leave(&mut self, now: Instant, name: &SliceName) -> Option<S> {
        let member = self.members.remove(name)?;
        self.arbiter.leave(now, name);
        Some(member.into_site())
    }

    /// Who decides.
    pub const fn arbiter(&self) -> &Arbiter {
        &self.arbiter
    }

    /// Where a slice is, if it is governed.
    pub fn site(&self, name: &SliceName) -> Option<&S> {
        self.members.get(name).map(Member::site)
    }

    /// Launches of a slice that were let through because nothing made progress, and because there was no daemon.
    pub fn let_through(&self, name: &SliceName) -> Option<(u64, u64)> {
        self.members.get(name).map(Member::let_through)
    }

    /// For how long a slice was busy since it is governed, device by device.
    pub fn busy(&self, name: &SliceName) -> Option<Vec<Nanos>> {
        self.members.get(name).map(Member::busy)
    }

    /// The slices that are governed.
    pub fn names(&self) -> impl Iterator<Item = &SliceName> {
        self.members.keys()
    }

    /// How late the next round is that comes in any case; nothing if its time has not come, or
    /// there has been none yet.
    pub fn lateness(&self, now: Instant) -> Nanos {
        if self.next_beat == Instant::default() { Nanos::ZERO } else { now.since(self.next_beat) }
    }

    /// Looks at those who may want something and decides; says when to do so again. Whose bell rang since the
    /// last time is asked of each site; `all` are looked at if something else may have happened to any of them.
    pub fn go(&mut self, now: Instant, all: bool, rang: impl Fn(&S) -> bool) -> Instant {
        let beat = now >= self.next_beat;
        if beat {
            self.next_beat = now + BEAT;
        }
        for (name, member) in &mut self.members {
            let rang = rang(member.site());
            if rang {
                member.rang(now);
            }
            if beat || all || rang || member.wants_a_look(now) {
                self.arbiter.observe(now, name, member.look(now));
            }
        }
        let decision = self.arbiter.decide(now);
        for (name, lease) in decision.leases {
            if let Some(member) = self.members.get_mut(&name)
                && member.tell(lease)
            {
                self.arbiter.observe(now, &name, member.look(now));
            }
        }
        let mut deadline = self.next_beat;
        for (name, member) in &mut self.members {
            member.keep_up();
            if beat {
                let used = |gpu| self.arbiter.used(now, name, gpu, Window::Second);
                member.site().beat(now, &used);
            }
            deadline = member.unmute(now).map_or(deadline, |at| deadline.min(at));
        }
        let again = decision.look_again.map_or(deadline, |at| at.max(now + BREATH));
        deadline.min(again)
    }
}
