//! Charges of a slice: virtual time, allowance of its limit, slack.

use super::{SliceState, most};
use crate::compute::rules::Rules;
use crate::compute::terms::Window;
use crate::compute::time::{Instant, Nanos};
use crate::id::GpuUuid;
use crate::units::Permille;

impl SliceState {
    /// Computes its busy time on each GPU since the last charge.
    pub(in crate::compute) fn take_busy(&mut self, passed: Nanos) {
        let counted = self.counted.get_or_insert_with(|| self.seen.busy.clone());
        counted.resize(self.used.len(), Nanos::ZERO);
        let seen = self.seen.busy.iter().copied().chain(core::iter::repeat(Nanos::ZERO));
        for ((used, counted), seen) in self.used.iter_mut().zip(counted).zip(seen) {
            *used = seen - *counted;
            // A count falls when a process is gone; the rest counts from there.
            *counted = seen;
        }
        self.said.clone_from(&self.used);
        if self.hides {
            self.used.fill(passed);
        }
    }

    /// Charges it for the time that passed, and returns the charge.
    ///
    /// `hidden` states that another slice on its GPUs computes without a record, and that its use may be in this slice's.
    pub(in crate::compute) fn charge(
        &mut self,
        now: Instant,
        passed: Nanos,
        hidden: bool,
        rules: &Rules,
    ) -> Nanos {
        let used = most(&self.used);
        let kept = self.kept_of(now, passed);
        // Use in another record at the same time does not lower its charge; use that NVML saw does.
        let had = if hidden { most(&self.said).min(passed) } else { used };
        let charged = used + self.beyond_slack(now, had, (passed, kept), rules);
        if self.has_turn() {
            let dry = self.worked && self.seen.waiting && self.seen.outstanding == Nanos::ZERO;
            self.dryness.add(passed, dry);
        }
        self.worked |= used > Nanos::ZERO;
        let from = Instant::from_nanos(now.nanos().saturating_sub(passed.get()));
        self.kept.add(from, now, kept);
        if used > Nanos::ZERO {
            for ((history, used), said) in self.history.iter_mut().zip(&self.used).zip(&self.said) {
                history.add(from, now, *used.min(said));
            }
            // It had work between two observations.
            (self.wanted_at, self.wanted_busy) = (Some(now), most(&self.seen.busy));
        }
        self.turn += charged;
        let toll = if self.wants() { Nanos::ZERO } else { core::mem::take(&mut self.toll) };
        let unpaid = if self.worked { Nanos::ZERO } else { toll - charged };
        self.clock += self.paces(charged + unpaid);
        self.pass_limit(passed, used, rules);
        let bound = i128::from(rules.burst.get());
        self.owed = (self.owed + part(passed, self.terms.request.get()) - i128::from(charged.get()))
            .clamp(-4 * bound, 4 * bound);
        charged
    }

    /// Part of a time that passed in which others waited because of it.
    fn kept_of(&self, now: Instant, passed: Nanos) -> Nanos {
        self.keeps.map_or(Nanos::ZERO, |until| passed - now.since(until))
    }

    /// Time that it kept from others without using it, beyond its slack.
    ///
    /// Slack covers hand-overs and the gaps of a program that waits for its own work. All slices of a GPU together
    /// earn [`Rules::slack`] of the time, each by its request, and [`Rules::gaps`] of what NVML saw them compute. Use in
    /// a record earns slack only where NVML has no sample.
    fn beyond_slack(
        &mut self,
        now: Instant,
        used: Nanos,
        (passed, kept): (Nanos, Nanos),
        rules: &Rules,
    ) -> Nanos {
        let by_request =
            passed.scaled(u64::from(rules.slack) * u64::from(self.terms.request.get()), 1_000_000);
        let computed = match self.computed(now, rules) {
            Some(seen) => passed.scaled(u64::from(seen.get()), 1000),
            None => used,
        };
        let by_use = computed.scaled(u64::from(rules.gaps), 1000);
        self.slack = (self.slack + by_request + by_use).min(rules.most_slack);
        let unused = kept - used;
        let forgiven = unused.min(self.slack);
        self.slack = self.slack - forgiven;
        unused - forgiven
    }

