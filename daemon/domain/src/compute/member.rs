//! The scheduler's state of one slice.

use alloc::vec;
use alloc::vec::Vec;

use crate::compute::history::History;
use crate::compute::rules::Rules;
use crate::compute::terms::{Lease, Observed, Terms, Window};
use crate::compute::time::{Instant, Nanos};
use crate::compute::verdict::{Reason, Verdict};
use crate::id::GpuUuid;
use crate::units::Permille;

/// The scheduler's state of one slice.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) terms: Terms,
    /// Indices of its GPUs among all.
    pub(super) gpus: Vec<usize>,
    /// Indices of the slices that share any of them.
    pub(super) neighbours: Vec<usize>,
    /// Indices of the other slices of its gang.
    pub(super) mates: Vec<usize>,
    pub(super) seen: Observed,
    /// Last lease that was decided for it, if any.
    pub(super) told: Option<Lease>,
    /// Its busy times up to the last charge; `None` until it was first observed.
    counted: Option<Vec<Nanos>>,
    /// Busy time on each of its GPUs since the last charge, then the part of it that is charged.
    pub(super) used: Vec<Nanos>,
    /// The audit saw it use the GPU without a record of that: it counts as busy all the time.
    pub(super) hides: bool,
    /// Part of `used` that is in its own record.
    said: Vec<Nanos>,
    /// Its virtual time: GPU time used, times 1000, over its weight.
    pub(super) clock: u128,
    /// GPU time left before it reaches its limit, in nanoseconds; below zero it waits.
    allowance: i128,
    /// It has reached its limit, and its allowance has not recovered yet.
    pub(super) limited: bool,
    /// Its request less its use, in nanoseconds, within bounds.
    owed: i128,
    /// It began to want the GPU after an idle time, and its virtual time is of before that.
    pub(super) rejoins: bool,
    /// Last observation at which it wanted the GPU.
    pub(super) wanted_at: Option<Instant>,
    /// Its busy time at that observation.
    wanted_busy: Nanos,
    /// Begin of its present wait behind a closed lease.
    pub(super) waits_since: Option<Instant>,
    /// Last progress, or last moment at which none was due.
    pub(super) progressed_at: Instant,
    pub(super) closed_at: Instant,
    opened_at: Instant,
    /// End of the work outstanding at its last closing, whatever its record shows later.
    drained_by: Instant,
    /// End of that work if it takes twice what was granted.
    tail_ends: Instant,
    /// The end of the longest wait for what was outstanding at its last closing; `None` once judged.
    tried_by: Option<Instant>,
    /// Closings after which its work outlasted the longest wait, less those in time: 0 to 4.
    /// Each after the first halves the wait.
    overran: u8,
    /// Part of the time in which NVML saw its processes compute, and the time of that sample, for each GPU.
    ///
    /// `None` where NVML has no such sample.
    confirmed: Vec<(Option<Permille>, Instant)>,
    /// It keeps the GPU from others while NVML sees it compute nothing: its work is not waited for.
    hollow: bool,
    /// Another slice waits because of it, so that all the time that passes is charged to it.
    pub(super) keeps: bool,
    /// It was opened beside others without a turn, as it had work and made no progress.
    pub(super) beside: bool,
    /// It was opened beside others since its last turn.
    pub(super) trailed: bool,
    /// Time that it may keep from others without using it before that is charged.
    slack: Nanos,
    /// It has used the GPU since it was opened last.
    worked: bool,
    /// Rest of the least charge for a turn of another that it interrupted.
    toll: Nanos,
    /// Charges since it was opened.
    pub(super) turn: Nanos,
    /// Expected end of its outstanding work.
    pub(super) ends: Instant,
    /// Begin of its present outstanding work.
    pub(super) busy_since: Instant,
    /// Its outstanding work ended since the last decision.
    pub(super) ended: bool,
    /// It has launched since the last decision.
    pub(super) launched: bool,
    /// Last time at which it became idle.
    idle_since: Instant,
    /// Mean length of its idle times.
    pub(super) gap: Nanos,
    /// Mean length of its busy times.
    pub(super) stint: Nanos,
    /// Turns in which it was idle, less those in which it was not: 0 to 4. Above zero it waits for its own work.
    dries: u8,
    /// Times at which its record agreed that it was idle, less others: 0 to 4.
    ///
    /// At zero it may have work that its record lacks.
    admits: u8,
    /// It runs in the gaps of another slice, which has the GPU back as soon as it wants it.
    pub(super) fills: bool,
    /// It was opened for one launch because it waited too long.
    pub(super) spared: bool,
    /// Its last opening was of that kind.
    was_spared: bool,
    /// A thread of it waited at the gate when it was opened last.
    pub(super) had_waited: bool,
    /// It began to want the GPU and has not been opened since.
    pub(super) woke: bool,
    /// Use of each of its GPUs.
    pub(super) history: Vec<History>,
    /// Time in which others waited because of it.
    pub(super) kept: History,
    pub(super) reason: Reason,
}

