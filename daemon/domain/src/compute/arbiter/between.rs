//! Effects of slices on each other.

use crate::compute::arbiter::Arbiter;
use crate::compute::time::{Instant, Nanos};

/// Time from the begin of a slice to a launch for which work on another GPU waited.
const JOINS: Nanos = Nanos::millis(5);

impl Arbiter {
    /// Tests if another slice waits because of one that was opened for one launch.
    ///
    /// It does not if a third has its turn on another GPU of the waiting one.
    pub(super) fn delays_another(&self, at: usize) -> bool {
        let has_turn = |holder: &usize| {
            let holder = &self.slices[*holder].1;
            holder.has_turn() && holder.wants() && !holder.was_spared
        };
        self.slices[at].1.neighbours.iter().any(|other| {
            let other = &self.slices[*other].1;
            other.wants() && !other.neighbours.iter().any(has_turn)
        })
    }

    /// Slice that has just begun on another GPU.
    ///
    /// It is the one known to end waits of this one, or else the last of all.
    pub(super) fn begun_elsewhere(&self, at: usize) -> Option<usize> {
        let mine = &self.slices[at].1;
        let begins = |other: &usize| {
            let other = &self.slices[*other].1;
            !other.shares_gpu_with(mine) && other.began_within(self.now, JOINS)
        };
        let known = mine.trial.partner().filter(begins);
        known.or_else(|| {
            (0..self.slices.len()).filter(begins).max_by_key(|other| self.slices[*other].1.opened_at)
        })
    }

    /// Puts the end of launched work after the work that other slices have outstanding.
    pub(super) fn foretell(&mut self, now: Instant) {
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
                // Two slices that are open at once alternate: neither ends later than all work that is there.
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
