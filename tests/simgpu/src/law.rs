//! The pure law of a GPU's time.
//!
//! Contexts with something runnable take turns, a slice each, and changing between two costs a switch in
//! which no context runs. Inside a context lanes are queues, and the heads of different lanes run side by
//! side at full speed. What crosses the bus takes no turn: one engine for each direction moves it beside
//! whatever runs, the oldest first. Time is an argument; nothing here knows of clocks, processes or shared
//! memory.
#![forbid(unsafe_code)]

mod before;
mod piece;
mod pieces;
mod quirks;
mod run;

use std::ops::ControlFlow::{self, Break, Continue};

pub use piece::{After, Piece};
pub use pieces::Pieces;
pub use quirks::Quirks;

/// Time sharing of a GPU, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Length of a context's turn while another has work, unless its queue sets its own.
    pub slice: u64,
    /// Cost of taking the GPU from a context that still has work.
    pub switch: u64,
    /// Cost of a change of contexts when the last has nothing to run.
    pub handover: u64,
    /// Lanes of one context that can run side by side.
    pub concurrent: usize,
    /// Differences from the plain law.
    pub quirks: Quirks,
}

/// One context's queue, oldest piece first.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Index of the context in the GPU's table.
    pub context: usize,
    /// Length of its turns in nanoseconds; `None` takes that of the rules.
    pub slice: Option<u64>,
    /// Its work, by growing sequence numbers.
    pub pieces: Pieces,
}

/// Observer of a GPU as time advances.
pub trait Witness {
    /// A context ran kernels, copies or both from one moment to another.
    fn ran(&mut self, context: usize, what: Ran, from: u64, to: u64);
    /// A piece is done. Breaking off stops time there.
    fn finished(&mut self, context: usize, piece: &Piece, at: u64) -> ControlFlow<()>;
}

/// Kinds of work that a context ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// At least one kernel.
    pub kernels: bool,
    /// At least one copy.
    pub copies: bool,
}

/// The state of one GPU's time.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Up to where everything is decided.
    pub now: u64,
    /// Context that has the turn, or had it last.
    pub turn: Option<usize>,
    /// Rest of its slice in nanoseconds.
    pub slice_left: u64,
    /// Rest of the switch to it in nanoseconds.
    pub switch_left: u64,
    /// Rest of the time with cold caches in nanoseconds.
    pub cold_left: u64,
    /// Begun kernels of the context with the turn, by sequence number, where kernels are not preempted.
    pub underway: Vec<u64>,
    /// State of the random numbers.
    pub dice: u64,
    /// Contexts with queued work, by their place.
    pub queues: Vec<Queue>,
}

impl Timeline {
    /// Brings the GPU from where it is to a later moment.
    pub fn advance(&mut self, until: u64, rules: Rules, witness: &mut impl Witness) {
        while self.pass_what_takes_no_time(witness).is_continue() && self.now < until {
            self.choose_turn(rules);
            if self.step(until, rules, witness).is_break() {
                break;
            }
        }
    }

    /// Time at which a piece will be done if nothing else is submitted; `None` beyond the horizon.
    pub fn foresee(&self, sequence: u64, horizon: u64, rules: Rules) -> Option<u64> {
        self.foresee_any(horizon, rules, |_, piece| piece.sequence == sequence)
    }

    /// Time at which the first of the wanted pieces will be done.
    pub fn foresee_any(
        &self,
        horizon: u64,
        rules: Rules,
        wanted: impl Fn(usize, &Piece) -> bool,
    ) -> Option<u64> {
        let mut seer = Seer { wanted, seen: None };
        self.clone().advance(horizon, rules, &mut seer);
        seer.seen
    }

    /// Takes a context out, whatever it was doing.
    pub fn remove(&mut self, context: usize) {
        self.queues.retain(|queue| queue.context != context);
        if self.turn == Some(context) {
            (self.turn, self.slice_left, self.switch_left) = (None, 0, 0);
            self.underway.clear();
        }
    }

