//! Leases, and the time of the next decision.

use crate::compute::terms::LeaseDecision;
use crate::compute::time::Nanos;
use crate::compute::turns::handover::Begin;
use crate::compute::turns::{GLANCE, Round, UNKNOWN};
use crate::compute::verdict::{DecisionReason, Opening, SliceDecision};
use crate::units::Permille;

/// Time between two decisions while a slice with a limit may launch and has just become idle.
const MOMENT: Nanos = Nanos::millis(1);
/// Time between two decisions while a slice is alone on its GPU.
const LEISURE: Nanos = Nanos::millis(100);
/// Length above which kernels are launched one by one while others wait.
///
/// A gap between them costs little, another of them in the queue much.
const LONG: Nanos = Nanos::millis(5);
/// The same beside a slice that comes back for a moment.
const MIDDLE: Nanos = Nanos::micros(2_500);
/// The same beside a slice of higher priority, which would wait for both.
const SHORT: Nanos = Nanos::millis(1);

/// Lease of each slice.
impl Round<'_> {
    pub(super) fn judge(&mut self, at: usize) -> SliceDecision {
        let member = self.at(at);
        let reason = self.reason(at);
        let chosen = self.sheet.chosen.contains(&at);
        if member.terms.frozen || member.limited && !chosen {
            self.watch_limit(at);
            return self.closed(at, reason);
        }
        if self.is_relaxed(at) {
            self.look_in(self.rules.hysteresis);
            let lease =
                LeaseDecision { open: true, depth: self.rules.depth, least: 2, bell: false, frozen: false };
            return SliceDecision::of(lease, DecisionReason::Running);
        }
        if !member.wants() {
            return self.judge_idle(at, chosen, reason);
        }
        if member.is_stalled(self.now, self.rules) || !chosen && self.is_let_in(at) {
            // It may launch whenever it can. No slice waits for it.
            let lease =
                LeaseDecision { open: true, depth: self.rules.overlap, least: 1, bell: true, frozen: false };
            return SliceDecision { fills: true, beside: true, ..SliceDecision::of(lease, reason) };
        }
        if !chosen && self.trails(at) {
            let lease = LeaseDecision { open: true, depth: Nanos::ZERO, least: 1, bell: true, frozen: false };
            return SliceDecision { fills: true, beside: true, ..SliceDecision::of(lease, reason) };
        }
        if !chosen {
            self.look_in(LEISURE); // it may be starving
            return SliceDecision { likely: self.hands_over(at), ..self.closed(at, reason) };
        }
        match if member.is_open() { Begin::Now } else { self.begin(at) } {
            Begin::Now => {}
            Begin::At(moment) => {
                let SliceDecision { lease, fills, spared, .. } = self.opened(at);
                let next = Some(Opening { at: moment, lease, fills, spared });
                return SliceDecision { next, ..self.closed(at, reason) };
            }
            Begin::Unknown => return self.closed(at, reason),
        }
        self.watch_holder(at);
        self.opened(at)
    }

    /// Decides on a slice without work.
    ///
    /// It stays open until another gets a turn, or while it is above all others.
    fn judge_idle(&mut self, at: usize, chosen: bool, reason: DecisionReason) -> SliceDecision {
        let member = self.at(at);
        let alone = member.neighbours.is_empty();
        let rival = |other: usize| {
            self.sheet.chosen.contains(&other)
                || other < at && self.at(other).is_open() && !self.at(other).wants()
        };
        let stays = member.is_open() && !self.others(at).any(rival);
        if chosen {
            self.look_in(self.rules.grace);
        }
        if member.has_limit() && member.is_open() && member.wanted_within(self.now, self.rules.hysteresis) {
            // Work without a mark does not show, and must not run beyond the limit unseen.
            self.look_in(MOMENT);
        }
        if alone || chosen || stays || self.is_above_all(at) {
            return SliceDecision { reason, ..self.opened(at) };
        }
        self.closed(at, reason)
    }

    /// Tests if it is of a higher priority than all others on its GPUs, and below its request.
    ///
    /// It is never closed then, so that its launches never wait.
    fn is_above_all(&self, at: usize) -> bool {
        let mine = self.at(at);
        let above = self.others(at).all(|other| {
            let other = self.at(other);
            other.terms.priority < mine.terms.priority
        });
        above && (mine.is_owed() || mine.terms.request == Permille::ZERO)
    }

    /// A launch overruns and has been beside others for so long that it may wait for another of its slice.
    ///
    /// The gate lets one through where nothing makes progress.
    fn is_let_in(&self, at: usize) -> bool {
        let member = self.at(at);
        member.overruns(self.now, self.rules)
            && (member.is_starved(self.now, self.rules) || member.is_beside_for(self.now, LEISURE))
    }

    /// Tests if its turn ended in the midst of a step while work of a mate may wait for the rest of it.
    ///
    /// It launches that beside the next slice, one by one, unless it is far ahead of others: the work of the mate may never end.
    fn trails(&self, at: usize) -> bool {
        let member = self.at(at);
        member.seen.waiting
            && !member.limited
            && !self.is_far_ahead(at)
            && self.party(at).skip(1).any(|mate| self.needs(mate, at))
    }

    /// Tests if another that may run is behind it by more than the rules' lag.
    fn is_far_ahead(&self, at: usize) -> bool {
        let member = self.at(at);
        let mut rivals = self.others(at).filter(|other| self.may_run(*other));
        rivals.any(|other| member.lead_over(self.at(other)) > self.rules.lag)
    }

    /// Work of a slice without a turn may wait for what a mate has still to launch.
    ///
    /// Each lets the other in only once at the end of a turn, or after a while: else both would have a turn without end.
    fn needs(&self, at: usize, mate: usize) -> bool {
        let (member, mate) = (self.at(at), self.at(mate));
        if member.seen.outstanding == Nanos::ZERO || self.sheet.chosen.contains(&at) {
            return false;
        }
        let (idle, closed_for) = (mate.seen.outstanding == Nanos::ZERO, self.now.since(member.closed_at));
        if !member.trailed && (member.is_open() || closed_for <= self.rules.stall) {
            return idle || !member.seen.waiting;
        }
        let has_launched_all = !member.seen.waiting || member.overruns(self.now, self.rules);
        idle && !member.is_open() && closed_for > self.rules.stall && has_launched_all
    }

    pub(super) fn is_away(&self, at: usize) -> bool {
        !self.at(at).wants() || self.sheet.leavers.contains(&at)
    }

    fn closed(&self, at: usize, reason: DecisionReason) -> SliceDecision {
        let member = self.at(at);
        let lease = LeaseDecision {
            open: false,
            depth: self.rules.depth,
            least: 2,
            bell: member.seen.outstanding > Nanos::ZERO,
            frozen: member.terms.frozen,
        };
        SliceDecision::of(lease, reason)
    }

    fn opened(&self, at: usize) -> SliceDecision {
        let member = self.at(at);
        let (now, rules, kernel) = (self.now, self.rules, member.seen.kernel);
        let others = || self.others(at).map(|other| self.at(other));
        let rivals = || others().filter(|other| !other.terms.frozen);
        let contended = rivals().any(|other| other.wanted_within(now, rules.hysteresis));
        let below = rivals().any(|other| {
            other.terms.priority > member.terms.priority
                && other.waits_for_itself()
                && other.wanted_within(now, rules.about)
        });
        // A slice that waits for each of its launches has no queue. One that makes long ones one by one may be seen idle as well.
        let queues = !member.waits_for_itself() || member.seen.outstanding > kernel || kernel > MIDDLE;
        // A slice that comes back for a moment and is within its share has the GPU at once, behind the work outstanding then.
        let others_wake = |late| queues && self.may_wake(at, late);
        let wakes = others_wake(rules.hysteresis);
        let fills = self.fills(at);
        let soonest = self.soonest(at);
        let soon = soonest.map(|most| most.max(kernel.scaled(3, 2)));
        // Beside launches that overrun its kernels seem to take as many times as long, and the hardware's slices have to be filled.
        let beside = others().filter(|other| other.overruns(now, rules)).count() as u64;
        let longest = soonest.map(|most| most.max(SHORT)).into_iter().chain(wakes.then_some(MIDDLE)).min();
        let one = beside == 0 && member.seen.in_order && longest.is_some_and(|most| kernel > most);
        let spared = self.is_starved(at) || member.spared && member.seen.outstanding == Nanos::ZERO;
        let singly = (contended && beside == 0 || below || member.has_limit())
            && (kernel >= if below { SHORT } else { LONG } || member.launches_singly(rules));
        let deep = rules.depth.scaled(1 + u64::from(member.runs_dry() && !singly), 1);
        let depth = match () {
            () if spared => Nanos::ZERO,
            () if below && singly || one => Nanos::ZERO,
            // Two launches, though the second should end a little sooner than estimated.
            () if below => kernel.scaled(3, 2).max(GLANCE + GLANCE).min(rules.depth),
            () if beside > 0 && !member.has_limit() => rules.depth.scaled(beside + 1, 1),
            () if fills => kernel.max(rules.overlap).min(rules.depth),
            () if singly && member.launches_singly(rules) => Nanos::ZERO,
            () if wakes && !(member.runs_dry() && member.mates.is_empty()) => {
                kernel.scaled(3, 2).max(rules.shallow).min(rules.depth)
            }
            () if soon.is_some() || contended || member.has_limit() => deep,
            () if others_wake(rules.about) && !member.runs_dry() => deep,
            () if member.neighbours.is_empty() => Nanos::millis(1000),
            () => rules.lone_depth,
        };
        let depth = soon.map_or(depth, |most| depth.min(most));
        let least = if spared || singly || one || fills && beside == 0 { 1 } else { 2 };
        let above = others().any(|other| other.terms.priority < member.terms.priority);
        let lease = LeaseDecision {
            open: true,
            depth,
            least,
            bell: contended || above || member.has_limit(),
            frozen: false,
        };
        SliceDecision { fills, spared, ..SliceDecision::of(lease, DecisionReason::Running) }
    }

    /// Tests if another of its priority and within its share comes back for a moment.
    ///
    /// It counts for four of its usual pauses and `late` more, at most [`Rules::about`].
    fn may_wake(&self, at: usize, late: Nanos) -> bool {
        let member = self.at(at);
        self.others(at).map(|other| self.at(other)).any(|other| {
            other.terms.priority == member.terms.priority
                && !other.terms.frozen
                && other.waits_for_itself()
                && other.wanted_within(self.now, other.rhythm.patience(late, self.rules))
                && other.clock < member.clock
        })
    }

    /// Tests if it runs in the gaps of another slice that is behind it.
    fn fills(&self, at: usize) -> bool {
        let (member, now, rules) = (self.at(at), self.now, self.rules);
        self.others(at).any(|other| {
            let away = self.is_away(other);
            let other = self.at(other);
            away && !other.terms.frozen
                && !other.limited
                && other.wanted_within(now, rules.hysteresis)
                && other.is_worth_keeping_for(now, rules)
                && other.clock < member.clock
        })
    }

    /// GPU time that a slice may have outstanding, for the sake of others with latency targets.
    ///
    /// Each of them may have to wait for what those that woke before it launched. `None` if there are none.
    fn soonest(&self, at: usize) -> Option<Nanos> {
        let others = self.others(at).map(|other| self.at(other)).filter(|other| !other.terms.frozen);
        let about =
            others.filter(|other| other.has_target() && other.wanted_within(self.now, self.rules.about));
        let targets = about.filter_map(|other| other.terms.latency);
        let (least, count) = targets
            .fold((None, 0), |(least, count), target| (least.min(Some(target)).or(Some(target)), count + 1));
        Some(least?.nanos().scaled(1, count + 2))
    }

    fn reason(&self, at: usize) -> DecisionReason {
        let member = self.at(at);
        let holder = self.sheet.chosen.iter().find(|other| self.at(**other).shares_gpu_with(member));
        match holder.copied() {
            _ if member.terms.frozen => DecisionReason::Frozen,
            _ if !member.wants() => DecisionReason::NoWork,
            _ if member.limited => DecisionReason::Limit,
            Some(holder) if holder == at => DecisionReason::Running,
            Some(holder) if self.at(holder).terms.priority > member.terms.priority => {
                DecisionReason::Behind(holder)
            }
            Some(holder) => DecisionReason::Over(holder),
            None => DecisionReason::Running,
        }
    }
}

