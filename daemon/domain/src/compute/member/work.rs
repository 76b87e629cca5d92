//! Queries about the work of a slice: outstanding, late, expected.

use super::SliceState;
use crate::compute::rules::Rules;
use crate::compute::terms::Observed;
use crate::compute::time::{Instant, Nanos};

impl SliceState {
    /// Tests if it is open and others wait for it.
    pub(in crate::compute) fn has_turn(&self) -> bool {
        self.is_open() && !self.beside
    }

    pub(in crate::compute) fn is_open(&self) -> bool {
        self.told.is_some_and(|lease| lease.open)
    }

    /// Stopped processes, or such as wait for something else, hold the GPU.
    ///
    /// So it counts where it is open and launches nothing, and where NVML sees nothing of its work compute.
    pub(in crate::compute) fn is_stalled(&self, now: Instant, rules: &Rules) -> bool {
        if self.seen.outstanding > Nanos::ZERO {
            return self.is_stuck(now, rules) && !self.is_worth_keeping_for(now, rules);
        }
        self.wants() && self.is_open() && now.since(self.progressed_at) > rules.hysteresis
    }

    /// A launch takes longer than any wait for its end.
    ///
    /// It stays beside the work of others, under the hardware's time slices. It is charged, and its slice is closed until
    /// others had as much.
    pub(in crate::compute) fn overruns(&self, now: Instant, rules: &Rules) -> bool {
        self.seen.outstanding > Nanos::ZERO && (self.is_stuck(now, rules) || self.is_overdue(now))
    }

    /// None of its work ended for longer than its launches take.
    fn is_stuck(&self, now: Instant, rules: &Rules) -> bool {
        now.since(self.progressed_at) > rules.stall + self.longest(rules).scaled(5, 2)
    }

    /// A launch is still running a while after its slice was closed, which then waits for no other.
    pub(in crate::compute) fn runs_on(&self, now: Instant, rules: &Rules) -> bool {
        !self.is_open() && self.seen.outstanding > Nanos::ZERO && now.since(self.closed_at) > rules.hysteresis
    }

    /// It was opened beside others less than `time` ago, for a launch for which its work may wait.
    pub(in crate::compute) fn is_beside_for(&self, now: Instant, time: Nanos) -> bool {
        self.is_open() && self.beside && now.since(self.opened_at) <= time
    }

    /// Tests if it shows work outstanding after the end of all that it was granted.
    ///
    /// Closed, it can launch nothing, so that no other slice waits for the end of that.
    fn is_overdue(&self, now: Instant) -> bool {
        !self.is_open() && now > self.drained_by
    }

    /// Tests if the last of its work ends with this observation, long after its slice was closed.
    ///
    /// The mates of a gang have their turns together, so that none waits for another's.
    pub(in crate::compute) fn ends_long_after(&self, now: Instant, seen: &Observed, rules: &Rules) -> bool {
        let long = self.seen.kernel.scaled(2, 1) + rules.hysteresis;
        !self.is_open()
            && self.mates.is_empty()
            && self.seen.outstanding > Nanos::ZERO
            && seen.outstanding == Nanos::ZERO
            && now.since(self.closed_at) > long
    }

    /// Tests if it was opened less than `time` ago.
    pub(in crate::compute) fn began_within(&self, now: Instant, time: Nanos) -> bool {
        self.is_open() && now.since(self.opened_at) <= time
    }

    /// Time since the work of the closed slice should have ended, beyond what its kernels differ.
    ///
    /// The marker of an end waits for its context's next time slice, if another's work runs by then. A long kernel itself may
    /// have waited for some of those.
    pub(in crate::compute) fn late(&self, now: Instant, rules: &Rules) -> Nanos {
        if self.is_open() || self.hides || !self.is_predictable() || self.seen.longest > rules.depth {
            return Nanos::ZERO;
        }
        now.since(self.ends + self.seen.longest.scaled(1, 2) + rules.overlap)
    }

    /// End of its work, after which work that another slice launches now begins, if it has any.
    ///
    /// Work beyond its grant in the record of a closed slice puts off nothing.
    pub(in crate::compute) fn delays_until(&self, now: Instant, rules: &Rules) -> Option<Instant> {
        if self.seen.outstanding == Nanos::ZERO || self.overruns(now, rules) {
            return None;
        }
        Some(if self.is_open() { self.ends } else { self.ends.min(self.tail_ends) })
    }

    /// Takes in an observation, and tests if a thread of it passes the open gate.
    pub(super) fn passes(&mut self, now: Instant, seen: &Observed, grace: Nanos) -> bool {
        let waited = self.is_open() && self.seen.waiting && self.seen.outstanding == Nanos::ZERO;
        let is_new = seen.waiting || seen.outstanding > Nanos::ZERO || seen.progress != self.seen.progress;
        self.passage.observe(now, waited && !is_new, grace)
    }

    /// Tests if it often has no work in its turn while a thread of it waits at the open gate.
    pub(in crate::compute) fn runs_dry(&self) -> bool {
        self.dryness.is_much()
    }

    /// Tests if it was opened longer ago than a launch should take to come.
    pub(in crate::compute) fn dawdles(&self, now: Instant, rules: &Rules) -> bool {
        now.since(self.opened_at) > rules.hysteresis
    }

