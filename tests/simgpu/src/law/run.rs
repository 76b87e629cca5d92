//! Advance of time: running pieces, their speed, and the next change.

use std::ops::ControlFlow::{self, Continue};

use super::{After, Piece, Ran, Rules, Timeline, Witness};
use crate::lane::WorkKind;

impl Timeline {
    /// Goes to the next moment at which anything changes.
    pub(super) fn step(&mut self, until: u64, rules: Rules, witness: &mut impl Witness) -> ControlFlow<()> {
        let crossing = self.crossing();
        let arrival = crossing.iter().flatten().map(|(queue, at)| self.queues[*queue].pieces[*at].remaining);
        let limit = arrival.min().unwrap_or(u64::MAX).min(self.next_moment().min(until) - self.now);
        let length = self.run(limit, rules, witness);
        for (queue, at) in crossing.into_iter().flatten() {
            self.queues[queue].pieces[at].remaining -= length;
        }
        self.now += length;
        Continue(())
    }

    /// Runs the context with the turn, or a switch to it, for `limit` nanoseconds at most. Returns the
    /// length.
    fn run(&mut self, limit: u64, rules: Rules, witness: &mut impl Witness) -> u64 {
        let Some((queue, running)) = self.running(rules) else { return limit };
        if self.switch_left > 0 {
            let length = self.switch_left.min(limit);
            self.switch_left -= length;
            return length;
        }
        let shared = self.is_contended(queue);
        let slice = if shared && self.underway.is_empty() { self.slice_left.max(1) } else { u64::MAX };
        let cold = if self.cold_left > 0 { self.cold_left } else { u64::MAX };
        let speed = self.speed(running.len(), rules);
        let pieces = &mut self.queues[queue].pieces;
        let shortest = running.iter().map(|index| pieces[*index].remaining).min().unwrap_or(0);
        let length = speed.time(shortest).min(limit).min(slice).min(cold);
        let mut what = Ran::default();
        for index in &running {
            let piece = &mut pieces[*index];
            piece.remaining -= speed.work(length);
            what.kernels |= piece.kind == WorkKind::Kernel;
            what.copies |= piece.kind == WorkKind::Copy;
        }
        if !rules.quirks.preempts {
            let begun = running.iter().map(|index| &pieces[*index]).filter(|piece| piece.remaining > 0);
            self.underway = begun.map(|piece| piece.sequence).collect();
        }
        self.cold_left = self.cold_left.saturating_sub(length);
        self.use_slice(length, shared, rules);
        witness.ran(self.queues[queue].context, what, self.now, self.now + length);
        length
    }

    /// True if another context than that of a queue has something to run.
    fn is_contended(&self, queue: usize) -> bool {
        (0..self.queues.len()).any(|other| other != queue && self.is_runnable(other))
    }

    /// Uses up a part of the slice. It begins anew where nothing else wants the GPU and slices are renewed.
    fn use_slice(&mut self, length: u64, shared: bool, rules: Rules) {
        self.slice_left = match length.checked_sub(self.slice_left) {
            Some(over) if rules.quirks.renews && !shared => rules.slice - over % rules.slice.max(1),
            _ => self.slice_left.saturating_sub(length),
        };
    }

    /// Speed of `count` pieces that run side by side now.
    fn speed(&self, count: usize, rules: Rules) -> Speed {
        let abreast = rules.quirks.abreast.max(1);
        let (work, time) = if count > abreast { (abreast as u64, count as u64) } else { (1, 1) };
        Speed { work, time: if self.cold_left > 0 { time * 2 } else { time } }
    }

    /// Pieces that cross the bus now, by queue and index: the oldest of each direction that may run.
    fn crossing(&self) -> [Option<(usize, usize)>; 2] {
        if !self.at_head().any(Piece::crosses_the_bus) {
            return [None; 2];
        }
        [WorkKind::Upload, WorkKind::Download].map(|direction| {
            let heads = (0..self.queues.len()).flat_map(|queue| {
                let pieces = &self.queues[queue].pieces;
                self.heads(queue).filter(|at| pieces[*at].kind == direction).map(move |at| (queue, at))
            });
            heads.min_by_key(|(queue, at)| self.queues[*queue].pieces[*at].sequence)
        })
    }

    /// Pieces that run now: heads of the context with the turn.
    fn running(&self, rules: Rules) -> Option<(usize, Vec<usize>)> {
        let queue = self.find_queue(self.turn?)?;
        let pieces = &self.queues[queue].pieces;
        // Where a kernel is not preempted, those that have begun end, and no others begin when the slice is over.
        let ends = !self.underway.is_empty() && self.slice_left == 0 && self.is_contended(queue);
        let running: Vec<usize> = self
            .heads(queue)
            .filter(|index| pieces[*index].needs_gpu())
            .filter(|index| !ends || self.underway.contains(&pieces[*index].sequence))
            .take(rules.concurrent)
            .collect();
        (!running.is_empty()).then_some((queue, running))
    }

    /// The next moment that some piece waits for.
    fn next_moment(&self) -> u64 {
        let moments = self.at_head().filter_map(|piece| match piece.after {
            After::Moment(moment) if moment > self.now => Some(moment),
            _ => None,
        });
        moments.min().unwrap_or(u64::MAX)
    }

    /// Pieces at the heads of their lanes, whatever else they wait for.
    fn at_head(&self) -> impl Iterator<Item = &Piece> {
        self.queues.iter().flat_map(|queue| queue.pieces.heads().iter().map(|index| &queue.pieces[*index]))
    }
}

/// Work done in some time, as a ratio.
#[derive(Clone, Copy)]
struct Speed {
    work: u64,
    time: u64,
}

impl Speed {
    /// The time that some work takes.
    fn time(self, work: u64) -> u64 {
        work.saturating_mul(self.time).div_ceil(self.work)
    }

    /// The work that is done in some time.
    fn work(self, time: u64) -> u64 {
        time * self.work / self.time
    }
}