/// Time of the next decision.
impl Round<'_> {
    fn watch_holder(&mut self, at: usize) {
        let member = self.at(at);
        if let Some(turns) = member.limit_turns_in(self.rules) {
            self.look_in(turns);
        }
        if member.passage.is_on() {
            self.look_in(self.rules.grace);
        }
        let Some(challenger) = self.challenger(at) else { return self.look_in(LEISURE) };
        let rival = self.at(challenger);
        let behind = rival.clock.saturating_sub(member.clock) * u128::from(member.weight()) / 1000;
        let behind = Nanos::new(u64::try_from(behind).unwrap_or(u64::MAX));
        let left = if member.yields() { Nanos::ZERO } else { self.quantum(at) - member.turn };
        let request = self.sheet.dues[at].and(member.due()).map_or(Nanos::MAX, |(_, left)| left);
        let spared = if member.spared { GLANCE + GLANCE } else { Nanos::MAX };
        self.look_in(behind.max(left).min(request).min(LEISURE).min(spared).max(self.rules.overlap));
        if member.waits_for_itself() && member.seen.outstanding <= member.seen.kernel {
            let short = self.rules.least_turn - member.turn;
            self.look_in((member.ends.since(self.now) - self.rules.overlap).max(short));
        }
    }

    /// Sets the next decision to the expected ends of the work of closed slices.
    ///
    /// Each is charged until its end is seen.
    pub(super) fn watch_tails(&mut self) {
        for at in 0..self.slices.len() {
            let member = self.at(at);
            let left = member.seen.outstanding > Nanos::ZERO && !self.sheet.chosen.contains(&at);
            if !left {
                continue;
            }
            if member.overruns(self.now, self.rules) {
                // Use of others after its end would count as shared with it.
                self.look_in(self.now.since(member.progressed_at).scaled(1, 64).clamp(UNKNOWN, LONG));
            } else if !member.is_predictable() {
                // Perhaps no other slice wants the GPU, and a slice with a limit must not run unseen.
                self.look_in(self.now.since(member.closed_at).scaled(1, 16).max(UNKNOWN));
            } else {
                let overdue = self.now.since(member.ends.max(member.closed_at));
                let left = match overdue {
                    Nanos::ZERO => member.ends.since(self.now),
                    late => late.scaled(1, 8).max(GLANCE + GLANCE),
                };
                let last = member.seen.outstanding <= member.seen.kernel.max(self.rules.overlap);
                // Long ones may well take less than estimated.
                let step = member.seen.kernel.scaled(1, 8).max(MOMENT);
                self.look_in(if last { left.min(step) } else { left.scaled(3, 4) });
            }
        }
    }

    fn watch_limit(&mut self, at: usize) {
        let member = self.at(at);
        if let (true, Some(turns)) = (member.wants(), member.limit_turns_in(self.rules)) {
            self.look_in(turns);
        }
    }
}
