//! Order in which slices get turns.

use core::cmp::Reverse;

use crate::compute::priority::Priority;
use crate::compute::time::Instant;
use crate::compute::turns::Round;
use crate::units::Permille;

/// Order of slices before their virtual times; the least first.
type Tier = (bool, u8, Reverse<Priority>, bool);

impl Round<'_> {
    pub(super) fn rank(&mut self) {
        let mut order = core::mem::take(&mut self.sheet.order);
        order.extend((0..self.slices.len()).filter(|at| self.may_run(*at)));
        let first = order.first().map(|at| self.at(*at).terms.priority);
        self.mixed = order.iter().any(|at| Some(self.at(*at).terms.priority) != first);
        let mut ages = core::mem::take(&mut self.sheet.ages);
        ages.extend((0..self.slices.len()).map(|at| self.age(at)));
        self.sheet.ages = ages;
        let mut dues = core::mem::take(&mut self.sheet.dues);
        dues.extend((0..self.slices.len()).map(|at| self.due_at(at)));
        self.sheet.dues = dues;
        order.sort_unstable_by_key(|at| (self.tier(*at), self.sheet.dues[*at], self.sheet.ages[*at], *at));
        self.sheet.order = order;
    }

    /// Virtual time of a slice since its GPU's floor.
    ///
    /// Virtual times of different GPUs began at different moments. A gang goes by the mate that used most of its share.
    pub(super) fn age(&self, at: usize) -> i128 {
        let signed = |time: u128| i128::try_from(time).unwrap_or(i128::MAX);
        let of_one = |mate: usize| {
            let floors = self.at(mate).gpus.iter().map(|gpu| signed(self.gpus[*gpu].floor));
            signed(self.at(mate).clock) - floors.min().unwrap_or(0)
        };
        self.party(at).map(of_one).max().unwrap_or(0)
    }

    pub(super) fn may_run(&self, at: usize) -> bool {
        let member = self.at(at);
        member.wants()
            && !member.terms.frozen
            && !self.party(at).any(|mate| self.at(mate).limited)
            && !member.is_stalled(self.now, self.rules)
    }

    /// Rank of a slice before virtual times are compared.
    ///
    /// Starved slices are first, then those below their request where there are priorities at all, then higher
    /// priorities, then requests with a latency target, by the time at which they are due. Slices without a request are last, unless their priority is high.
    pub(super) fn tier(&self, at: usize) -> Tier {
        let member = self.at(at);
        let promised = member.terms.request > Permille::ZERO;
        let class = match (promised, self.mixed) {
            (true, false) => 0,
            (true, true) => u8::from(!member.is_owed()),
            (false, _) => 1 + u8::from(member.terms.priority <= Priority::DEFAULT),
        };
        (!self.is_starved(at), class, Reverse(member.terms.priority), self.sheet.dues[at].is_none())
    }

    /// Tests if its latency target counts.
    ///
    /// It does while the slice is within its share, and not far ahead of another that wants the GPU.
    fn has_target(&self, at: usize) -> bool {
        let mine = self.at(at);
        let is_behind =
            |other: usize| self.at(other).wants() && mine.lead_over(self.at(other)) > self.rules.lead;
        mine.has_target() && !self.others(at).any(is_behind)
    }

    /// Time by which a request should be done; `None` if the slice has no target that counts.
    fn due_at(&self, at: usize) -> Option<Instant> {
        self.at(at).due().map(|(due, _)| due).filter(|_| self.has_target(at))
    }

    pub(super) fn is_starved(&self, at: usize) -> bool {
        let member = self.at(at);
        member.is_starved(self.now, self.rules) && !member.overruns(self.now, self.rules)
    }

    /// First slice in order that wants a GPU of this slice and has no turn.
    pub(super) fn challenger(&self, at: usize) -> Option<usize> {
        let mine = self.at(at);
        let rival = |other: &&usize| {
            **other != at
                && !mine.mates.contains(*other)
                && !self.at(**other).has_turn()
                && self.collide(at, **other)
        };
        self.sheet.order.iter().find(rival).copied()
    }
}