    /// Part of the time in which NVML saw its processes compute lately, on the GPU where that is most.
    ///
    /// `None` where NVML has no sample.
    fn computed(&self, now: Instant, rules: &Rules) -> Option<Permille> {
        let lately = |(seen, at): &(Option<Permille>, Instant)| {
            let is_late = now.since(*at) > rules.confirmed;
            seen.map(|seen| if is_late { Permille::ZERO } else { seen })
        };
        self.confirmed.iter().map(lately).try_fold(Permille::ZERO, |most, seen| Some(most.max(seen?)))
    }

    /// Tests if the GPU may be kept for it while it is away.
    ///
    /// NVML saw its processes compute, or has no sample.
    pub(in crate::compute) fn is_worth_keeping_for(&self, now: Instant, rules: &Rules) -> bool {
        self.computed(now, rules) != Some(Permille::ZERO)
    }

    /// Takes in the part of the time in which NVML saw its processes compute on a GPU.
    ///
    /// A sample of zero counts only while other slices waited because of this one.
    pub(in crate::compute) fn confirm(
        &mut self,
        now: Instant,
        gpu: GpuUuid,
        busy: Option<Permille>,
        rules: &Rules,
    ) {
        let was_idle =
            busy == Some(Permille::ZERO) && self.kept.share(now, Window::Second).get() < rules.held;
        let own = self.terms.gpus.iter().zip(&mut self.confirmed).find(|(own, _)| **own == gpu);
        if let Some((_, confirmed)) = own {
            *confirmed = (busy.filter(|_| !was_idle), now);
        }
    }

    /// Sets if others wait for its work.
    pub(in crate::compute) const fn set_hollow(&mut self, hollow: bool) {
        self.hollow = hollow;
    }

    /// Sets the least charge for a turn of another that ended early for it.
    ///
    /// The hand-over costs that slice time, even if this one then computes nothing.
    pub(in crate::compute) fn interrupt(&mut self, rules: &Rules) {
        self.toll = self.toll.max(rules.overlap);
    }

    /// Sets or ends the state of use without a record, and charges `unsaid` use until now.
    pub(in crate::compute) fn mistrust(&mut self, unsaid: Option<Nanos>, rules: &Rules) {
        self.hides = unsaid.is_some();
        let unsaid = unsaid.unwrap_or_default();
        self.clock += self.paces(unsaid);
        self.allowance -= i128::from(unsaid.get());
        self.owed = (self.owed - i128::from(unsaid.get())).max(-4 * i128::from(rules.burst.get()));
    }

    /// Virtual time of an amount of use.
    pub(in crate::compute) fn paces(&self, used: Nanos) -> u128 {
        u128::from(used.get()) * 1000 / u128::from(self.weight())
    }

    fn pass_limit(&mut self, passed: Nanos, used: Nanos, rules: &Rules) {
        let burst = i128::from(rules.burst.get());
        let most = if self.wants() { burst } else { burst / 3 };
        let more = self.allowance + part(passed, self.terms.limit.get());
        self.allowance = more.min(most.max(self.allowance)) - i128::from(used.get());
        self.limited = self.has_limit()
            && if self.limited { self.allowance < self.resume(rules) } else { self.allowance <= 0 };
    }

    /// Tests if its limit is below the whole GPU.
    pub(in crate::compute) const fn has_limit(&self) -> bool {
        self.terms.limit.get() < 1000
    }

    /// Allowance at which a slice that reached its limit may run again.
    fn resume(&self, rules: &Rules) -> i128 {
        part(rules.quantum, self.terms.limit.get()).min(i128::from(rules.quantum.get()) / 3)
    }

    /// Time until its limit stops it or lets it run again, if it has one.
    pub(in crate::compute) fn limit_turns_in(&self, rules: &Rules) -> Option<Nanos> {
        let limit = i128::from(self.terms.limit.get());
        if limit >= 1000 {
            return None;
        }
        let nanos = if self.limited {
            (self.resume(rules) - self.allowance) * 1000 / limit.max(1)
        } else {
            self.allowance.max(0) * 1000 / (1000 - limit)
        };
        Some(Nanos::new(u64::try_from(nanos).unwrap_or(0)))
    }
}

/// A part of a time in thousandths.
fn part(time: Nanos, permille: u32) -> i128 {
    i128::from(time.get()) * i128::from(permille) / 1000
}