    /// Its longest kernel, as far as others wait for it.
    ///
    /// A kernel that takes longer may itself wait for another slice.
    pub(in crate::compute) fn longest(&self, rules: &Rules) -> Nanos {
        self.seen.longest.min(rules.longest)
    }

    /// Tests if it waited long enough to be first for one launch, whatever it used.
    ///
    /// The wait grows with the cost to others: its longest launch, or the time for which they waited in its last turn of this kind.
    pub(in crate::compute) fn is_starved(&self, now: Instant, rules: &Rules) -> bool {
        let patience = rules.starved + self.longest(rules).max(self.cost).scaled(20, 1);
        self.waits_since.is_some_and(|since| now.since(since) >= patience)
    }

    /// Tests if its turn ends as soon as a slice that is behind it wants the GPU.
    ///
    /// It fills gaps, or was opened for one launch.
    pub(in crate::compute) const fn yields(&self) -> bool {
        self.fills || self.was_spared
    }

    /// Tests if it wants the GPU, or did within the last `time`.
    pub(in crate::compute) fn wanted_within(&self, now: Instant, time: Nanos) -> bool {
        self.wants() || self.wanted_at.is_some_and(|at| now.since(at) <= time)
    }

    /// Tests if its kernels are alike, so that their end can be estimated.
    pub(in crate::compute) fn is_predictable(&self) -> bool {
        let kernel = self.seen.kernel;
        kernel > Nanos::ZERO && self.seen.longest <= kernel + kernel
    }

    /// Tests if the end of a queue of its launches can be estimated well enough for a hand-over.
    ///
    /// A word that comes late makes a launch seem longer, and by more than brief launches take. Lengths of launches side by side
    /// differ in truth, and mates of a gang begin together.
    pub(in crate::compute) fn ends_about(&self, rules: &Rules) -> bool {
        let kernel = self.seen.kernel;
        let seems_alike = kernel > Nanos::ZERO && self.seen.longest <= kernel + rules.depth;
        self.is_predictable() || seems_alike && self.seen.in_order && self.mates.is_empty()
    }

    /// Tests if estimates of its work fail, as a few of its kernels may take much longer than the mean.
    pub(in crate::compute) fn is_erratic(&self, rules: &Rules) -> bool {
        self.seen.kernel.scaled(8, 1) > rules.depth
            && self.seen.longest > rules.depth
            && !self.is_predictable()
    }

    /// Tests if a launch may take so much longer than others that it launches one by one.
    ///
    /// A queue of lengths that differ less is estimated well enough, but for a limit.
    pub(in crate::compute) fn launches_singly(&self, rules: &Rules) -> bool {
        let much = rules.depth.scaled(2, 1).min(self.seen.kernel.scaled(5, 1));
        self.is_erratic(rules) && (self.has_limit() || self.seen.longest > much)
    }

    /// GPU time that it is ahead of `other` by their weights, in its own time.
    pub(in crate::compute) fn lead_over(&self, other: &Self) -> Nanos {
        let ahead = self.clock.saturating_sub(other.clock) * u128::from(self.weight()) / 1000;
        Nanos::new(u64::try_from(ahead).unwrap_or(u64::MAX))
    }

    /// Tests if it waits for its own work now and then, as a server of requests does.
    pub(in crate::compute) const fn waits_for_itself(&self) -> bool {
        self.rhythm.has_moments()
    }

    /// Tests if its record agrees when it has no work.
    pub(in crate::compute) const fn admits_idleness(&self) -> bool {
        self.admits > 0
    }

    /// Tests if its work is done, or will be in a moment.
    pub(in crate::compute) fn is_drying(&self, now: Instant, rules: &Rules) -> bool {
        let left = self.ends.since(now);
        // The first launch of many cannot be distinguished from the last at first.
        let single = self.rhythm.stint <= self.seen.kernel.scaled(4, 1);
        let worth_it = self.turn + left >= rules.least_turn || self.rhythm.gap > rules.grace && single;
        if !self.wants() {
            return worth_it || now.since(self.rhythm.idle_since) >= rules.grace;
        }
        let last =
            self.rhythm.has_moments() && self.seen.outstanding <= self.seen.kernel && self.is_predictable();
        last && !self.seen.waiting && left <= rules.overlap && worth_it
    }

    /// Rest of its idle time, if it comes back as before.
    ///
    /// `None` if it is late, or is idle for longer than it runs: the GPU does not wait for such a slice.
    pub(in crate::compute) fn returns_in(&self, now: Instant, rules: &Rules) -> Option<Nanos> {
        if self.rhythm.gap > self.rhythm.stint.scaled(5, 4) {
            return None;
        }
        let from = if self.wants() { self.ends } else { self.rhythm.idle_since };
        let idle = now.since(from);
        let late = self.rhythm.gap.scaled(2, 1) + rules.grace;
        (idle < late.min(rules.hysteresis)).then(|| self.rhythm.gap - idle)
    }

    pub(in crate::compute) fn shares_gpu_with(&self, other: &Self) -> bool {
        self.gpus.iter().any(|gpu| other.gpus.contains(gpu))
    }
}