impl Member {
    pub(super) fn new(now: Instant, terms: Terms, rules: &Rules) -> Self {
        let gpus = terms.gpus.len();
        Self {
            terms,
            gpus: Vec::new(),
            neighbours: Vec::new(),
            mates: Vec::new(),
            seen: Observed::default(),
            told: None,
            counted: None,
            used: vec![Nanos::ZERO; gpus],
            hides: false,
            said: vec![Nanos::ZERO; gpus],
            clock: 0,
            allowance: i128::from(rules.burst.get()),
            limited: false,
            owed: 0,
            rejoins: false,
            wanted_at: None,
            wanted_busy: Nanos::ZERO,
            waits_since: None,
            progressed_at: now,
            closed_at: now,
            opened_at: now,
            drained_by: now + rules.stall + rules.longest + rules.lone_depth.scaled(2, 1),
            tail_ends: now,
            tried_by: None,
            overran: 0,
            confirmed: vec![(None, now); gpus],
            hollow: false,
            keeps: false,
            beside: false,
            trailed: false,
            slack: Nanos::ZERO,
            worked: false,
            toll: Nanos::ZERO,
            turn: Nanos::ZERO,
            ends: now,
            busy_since: now,
            ended: false,
            launched: false,
            idle_since: now,
            gap: Nanos::ZERO,
            stint: Nanos::ZERO,
            dries: 0,
            admits: 0,
            fills: false,
            spared: false,
            was_spared: false,
            had_waited: false,
            woke: false,
            history: vec![History::new(); gpus],
            kept: History::new(),
            reason: Reason::NoWork,
        }
    }

    fn set_terms(&mut self, terms: Terms) {
        if terms.gpus != self.terms.gpus {
            self.counted = None;
            self.used = vec![Nanos::ZERO; terms.gpus.len()];
            self.history = vec![History::new(); terms.gpus.len()];
            self.confirmed = vec![(None, self.progressed_at); terms.gpus.len()];
        }
        self.terms = terms;
    }

    /// Changes its terms, and keeps the GPU time that it is ahead or behind.
    ///
    /// That is measured by the `mean` virtual time of the slices beside it. A best-effort slice had no share, and begins there.
    pub(super) fn reweigh(&mut self, terms: Terms, mean: u128) {
        let (before, after) = (u128::from(self.weight()), u128::from(terms.request.get().max(1)));
        self.clock = match self.terms.request {
            Permille::ZERO => mean,
            _ if self.clock >= mean => mean + (self.clock - mean) * before / after,
            _ => mean.saturating_sub((mean - self.clock) * before / after),
        };
        self.set_terms(terms);
    }

