//! Hand-over of a GPU: the time at which the next slice may begin, and announcements of it.
//!
//! A slice that waits opens by itself at the announced time. A daemon that wakes late then keeps no GPU idle.

use crate::compute::time::{Instant, Nanos};
use crate::compute::turns::{GLANCE, Round, UNKNOWN};

/// Length of a hardware time slice: a slice that wakes begins beside a launch that takes longer.
const SLICE: Nanos = Nanos::millis(2);

/// Time at which a chosen slice may begin.
pub(super) enum Begin {
    Now,
    /// Then, unless another decision comes before.
    At(Instant),
    /// Not now, and the time is not known.
    Unknown,
}

impl Round<'_> {
    /// Finds when the work that others left on the GPUs of a chosen slice is nearly done.
    ///
    /// If it is not now, the next decision comes when it may be.
    pub(super) fn begin(&mut self, at: usize) -> Begin {
        let runs = self.at(at).runs_on(self.now, self.rules);
        let mut begin = Begin::Now;
        for other in self.others(at) {
            let member = self.at(other);
            let left = member.seen.outstanding > Nanos::ZERO && !self.sheet.chosen.contains(&other);
            if !left || member.overruns(self.now, self.rules) {
                continue;
            }
            let wait = self.still_busy(other);
            let woke = self.at(at).woke && self.at(at).waits_for_itself();
            if woke && member.ends.since(self.now) > SLICE {
                continue; // the hardware lets it in sooner
            }
            if wait > Nanos::ZERO {
                self.sheet.keeps[other] |= !runs;
                let last = member.is_predictable() && member.seen.outstanding <= member.seen.kernel;
                // The mates of a gang begin at once, by one decision, and work of one may wait for another's.
                let foreseen =
                    self.at(at).mates.is_empty() && member.mates.is_empty() && self.foresees_end(other);
                begin = match begin {
                    _ if !foreseen => Begin::Unknown,
                    Begin::Now => Begin::At(self.now + wait),
                    Begin::At(moment) => Begin::At(moment.max(self.now + wait)),
                    Begin::Unknown => Begin::Unknown,
                };
                // What is used from then on is charged by another decision, though none is needed for the opening.
                self.look_in(if last { wait } else { wait.scaled(3, 4) });
            }
        }
        begin
    }

    /// Time about which a slice that waits gets its turn, after those before it.
    ///
    /// `None` where the holder's launches differ so much that its end is a guess.
    pub(super) fn hands_over(&self, at: usize) -> Option<Instant> {
        let mut holders = self.sheet.chosen.iter().copied();
        let holder = holders.find(|other| self.collide(at, *other))?;
        let member = self.at(holder);
        let is_known = member.is_predictable() && member.mates.is_empty() && self.at(at).mates.is_empty();
        if !is_known {
            return None;
        }
        let turn = if member.is_open() { member.turn } else { Nanos::ZERO };
        let left = self.quantum(holder) - turn + member.seen.outstanding - self.rules.overlap;
        let before = self.sheet.order.iter().take_while(|other| **other != at);
        let before = before.filter(|other| !self.sheet.chosen.contains(other) && self.collide(at, **other));
        Some(self.now + left + before.map(|other| self.quantum(*other)).sum())
    }

    /// Tests if the end of a slice's work can be estimated, and has not passed.
    fn foresees_end(&self, at: usize) -> bool {
        let member = self.at(at);
        !self.rules.strict_drain
            && member.ends_about(self.rules)
            && self.now.since(member.ends) <= self.rules.overlap
    }

    /// Time for which others wait for a slice; zero if the next may begin.
    fn still_busy(&self, at: usize) -> Nanos {
        let member = self.at(at);
        let left = member.ends.since(self.now);
        if self.rules.strict_drain {
            return left.max(GLANCE);
        }
        let overdue = self.now.since(member.ends);
        if self.foresees_end(at) {
            let early = self.rules.overlap.min(member.seen.kernel.scaled(1, 2).max(GLANCE + GLANCE));
            // No thread wakes from a sleep as short as that in time.
            return if left <= early + GLANCE { Nanos::ZERO } else { left - early };
        }
        // The length of the last kernel is unknown: looks become rarer the longer it lasts.
        let since = if member.is_predictable() { overdue } else { self.now.since(member.closed_at) };
        since.scaled(1, 8).clamp(GLANCE + GLANCE, UNKNOWN)
    }
}
