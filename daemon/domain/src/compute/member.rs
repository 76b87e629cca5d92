//! One slice as the arbiter knows it.

use alloc::vec;
use alloc::vec::Vec;

use crate::compute::history::History;
use crate::compute::rules::Rules;
use crate::compute::terms::{Lease, Observed, Terms, Window};
use crate::compute::time::{Instant, Nanos};
use crate::compute::verdict::{Reason, Verdict};
use crate::id::GpuUuid;
use crate::units::Permille;

/// One slice.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) terms: Terms,
    /// Its GPUs by their places among all, and the places of the slices that share any of them.
    pub(super) gpus: Vec<usize>,
    pub(super) neighbours: Vec<usize>,
    /// The places of the other slices of its gang.
    pub(super) mates: Vec<usize>,
    pub(super) seen: Observed,
    /// Its lease, once it has been told one.
    pub(super) told: Option<Lease>,
    /// Its busy times up to which it was charged; nothing until it was seen once.
    counted: Option<Vec<Nanos>>,
    /// For how long it was busy on each of its GPUs since the last charge; then, what it is charged of that.
    pub(super) used: Vec<Nanos>,
    /// It uses the GPU and does not say so, as somebody else saw: it is taken to be busy all the time.
    pub(super) hides: bool,
    /// What of `used` it says itself.
    said: Vec<Nanos>,
    /// Its virtual time: GPU time used, times 1000, over its weight.
    pub(super) clock: u128,
    /// What it may use before it reaches its limit; below zero it has to wait.
    allowance: i128,
    /// It has reached its limit and not yet come far enough below it.
    pub(super) limited: bool,
    /// What it was promised less what it used, within bounds.
    owed: i128,
    /// It began to want the GPU after an idle time, and its virtual time is of before that.
    pub(super) rejoins: bool,
    /// When it was last seen wanting the GPU.
    pub(super) wanted_at: Option<Instant>,
    /// For how long it had been busy by then.
    wanted_busy: Nanos,
    /// Since when it waits closed.
    pub(super) waits_since: Option<Instant>,
    /// When it last made progress, or could not be expected to.
    pub(super) progressed_at: Instant,
    /// When it was closed last.
    pub(super) closed_at: Instant,
    /// When it was opened last.
    opened_at: Instant,
    /// By when what it had outstanding when it was closed is over, whatever is seen of it later.
    drained_by: Instant,
    /// By when that should be over, if it takes twice what it was granted.
    tail_ends: Instant,
    /// The end of the longest wait for what was outstanding at its last closing; `None` once judged.
    tried_by: Option<Instant>,
    /// Closings after which its work outlasted the longest wait, less those in time: 0 to 4.
    /// Each after the first halves the wait.
    overran: u8,
    /// What part of the time the driver saw its processes compute on each of its GPUs, and when that was said last; nothing
    /// if it cannot say.
    confirmed: Vec<(Option<Permille>, Instant)>,
    /// It keeps the GPU from others and computes nothing, as the driver saw: its work is not waited for.
    hollow: bool,
    /// Another slice waits because of it: all the time that passes is charged to it.
    pub(super) keeps: bool,
    /// It was opened beside others without a turn, as it had work and made no progress.
    pub(super) beside: bool,
    /// It was opened beside others since its last turn.
    pub(super) trailed: bool,
    /// Time that it may keep from others without using it before that is charged.
    slack: Nanos,
    /// It has used the GPU since it was opened last.
    worked: bool,
    /// What it has still to use of the least that an interrupted turn of another costs.
    toll: Nanos,
    /// What it was charged since it was opened.
    pub(super) turn: Nanos,
    /// When what it has outstanding should be done.
    pub(super) ends: Instant,
    /// When it began to have something outstanding.
    pub(super) busy_since: Instant,
    /// What it had outstanding ended since the last decision.
    pub(super) ended: bool,
    /// It has launched since the last decision.
    pub(super) launched: bool,
    /// When it was last seen to become idle.
    idle_since: Instant,
    /// For how long it is idle each time.
    pub(super) gap: Nanos,
    /// For how long it is busy each time.
    pub(super) stint: Nanos,
    /// How surely it is one that waits for its own work: it was found idle in so many of its last turns, up to 4.
    dries: u8,
    /// How surely it is idle when it seems so: it said so itself in so many of the last times, up to 4. Else it may only
    /// not have said what it launched.
    admits: u8,
    /// It runs in the gaps of another that is to have the GPU back as soon as it asks.
    pub(super) fills: bool,
    /// It was opened because it waited too long, until it has launched once.
    pub(super) spared: bool,
    /// It was opened last because it waited too long.
    was_spared: bool,
    /// A thread of it waited at the gate when it was opened last.
    pub(super) had_waited: bool,
    /// It began to want the GPU and has not been opened since.
    pub(super) woke: bool,
    /// One for each of its GPUs.
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

    /// Its terms change. GPU time that it used beyond its share or less than it, measured by the `mean` virtual time of those
    /// beside it, stays the same; only its weight is another. One of best effort had no share.
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
        // Others reckon with its end: what a record shows beyond all that a lease grants does not put that off.
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

    /// Whether it has wanted nothing for a while until it was seen like this. One that has the GPU to itself marks
    /// little of what it launches, and looks idle while it is busy.
    pub(super) fn has_idled(&self, now: Instant, seen: &Observed, rules: &Rules) -> bool {
        let busy = most(&seen.busy) - self.wanted_busy;
        !self.wants() && self.wanted_at.is_none_or(|at| now.since(at) > rules.hysteresis + busy)
    }

    /// It is told what was decided. Says whether that is another lease than before.
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

    /// Finds out for how long it was busy on each of its GPUs in the time that passed since the last time.
    pub(super) fn take_busy(&mut self, passed: Nanos) {
        let counted = self.counted.get_or_insert_with(|| self.seen.busy.clone());
        counted.resize(self.used.len(), Nanos::ZERO);
        let seen = self.seen.busy.iter().copied().chain(core::iter::repeat(Nanos::ZERO));
        for ((used, counted), seen) in self.used.iter_mut().zip(counted).zip(seen) {
            *used = seen - *counted;
            // A count that falls is a process that is gone; what is left is counted from there.
            *counted = seen;
        }
        self.said.clone_from(&self.used);
        if self.hides {
            self.used.fill(passed);
        }
    }

    /// It is charged what it used up to now, and as much time went by; `hidden` use of another slice is known to be in
    /// that.
    pub(super) fn charge(&mut self, now: Instant, passed: Nanos, hidden: bool, rules: &Rules) {
        let used = most(&self.used);
        // What a record shows of use at the same time relieves no other slice; what the driver shows does.
        let had = if hidden { most(&self.said).min(passed) } else { used };
        let charged = used + self.beyond_slack(now, had, passed, rules);
        self.worked |= used > Nanos::ZERO;
        let from = Instant::from_nanos(now.nanos().saturating_sub(passed.get()));
        self.kept.add(from, now, if self.keeps { passed } else { Nanos::ZERO });
        if used > Nanos::ZERO {
            for ((history, used), said) in self.history.iter_mut().zip(&self.used).zip(&self.said) {
                history.add(from, now, *used.min(said));
            }
            // Whatever it looked like when it was looked at, it had work.
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

    /// What is kept from others costs as much as what is used, less the slack that hand-overs and the gaps of a program
    /// that waits for its own work take. A little of it comes by request: all slices of a GPU together have
    /// [`Rules::slack`] of the time. More comes with use that the driver has seen: what a record shows earns none, but where
    /// the driver cannot say.
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

    /// What part of the time the driver saw its processes compute lately, on the GPU where that was most; nothing if it
    /// cannot say.
    fn computed(&self, now: Instant, rules: &Rules) -> Option<Permille> {
        let lately = |(seen, at): &(Option<Permille>, Instant)| {
            let is_late = now.since(*at) > rules.confirmed;
            seen.map(|seen| if is_late { Permille::ZERO } else { seen })
        };
        self.confirmed.iter().map(lately).try_fold(Permille::ZERO, |most, seen| Some(most.max(seen?)))
    }

    /// Whether the GPU may be kept for it while it is away: the driver saw its processes compute, or cannot say.
    pub(super) fn is_worth_keeping_for(&self, now: Instant, rules: &Rules) -> bool {
        self.computed(now, rules) != Some(Permille::ZERO)
    }

    /// So much of the time the driver saw its processes compute on a GPU lately; nothing if it cannot say. That it saw none
    /// says something only of a slice because of which others waited meanwhile.
    pub(super) fn confirm(&mut self, now: Instant, gpu: GpuUuid, busy: Option<Permille>, rules: &Rules) {
        let was_idle =
            busy == Some(Permille::ZERO) && self.kept.share(now, Window::Second).get() < rules.held;
        let own = self.terms.gpus.iter().zip(&mut self.confirmed).find(|(own, _)| **own == gpu);
        if let Some((_, confirmed)) = own {
            *confirmed = (busy.filter(|_| !was_idle), now);
        }
    }

    /// From now on its work is not waited for, or is again.
    pub(super) const fn set_hollow(&mut self, hollow: bool) {
        self.hollow = hollow;
    }

    /// It has ended another's turn before its time, which costs that one a hand-over: one that asks for the GPU and does
    /// nothing with it pays for it nevertheless.
    pub(super) fn interrupt(&mut self, rules: &Rules) {
        self.toll = self.toll.max(rules.overlap);
    }

    /// It is known to use its GPUs without saying so, or no more, and charged for what it used until now and did not say.
    pub(super) fn mistrust(&mut self, unsaid: Option<Nanos>, rules: &Rules) {
        self.hides = unsaid.is_some();
        let unsaid = unsaid.unwrap_or_default();
        self.clock += self.paces(unsaid);
        self.allowance -= i128::from(unsaid.get());
        self.owed = (self.owed - i128::from(unsaid.get())).max(-4 * i128::from(rules.burst.get()));
    }

    /// By how much its virtual time goes on while it uses so much.
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

    /// Whether there is a part of the GPU that it may not use.
    pub(super) const fn has_limit(&self) -> bool {
        self.terms.limit.get() < 1000
    }

    /// From which allowance on a slice that reached its limit may go on.
    fn resume(&self, rules: &Rules) -> i128 {
        part(rules.quantum, self.terms.limit.get()).min(i128::from(rules.quantum.get()) / 3)
    }

    /// How long until its limit stops it or lets it go on, if it has one.
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

    /// Its weight against others; one of best effort counts least.
    pub(super) fn weight(&self) -> u64 {
        u64::from(self.terms.request.get().max(1))
    }

    /// Whether it has used less than it was promised.
    pub(super) const fn is_owed(&self) -> bool {
        self.owed > 0
    }

    /// Whether the virtual time of others is measured by its own: it was promised some of the GPU, and may use it.
    pub(super) fn counts(&self, now: Instant, rules: &Rules) -> bool {
        self.terms.request > Permille::ZERO
            && !self.terms.frozen
            && !self.limited
            && !self.is_stalled(now, rules)
    }

    pub(super) fn wants(&self) -> bool {
        self.seen.waiting || self.seen.outstanding > Nanos::ZERO
    }

    /// Whether it is open, and others wait for it.
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

    /// It was opened beside others less than `time` ago, for a launch that its work may wait for.
    pub(super) fn is_beside_for(&self, now: Instant, time: Nanos) -> bool {
        self.is_open() && self.beside && now.since(self.opened_at) <= time
    }

    /// Whether it still shows work outstanding when all that it was granted must be over. Closed, it can launch nothing,
    /// so that no other slice waits for the end of that.
    fn is_overdue(&self, now: Instant) -> bool {
        !self.is_open() && now > self.drained_by
    }

    /// Until when what another launches now comes after the work of this one; nothing if it need not. What a closed record
    /// shows beyond what it was granted puts off nothing.
    pub(super) fn delays_until(&self, now: Instant, rules: &Rules) -> Option<Instant> {
        if self.seen.outstanding == Nanos::ZERO || self.overruns(now, rules) {
            return None;
        }
        Some(if self.is_open() { self.ends } else { self.ends.min(self.tail_ends) })
    }

    /// Whether it was opened for one launch and has not made it in time.
    pub(super) fn dawdles(&self, now: Instant, rules: &Rules) -> bool {
        now.since(self.opened_at) > rules.hysteresis
    }

    /// Its longest kernel, as far as others wait for it. What takes longer may be waiting for something else, and the
    /// longer it is waited for the longer it takes.
    pub(super) fn longest(&self, rules: &Rules) -> Nanos {
        self.seen.longest.min(rules.longest)
    }

    /// Whether it has waited so long that it goes first for one launch, whatever it is owed. It waits the longer the more
    /// that costs others: by what it says of its launches, and by what the last one that was let through so kept from
    /// them.
    pub(super) fn is_starved(&self, now: Instant, rules: &Rules) -> bool {
        let cost = if self.was_spared { self.turn } else { Nanos::ZERO };
        let patience = rules.starved + self.longest(rules).max(cost).scaled(20, 1);
        self.waits_since.is_some_and(|since| now.since(since) >= patience)
    }

    /// Whether it wants the GPU, or did not longer ago than `time`.
    pub(super) fn wanted_within(&self, now: Instant, time: Nanos) -> bool {
        self.wants() || self.wanted_at.is_some_and(|at| now.since(at) <= time)
    }

    /// Whether its kernels are alike, so that their end can be foretold.
    pub(super) fn is_predictable(&self) -> bool {
        let kernel = self.seen.kernel;
        kernel > Nanos::ZERO && self.seen.longest <= kernel + kernel
    }

    /// Whether a few of its kernels may take longer than any may be expected to: nobody knows what is outstanding.
    pub(super) fn is_erratic(&self, rules: &Rules) -> bool {
        self.seen.kernel.scaled(8, 1) > rules.depth
            && self.seen.longest > rules.depth
            && !self.is_predictable()
    }

    /// How much more GPU time it used than `other` for their weights, in its own time.
    pub(super) fn lead_over(&self, other: &Self) -> Nanos {
        let ahead = self.clock.saturating_sub(other.clock) * u128::from(self.weight()) / 1000;
        Nanos::new(u64::try_from(ahead).unwrap_or(u64::MAX))
    }

    /// Whether it waits for its own work now and then, as what answers requests does.
    pub(super) const fn waits_for_itself(&self) -> bool {
        self.dries > 0
    }

    /// Whether it says itself when it has nothing to do.
    pub(super) const fn admits_idleness(&self) -> bool {
        self.admits > 0
    }

    /// Whether it has the GPU and nothing to do with it, or will in a moment.
    pub(super) fn is_drying(&self, now: Instant, rules: &Rules) -> bool {
        let left = self.ends.since(now);
        // The first launch of many looks like the last for a moment.
        let single = self.stint <= self.seen.kernel.scaled(4, 1);
        let worth_it = self.turn + left >= rules.least_turn || self.gap > rules.grace && single;
        if !self.wants() {
            return worth_it || now.since(self.idle_since) >= rules.grace;
        }
        let last = self.dries > 0 && self.seen.outstanding <= self.seen.kernel && self.is_predictable();
        last && !self.seen.waiting && left <= rules.overlap && worth_it
    }

    /// How long it should still be idle, if it comes back as it uses to. Nothing if that is not to be expected, or
    /// if it is idle for longer than it runs: the GPU does not wait for such a one.
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

/// The longest of several times.
fn most(times: &[Nanos]) -> Nanos {
    times.iter().copied().max().unwrap_or_default()
}

/// So many thousandths of a time.
fn part(time: Nanos, permille: u32) -> i128 {
    i128::from(time.get()) * i128::from(permille) / 1000
}