    pub(super) fn observe(&mut self, now: Instant, mut seen: Observed, rules: &Rules) {
        // Other slices wait for its end: work beyond all that a lease grants does not put that off.
        seen.outstanding = seen.outstanding.min(rules.lone_depth + rules.longest);
        let (was_idle, idle) = (self.seen.outstanding == Nanos::ZERO, seen.outstanding == Nanos::ZERO);
        let progress = seen.progress != self.seen.progress;
        if self.counted.is_none() {
            self.counted = Some(seen.busy.clone());
        }
        if progress || idle && !seen.waiting || was_idle && !idle {
            self.progressed_at = now;
        }
        if idle && !seen.waiting && self.seen.outstanding > Nanos::ZERO {
            self.dries = 4;
        }
        if idle && !seen.waiting {
            self.admits = if seen.claims_work { self.admits.saturating_sub(1) } else { 4 };
        }
        let bound = now + seen.outstanding;
        self.launched |= !idle && progress && (self.is_open() || seen.outstanding > self.seen.outstanding);
        self.ends = if self.launched { bound } else { self.ends.min(bound) };
        self.ended |= idle && !was_idle;
        if was_idle && !idle {
            self.busy_since = now;
        }
        if idle && !self.is_open() && now.since(self.closed_at) >= rules.drained {
            // Closed, it launches nothing more.
            self.drained_by = self.drained_by.min(now);
            self.settle(false);
        } else if !idle && self.tried_by.is_some_and(|by| now > by) {
            self.settle(true);
        }
        let (wanted, wants) = (self.wants(), seen.waiting || !idle);
        if wanted && !wants {
            self.idle_since = now.min(self.ends);
            let stint = self.idle_since.since(self.busy_since);
            self.stint = self.stint.scaled(3, 4) + stint.scaled(1, 4);
        }
        if !wanted && wants {
            self.woke = true;
            self.gap = self.gap.scaled(3, 4) + now.since(self.idle_since).scaled(1, 4);
        }
        self.seen = seen;
        if self.wants() {
            (self.wanted_at, self.wanted_busy) = (Some(now), most(&self.seen.busy));
        }
    }

    /// Judges the work outstanding at its last closing: it is over, or `outlasts` the longest wait.
    const fn settle(&mut self, outlasts: bool) {
        if self.tried_by.take().is_some() {
            self.overran = match self.overran {
                most @ 4.. if outlasts => most,
                count if outlasts => count + 1,
                count => count.saturating_sub(1),
            };
        }
    }

    /// Tests if it wanted nothing for a while before this observation.
    ///
    /// A slice alone on its GPU marks few of its launches and shows no work while it is busy.
    pub(super) fn has_idled(&self, now: Instant, seen: &Observed, rules: &Rules) -> bool {
        let busy = most(&seen.busy) - self.wanted_busy;
        !self.wants() && self.wanted_at.is_none_or(|at| now.since(at) > rules.hysteresis + busy)
    }

    /// Takes in a decision. Returns true if its lease is another than before.
    pub(super) fn obey(&mut self, now: Instant, verdict: Verdict, rules: &Rules) -> bool {
        let (was, is) = (self.is_open(), verdict.lease.open);
        if is && !was {
            (self.opened_at, self.was_spared) = (now, verdict.spared);
            self.had_waited = self.seen.waiting;
            self.worked = false;
            self.turn = Nanos::ZERO;
            self.woke = false;
            if self.seen.outstanding == Nanos::ZERO {
                self.progressed_at = now;
            }
        }
        if was && !is {
            self.closed_at = now;
            if !self.beside {
                let granted = self.told.map_or(Nanos::ZERO, |lease| lease.depth);
                let tail = self.seen.outstanding.min(granted).scaled(2, 1);
                let longest = rules.stall + self.longest(rules).scaled(5, 2);
                let patience = longest.scaled(1, 1 << self.overran.saturating_sub(1));
                self.drained_by = now + if self.hollow { Nanos::ZERO } else { patience + tail };
                self.tried_by = (self.seen.outstanding > Nanos::ZERO).then_some(now + longest + tail);
                let kernel = self.seen.kernel.min(rules.longest);
                let tail = self.seen.outstanding.min(granted.max(kernel)).scaled(2, 1);
                self.tail_ends = now + tail + rules.overlap;
            }
            if self.seen.outstanding > self.seen.kernel {
                self.dries = self.dries.saturating_sub(1);
            }
        }
        (self.fills, self.spared, self.reason) = (verdict.fills, verdict.spared, verdict.reason);
        self.beside = verdict.beside;
        self.trailed = verdict.beside || self.trailed && !is;
        self.waits_since = if self.wants() && !is { self.waits_since.or(Some(now)) } else { None };
        self.told.replace(verdict.lease) != Some(verdict.lease)
    }

