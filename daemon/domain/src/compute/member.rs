//! The scheduler's state of one slice.

mod announcement;
mod charge;
mod dryness;
mod passage;
mod rhythm;
mod trial;
mod wait;
mod work;

use alloc::vec;
use alloc::vec::Vec;

use crate::compute::history::UseHistory;
use crate::compute::latency::Waits;
use crate::compute::rules::Rules;
use crate::compute::terms::{ComputeTerms, LeaseDecision, Observed};
use crate::compute::time::{Instant, Nanos};
use crate::compute::verdict::{DecisionReason, SliceDecision};
use crate::units::Permille;
use announcement::Announcement;
use dryness::Dryness;
use passage::Passage;
use rhythm::Rhythm;
use trial::Trial;
use wait::TargetWait;

/// Time that a context of a closed slice has on the GPU before work launched after its closing.
///
/// The hardware changes contexts when a time slice is over, not when the other launches.
const TAIL: Nanos = Nanos::micros(500);

/// The scheduler's state of one slice.
#[derive(Clone, Debug)]
pub(super) struct SliceState {
    pub(super) terms: ComputeTerms,
    /// Indices of its GPUs among all.
    pub(super) gpus: Vec<usize>,
    /// Indices of the slices that share any of them.
    pub(super) neighbours: Vec<usize>,
    /// Indices of the other slices of its gang.
    pub(super) mates: Vec<usize>,
    pub(super) seen: Observed,
    /// Last lease that was decided for it, if any.
    pub(super) told: Option<LeaseDecision>,
    pub(super) announcement: Announcement,
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
    pub(super) opened_at: Instant,
    /// End of the work outstanding at its last closing, whatever its record shows later.
    drained_by: Instant,
    /// End of that work if it takes twice what was granted.
    tail_ends: Instant,
    /// Rest of the time that its work outstanding at its last closing has before that of others.
    pub(super) tail: Nanos,
    pub(super) trial: Trial,
    /// Part of the time in which NVML saw its processes compute, and the time of that sample, for each GPU.
    ///
    /// `None` where NVML has no such sample.
    confirmed: Vec<(Option<Permille>, Instant)>,
    /// It keeps the GPU from others while NVML sees it compute nothing: its work is not waited for.
    hollow: bool,
    /// End of the time in which another slice waits because of it.
    ///
    /// All that passes until then is charged to it.
    pub(super) keeps: Option<Instant>,
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
    /// Part of them from times in which others waited because of it, if it was opened for one launch.
    pub(super) cost: Nanos,
    dryness: Dryness,
    /// Expected end of its outstanding work.
    pub(super) ends: Instant,
    /// Begin of its present outstanding work.
    pub(super) busy_since: Instant,
    /// Its outstanding work ended since the last decision.
    pub(super) ended: bool,
    /// It has launched since the last decision.
    pub(super) launched: bool,
    pub(super) rhythm: Rhythm,
    /// Times at which its record agreed that it was idle, less others: 0 to 4.
    ///
    /// At zero it may have work that its record lacks.
    admits: u8,
    /// It runs in the gaps of another slice, which has the GPU back as soon as it wants it.
    pub(super) fills: bool,
    /// It was opened for one launch because it waited too long.
    pub(super) spared: bool,
    /// Its last opening was of that kind.
    pub(super) was_spared: bool,
    pub(super) passage: Passage,
    /// It began to want the GPU and has not been opened since.
    pub(super) woke: bool,
    wait: TargetWait,
    /// Use of each of its GPUs.
    pub(super) history: Vec<UseHistory>,
    /// Time in which others waited because of it.
    pub(super) kept: UseHistory,
    pub(super) reason: DecisionReason,
}

impl SliceState {
    pub(super) fn new(now: Instant, terms: ComputeTerms, rules: &Rules) -> Self {
        let gpus = terms.gpus.len();
        Self {
            terms,
            gpus: Vec::new(),
            neighbours: Vec::new(),
            mates: Vec::new(),
            seen: Observed::default(),
            told: None,
            announcement: Announcement::default(),
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
            tail: Nanos::ZERO,
            trial: Trial::default(),
            confirmed: vec![(None, now); gpus],
            hollow: false,
            keeps: None,
            beside: false,
            trailed: false,
            slack: Nanos::ZERO,
            worked: false,
            toll: Nanos::ZERO,
            turn: Nanos::ZERO,
            cost: Nanos::ZERO,
            dryness: Dryness::default(),
            ends: now,
            busy_since: now,
            ended: false,
            launched: false,
            rhythm: Rhythm::new(now),
            admits: 0,
            fills: false,
            spared: false,
            was_spared: false,
            passage: Passage::default(),
            woke: false,
            wait: TargetWait::default(),
            history: vec![UseHistory::new(); gpus],
            kept: UseHistory::new(),
            reason: DecisionReason::NoWork,
        }
    }

    fn set_terms(&mut self, terms: ComputeTerms) {
        if terms.gpus != self.terms.gpus {
            self.counted = None;
            self.used = vec![Nanos::ZERO; terms.gpus.len()];
            self.history = vec![UseHistory::new(); terms.gpus.len()];
            self.confirmed = vec![(None, self.progressed_at); terms.gpus.len()];
        }
        self.terms = terms;
    }