    /// Lets marks, open gates and finished pieces at the heads of their lanes go, until none is left.
    fn pass_what_takes_no_time(&mut self, witness: &mut impl Witness) -> ControlFlow<()> {
        while let Some((queue, index)) = self.find_head(Piece::passes_at_once) {
            let context = self.queues[queue].context;
            let piece = self.queues[queue].pieces.remove(index);
            witness.finished(context, &piece, self.now)?;
        }
        Continue(())
    }

    fn find_head(&self, wanted: impl Fn(&Piece) -> bool) -> Option<(usize, usize)> {
        (0..self.queues.len()).find_map(|queue| {
            self.heads(queue)
                .find(|index| wanted(&self.queues[queue].pieces[*index]))
                .map(|index| (queue, index))
        })
    }

    /// The pieces of a queue that nothing holds back now.
    fn heads(&self, queue: usize) -> impl Iterator<Item = usize> {
        let pieces = &self.queues[queue].pieces;
        pieces.heads().iter().copied().filter(|index| self.is_met(pieces[*index].after))
    }

    fn is_met(&self, after: After) -> bool {
        match after {
            After::Nothing => true,
            After::Moment(moment) => moment <= self.now,
            After::Elsewhere => false,
            After::Piece(sequence) => !self
                .queues
                .iter()
                .any(|queue| queue.pieces.binary_search_by_key(&sequence, |piece| piece.sequence).is_ok()),
        }
    }

    fn is_runnable(&self, queue: usize) -> bool {
        self.heads(queue).any(|index| self.queues[queue].pieces[index].needs_gpu())
    }

    /// Leaves the turn where it is or gives it to the next runnable context in the round.
    fn choose_turn(&mut self, rules: Rules) {
        let current = self.turn.and_then(|turn| self.find_queue(turn)).filter(|at| self.is_runnable(*at));
        let next = match current {
            Some(_) if self.slice_left > 0 || !self.underway.is_empty() => return,
            Some(at) => self.next_in_round().filter(|next| *next != at).unwrap_or(at),
            None => match self.next_in_round() {
                Some(next) => next,
                None => return,
            },
        };
        let (context, slice) = (self.queues[next].context, self.queues[next].slice);
        if self.turn.is_some_and(|turn| turn != context) {
            let switch = rules.switch + quirks::draw(&mut self.dice, rules.quirks.switch_more);
            self.switch_left = if current.is_some() { switch } else { rules.handover };
            self.cold_left = rules.quirks.cold;
        }
        let slice = slice.unwrap_or(rules.slice) + quirks::draw(&mut self.dice, rules.quirks.slice_more);
        (self.turn, self.slice_left) = (Some(context), slice.max(1));
    }

    fn find_queue(&self, context: usize) -> Option<usize> {
        self.queues.iter().position(|queue| queue.context == context)
    }

    /// The first runnable queue behind the one whose turn it was, that one itself last.
    fn next_in_round(&self) -> Option<usize> {
        let distance = |at: &usize| {
            let context = self.queues[*at].context;
            (self.turn.is_some_and(|turn| context <= turn), context)
        };
        (0..self.queues.len()).filter(|at| self.is_runnable(*at)).min_by_key(distance)
    }
}

struct Seer<F> {
    wanted: F,
    seen: Option<u64>,
}

impl<F: Fn(usize, &Piece) -> bool> Witness for Seer<F> {
    fn ran(&mut self, _: usize, _: Ran, _: u64, _: u64) {}

    fn finished(&mut self, context: usize, piece: &Piece, at: u64) -> ControlFlow<()> {
        if !(self.wanted)(context, piece) {
            return Continue(());
        }
        self.seen = Some(at);
        Break(())
    }
}

#[cfg(test)]
#[path = "law_tests.rs"]
mod tests;
