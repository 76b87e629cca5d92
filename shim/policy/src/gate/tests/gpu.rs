//! A GPU on which kernels run side by side as far as there is room.

use std::vec::Vec;

/// Width of the whole GPU.
pub(super) const WHOLE: u64 = 4;

/// Work that is done in a nanosecond by a kernel that nothing slows down.
const FULL_SPEED: u128 = 1 << 20;

/// Behaviour where kernels want more than the whole GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crowd {
    /// The first come first, and the others as soon as there is room.
    Waits,
    /// All go slower alike.
    Slows,
}

/// A kernel, or a mark where it takes nothing.
#[derive(Clone, Copy, Debug)]
struct Piece {
    stream: u64,
    /// Work that it has not done yet, in units of width times time.
    left: u128,
    size: u64,
    mark: Option<u32>,
}

/// Kernels of several streams side by side, in virtual time.
#[derive(Clone, Debug)]
pub(super) struct Gpu {
    pub(super) crowd: Crowd,
    /// End of the time for which another slice has it.
    pub(super) lent_until: u64,
    /// Since when nothing has been decided.
    now: u64,
    pieces: Vec<Piece>,
    /// Marks that were reached.
    pub(super) reached: Vec<u32>,
    pub(super) done: u64,
}

impl Gpu {
    pub(super) fn new(now: u64) -> Self {
        let (pieces, reached) = (Vec::new(), Vec::new());
        Self { crowd: Crowd::Waits, lent_until: 0, now, pieces, reached, done: 0 }
    }

    pub(super) fn launch(&mut self, stream: u64, takes: u64, size: u64) {
        self.pieces.push(Piece { stream, left: u128::from(takes) * FULL_SPEED, size, mark: None });
    }

    pub(super) fn mark(&mut self, stream: u64, sequence: u32) {
        self.pieces.push(Piece { stream, left: 0, size: 0, mark: Some(sequence) });
    }

    pub(super) fn kernels(&self) -> usize {
        self.pieces.iter().filter(|piece| piece.mark.is_none()).count()
    }

    /// In how long all is done.
    pub(super) fn drain_ns(&self) -> u64 {
        let mut fate = self.clone();
        fate.pass_what_is_done();
        while !fate.pieces.is_empty() && fate.now < u64::MAX / 2 {
            fate.step(u64::MAX / 2);
            fate.pass_what_is_done();
        }
        fate.now - self.now
    }

    pub(super) fn run(&mut self, until: u64) {
        while self.now < until {
            self.step(until);
        }
        self.pass_what_is_done();
    }

    fn pass_what_is_done(&mut self) {
        while let Some(at) = self.heads().into_iter().find(|at| self.pieces[*at].left == 0) {
            match self.pieces.remove(at).mark {
                Some(mark) => self.reached.push(mark),
                None => self.done += 1,
            }
        }
    }

    fn heads(&self) -> Vec<usize> {
        let is_first = |at: &usize| self.pieces[..*at].iter().all(|p| p.stream != self.pieces[*at].stream);
        (0..self.pieces.len()).filter(is_first).collect()
    }

    /// Indices of the running kernels, and the speed of each.
    fn running(&self) -> (Vec<usize>, u128) {
        let mut room = WHOLE;
        let mut running = self.heads();
        if self.crowd == Crowd::Slows {
            let wanted: u64 = running.iter().map(|at| self.pieces[*at].size).sum();
            return (running, FULL_SPEED * u128::from(WHOLE) / u128::from(wanted.max(WHOLE)));
        }
        running.retain(|at| {
            let fits = self.pieces[*at].size <= room;
            room = if fits { room - self.pieces[*at].size } else { 0 };
            fits
        });
        (running, FULL_SPEED)
    }

    fn step(&mut self, until: u64) {
        self.pass_what_is_done();
        let (running, speed) = self.running();
        let until = if self.now < self.lent_until { until.min(self.lent_until) } else { until };
        if running.is_empty() || self.now < self.lent_until {
            self.now = if self.pieces.is_empty() { until } else { until.max(self.now) };
            return;
        }
        let first = running.iter().map(|at| self.pieces[*at].left.div_ceil(speed)).min().unwrap_or(0);
        let length = first.min(u128::from(until - self.now));
        for at in running {
            self.pieces[at].left = self.pieces[at].left.saturating_sub(length * speed);
        }
        self.now += length as u64;
    }
}