    /// Changes its terms, and keeps the GPU time that it is ahead or behind.
    ///
    /// That is measured by the `mean` virtual time of the slices beside it. A best-effort slice had no share, and begins there.
    pub(super) fn reweigh(&mut self, terms: ComputeTerms, mean: u128) {
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
        seen.waiting |= self.passes(now, &seen, rules.grace);
        let (was_idle, idle) = (self.seen.outstanding == Nanos::ZERO, seen.outstanding == Nanos::ZERO);
        let progress = seen.progress != self.seen.progress;
        if self.counted.is_none() {
            self.counted = Some(seen.busy.clone());
        }
        if progress || idle && !seen.waiting || was_idle && !idle {
            self.progressed_at = now;
        }
        if idle && !seen.waiting && self.seen.outstanding > Nanos::ZERO {
            self.rhythm.dry();
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
            self.trial.settle(false);
        } else if !idle && self.trial.is_over(now) {
            self.trial.settle(true);
        }
        let (wanted, wants) = (self.wants(), seen.waiting || !idle);
        if wanted && !wants {
            self.wait.settle();
            self.rhythm.rest(now.min(self.ends), self.busy_since);
        }
        if !wanted && wants {
            self.woke = true;
            self.wait.begin(now, most(&seen.busy), self.is_owed());
            if self.is_open() {
                self.wait.end(now, self.terms.latency);
            }
            self.rhythm.wake(now, rules);
        }
        self.seen = seen;
        if self.wants() {
            (self.wanted_at, self.wanted_busy) = (Some(now), most(&self.seen.busy));
        }
    }

    /// Tests if it wanted nothing for a while before this observation.
    ///
    /// A slice alone on its GPU marks few of its launches and shows no work while it is busy.
    pub(super) fn has_idled(&self, now: Instant, seen: &Observed, rules: &Rules) -> bool {
        let busy = most(&seen.busy) - self.wanted_busy;
        !self.wants() && self.wanted_at.is_none_or(|at| now.since(at) > rules.hysteresis + busy)
    }

    /// Opens by itself, if the time for it has come. Returns that time.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Instant> {
        let next = self.announcement.take_due(now)?;
        self.told = Some(next.lease);
        (self.fills, self.spared, self.reason) = (next.fills, next.spared, DecisionReason::Running);
        (self.beside, self.trailed) = (false, false);
        self.open(next.at, next.spared);
        self.passage = Passage::opened(true);
        self.waits_since = None;
        Some(next.at)
    }

    fn open(&mut self, now: Instant, spared: bool) {
        self.wait.end(now, self.terms.latency);
        (self.opened_at, self.was_spared) = (now, spared);
        self.passage = Passage::opened(self.seen.waiting);
        self.worked = false;
        (self.turn, self.cost) = (Nanos::ZERO, Nanos::ZERO);
        self.woke = false;
        if self.seen.outstanding == Nanos::ZERO {
            self.progressed_at = now;
        }
    }

    /// Takes in a decision. Returns true if its lease is another than before.
    pub(super) fn obey(&mut self, now: Instant, verdict: SliceDecision, rules: &Rules) -> bool {
        let (was, is) = (self.is_open(), verdict.lease.open);
        if is && !was {
            self.open(now, verdict.spared);
        }
        if was && !is {
            self.closed_at = now;
            self.dryness.end_turn();
            self.tail = TAIL.scaled(u64::from(self.seen.contexts).max(1), 1);
            if self.wants() && self.owed > i128::from(rules.quantum.get()) {
                // Interrupted within a request, it waits anew. Endless work leaves no such claim.
                self.wait.interrupt(now);
            }
            if !self.beside {
                let granted = self.told.map_or(Nanos::ZERO, |lease| lease.depth);
                let tail = self.seen.outstanding.min(granted).scaled(2, 1);
                let longest = rules.stall + self.longest(rules).scaled(5, 2);
                let patience = self.trial.patience(longest);
                self.drained_by = now + if self.hollow { Nanos::ZERO } else { patience + tail };
                self.trial.begin((self.seen.outstanding > Nanos::ZERO).then_some(now + longest + tail));
                let kernel = self.seen.kernel.min(rules.longest);
                let tail = self.seen.outstanding.min(granted.max(kernel)).scaled(2, 1);
                self.tail_ends = now + tail + rules.overlap;
            }
            if self.seen.outstanding > self.seen.kernel {
                self.rhythm.last();
            }
        }
        (self.fills, self.spared, self.reason) = (verdict.fills, verdict.spared, verdict.reason);
        self.beside = verdict.beside;
        self.trailed = verdict.beside || self.trailed && !is;
        self.waits_since = if self.wants() && !is { self.waits_since.or(Some(now)) } else { None };
        let began = self.announcement.take_begun();
        self.told.replace(verdict.lease) != Some(verdict.lease) || began
    }

    /// Counts of its waits.
    pub(super) const fn waits(&self) -> Waits {
        self.wait.counts()
    }

    /// Time by which its request should be done, and GPU time that it may still use for that to count.
    pub(super) fn due(&self) -> Option<(Instant, Nanos)> {
        self.wait.due(most(&self.seen.busy), self.terms.latency.filter(|_| self.is_owed())?)
    }

    /// Tests if it has a latency target and is within its share, so that the target counts.
    pub(super) const fn has_target(&self) -> bool {
        self.terms.latency.is_some() && self.is_owed()
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
}

fn most(times: &[Nanos]) -> Nanos {
    times.iter().copied().max().unwrap_or_default()
}