    /// Computes its busy time on each GPU since the last charge.
    pub(super) fn take_busy(&mut self, passed: Nanos) {
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

    /// Charges it for the time that passed.
    ///
    /// `hidden` states that another slice on its GPUs computes without a record, and that its use may be in this slice's.
    pub(super) fn charge(&mut self, now: Instant, passed: Nanos, hidden: bool, rules: &Rules) {
        let used = most(&self.used);
        // Use in another record at the same time does not lower its charge; use that NVML saw does.
        let had = if hidden { most(&self.said).min(passed) } else { used };
        let charged = used + self.beyond_slack(now, had, passed, rules);
        self.worked |= used > Nanos::ZERO;
        let from = Instant::from_nanos(now.nanos().saturating_sub(passed.get()));
        self.kept.add(from, now, if self.keeps { passed } else { Nanos::ZERO });
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
    }

    /// Time that it kept from others without using it, beyond its slack.
    ///
    /// Slack covers hand-overs and the gaps of a program that waits for its own work. All slices of a GPU together
    /// earn [`Rules::slack`] of the time, each by its request, and [`Rules::gaps`] of what NVML saw them compute. Use in
    /// a record earns slack only where NVML has no sample.
    fn beyond_slack(&mut self, now: Instant, used: Nanos, passed: Nanos, rules: &Rules) -> Nanos {
        let by_request =
            passed.scaled(u64::from(rules.slack) * u64::from(self.terms.request.get()), 1_000_000);
        let computed = match self.computed(now, rules) {
            Some(seen) => passed.scaled(u64::from(seen.get()), 1000),
            None => used,
        };
        let by_use = computed.scaled(u64::from(rules.gaps), 1000);
        self.slack = (self.slack + by_request + by_use).min(rules.most_slack);
        if !self.keeps {
            return Nanos::ZERO;
        }
        let unused = passed - used;
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
    pub(super) fn is_worth_keeping_for(&self, now: Instant, rules: &Rules) -> bool {
        self.computed(now, rules) != Some(Permille::ZERO)
    }

    /// Takes in the part of the time in which NVML saw its processes compute on a GPU.
    ///
    /// A sample of zero counts only while other slices waited because of this one.
    pub(super) fn confirm(&mut self, now: Instant, gpu: GpuUuid, busy: Option<Permille>, rules: &Rules) {
        let was_idle =
            busy == Some(Permille::ZERO) && self.kept.share(now, Window::Second).get() < rules.held;
        let own = self.terms.gpus.iter().zip(&mut self.confirmed).find(|(own, _)| **own == gpu);
        if let Some((_, confirmed)) = own {
            *confirmed = (busy.filter(|_| !was_idle), now);
        }
    }

    /// Sets if others wait for its work.
    pub(super) const fn set_hollow(&mut self, hollow: bool) {
        self.hollow = hollow;
    }

    /// Sets the least charge for a turn of another that ended early for it.
    ///
    /// The hand-over costs that slice time, even if this one then computes nothing.
    pub(super) fn interrupt(&mut self, rules: &Rules) {
        self.toll = self.toll.max(rules.overlap);
    }

    /// Sets or ends the state of use without a record, and charges `unsaid` use until now.
    pub(super) fn mistrust(&mut self, unsaid: Option<Nanos>, rules: &Rules) {
        self.hides = unsaid.is_some();
        let unsaid = unsaid.unwrap_or_default();
        self.clock += self.paces(unsaid);
        self.allowance -= i128::from(unsaid.get());
        self.owed = (self.owed - i128::from(unsaid.get())).max(-4 * i128::from(rules.burst.get()));
    }

    /// Virtual time of an amount of use.
    pub(super) fn paces(&self, used: Nanos) -> u128 {
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
    pub(super) const fn has_limit(&self) -> bool {
        self.terms.limit.get() < 1000
    }

    /// Allowance at which a slice that reached its limit may run again.
    fn resume(&self, rules: &Rules) -> i128 {
        part(rules.quantum, self.terms.limit.get()).min(i128::from(rules.quantum.get()) / 3)
    }

    /// Time until its limit stops it or lets it run again, if it has one.
    pub(super) fn limit_turns_in(&self, rules: &Rules) -> Option<Nanos> {
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

    /// Its weight against others: its request in permille, at least 1.
    pub(super) fn weight(&self) -> u64 {
        u64::from(self.terms.request.get().max(1))
    }

    /// Tests if it used less than its request.
    pub(super) const fn is_owed(&self) -> bool {
        self.owed > 0
    }

    /// Tests if the virtual time of others is measured by its own: it has a request, and may use it.
    pub(super) fn counts(&self, now: Instant, rules: &Rules) -> bool {
        self.terms.request > Permille::ZERO
            && !self.terms.frozen
            && !self.limited
            && !self.is_stalled(now, rules)
    }

    pub(super) fn wants(&self) -> bool {
        self.seen.waiting || self.seen.outstanding > Nanos::ZERO
    }

    /// Tests if it is open and others wait for it.
    pub(super) fn has_turn(&self) -> bool {
        self.is_open() && !self.beside
    }

    pub(super) fn is_open(&self) -> bool {
        self.told.is_some_and(|lease| lease.open)
    }

    /// Stopped processes, or such as wait for something else, hold the GPU.
    ///
    /// So it counts where it is open and launches nothing, and where NVML sees nothing of its work compute.
    pub(super) fn is_stalled(&self, now: Instant, rules: &Rules) -> bool {
        if self.seen.outstanding > Nanos::ZERO {
            return self.is_stuck(now, rules) && !self.is_worth_keeping_for(now, rules);
        }
        self.wants() && self.is_open() && now.since(self.progressed_at) > rules.hysteresis
    }

    /// A launch takes longer than any wait for its end.
    ///
    /// It stays beside the work of others, under the hardware's time slices. It is charged, and its slice is closed until
    /// others had as much.
    pub(super) fn overruns(&self, now: Instant, rules: &Rules) -> bool {
        self.seen.outstanding > Nanos::ZERO && (self.is_stuck(now, rules) || self.is_overdue(now))
    }

    /// None of its work ended for longer than its launches take.
    fn is_stuck(&self, now: Instant, rules: &Rules) -> bool {
        now.since(self.progressed_at) > rules.stall + self.longest(rules).scaled(5, 2)
    }

    /// A launch is still running a while after its slice was closed, which then waits for no other.
    pub(super) fn runs_on(&self, now: Instant, rules: &Rules) -> bool {
        !self.is_open() && self.seen.outstanding > Nanos::ZERO && now.since(self.closed_at) > rules.hysteresis
    }

    /// It was opened beside others less than `time` ago, for a launch for which its work may wait.
    pub(super) fn is_beside_for(&self, now: Instant, time: Nanos) -> bool {
        self.is_open() && self.beside && now.since(self.opened_at) <= time
    }

    /// Tests if it shows work outstanding after the end of all that it was granted.
    ///
    /// Closed, it can launch nothing, so that no other slice waits for the end of that.
    fn is_overdue(&self, now: Instant) -> bool {
        !self.is_open() && now > self.drained_by
    }

    /// End of its work, after which work that another slice launches now begins, if it has any.
    ///
    /// Work beyond its grant in the record of a closed slice puts off nothing.
    pub(super) fn delays_until(&self, now: Instant, rules: &Rules) -> Option<Instant> {
        if self.seen.outstanding == Nanos::ZERO || self.overruns(now, rules) {
            return None;
        }
        Some(if self.is_open() { self.ends } else { self.ends.min(self.tail_ends) })
    }

    /// Tests if it was opened longer ago than a launch should take to come.
    pub(super) fn dawdles(&self, now: Instant, rules: &Rules) -> bool {
        now.since(self.opened_at) > rules.hysteresis
    }

    /// Its longest kernel, as far as others wait for it.
    ///
    /// A kernel that takes longer may itself wait for another slice.
    pub(super) fn longest(&self, rules: &Rules) -> Nanos {
        self.seen.longest.min(rules.longest)
    }

    /// Tests if it waited long enough to be first for one launch, whatever it used.
    ///
    /// The wait grows with the cost to others: its longest launch, or the length of its last turn of this kind.
    pub(super) fn is_starved(&self, now: Instant, rules: &Rules) -> bool {
        let cost = if self.was_spared { self.turn } else { Nanos::ZERO };
        let patience = rules.starved + self.longest(rules).max(cost).scaled(20, 1);
        self.waits_since.is_some_and(|since| now.since(since) >= patience)
    }

    /// Tests if it wants the GPU, or did within the last `time`.
    pub(super) fn wanted_within(&self, now: Instant, time: Nanos) -> bool {
        self.wants() || self.wanted_at.is_some_and(|at| now.since(at) <= time)
    }

    /// Tests if its kernels are alike, so that their end can be estimated.
    pub(super) fn is_predictable(&self) -> bool {
        let kernel = self.seen.kernel;
        kernel > Nanos::ZERO && self.seen.longest <= kernel + kernel
    }

    /// Tests if estimates of its work fail, as a few of its kernels may take much longer than the mean.
    pub(super) fn is_erratic(&self, rules: &Rules) -> bool {
        self.seen.kernel.scaled(8, 1) > rules.depth
            && self.seen.longest > rules.depth
            && !self.is_predictable()
    }

    /// GPU time that it is ahead of `other` by their weights, in its own time.
    pub(super) fn lead_over(&self, other: &Self) -> Nanos {
        let ahead = self.clock.saturating_sub(other.clock) * u128::from(self.weight()) / 1000;
        Nanos::new(u64::try_from(ahead).unwrap_or(u64::MAX))
    }

    /// Tests if it waits for its own work now and then, as a server of requests does.
    pub(super) const fn waits_for_itself(&self) -> bool {
        self.dries > 0
    }

    /// Tests if its record agrees when it has no work.
    pub(super) const fn admits_idleness(&self) -> bool {
        self.admits > 0
    }

    /// Tests if its work is done, or will be in a moment.
    pub(super) fn is_drying(&self, now: Instant, rules: &Rules) -> bool {
        let left = self.ends.since(now);
        // The first launch of many cannot be distinguished from the last at first.
        let single = self.stint <= self.seen.kernel.scaled(4, 1);
        let worth_it = self.turn + left >= rules.least_turn || self.gap > rules.grace && single;
        if !self.wants() {
            return worth_it || now.since(self.idle_since) >= rules.grace;
        }
        let last = self.dries > 0 && self.seen.outstanding <= self.seen.kernel && self.is_predictable();
        last && !self.seen.waiting && left <= rules.overlap && worth_it
    }

    /// Rest of its idle time, if it comes back as before.
    ///
    /// `None` if it is late, or is idle for longer than it runs: the GPU does not wait for such a slice.
    pub(super) fn returns_in(&self, now: Instant, rules: &Rules) -> Option<Nanos> {
        if self.gap > self.stint.scaled(5, 4) {
            return None;
        }
        let from = if self.wants() { self.ends } else { self.idle_since };
        let idle = now.since(from);
        let late = self.gap.scaled(2, 1) + rules.grace;
        (idle < late.min(rules.hysteresis)).then(|| self.gap - idle)
    }

    pub(super) fn shares_gpu_with(&self, other: &Self) -> bool {
        self.gpus.iter().any(|gpu| other.gpus.contains(gpu))
    }
}

fn most(times: &[Nanos]) -> Nanos {
    times.iter().copied().max().unwrap_or_default()
}

/// A part of a time in thousandths.
fn part(time: Nanos, permille: u32) -> i128 {
    i128::from(time.get()) * i128::from(permille) / 1000
}
