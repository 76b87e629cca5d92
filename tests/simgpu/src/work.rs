//! Work: pieces in a context's queue, and the tickets that show when they are done.
#![forbid(unsafe_code)]

use std::thread;
use std::time::Duration;

use crate::context::Context;
use crate::ground::Ground;
use crate::lane::{Lane, WorkKind};
use crate::law::Timeline;
use crate::layout::{CONTEXTS, MARKS, QUEUE_LENGTH, context, gpu, mark, piece};
use crate::node::Node;
use crate::process::Process;
use crate::refusal::Refusal;
use crate::sys;
use crate::units::{Gpu, Time};

/// One piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Queue within the context.
    pub lane: Lane,
    /// Kind of the work.
    pub kind: WorkKind,
    /// Duration once it has the GPU; ignored for marks and gates.
    pub duration: Duration,
    /// Work that must be done first, on any GPU of the node, besides earlier work in its lane.
    pub after: Option<Ticket>,
}

/// Names one submitted piece of work. Always valid: when the context is gone, the work counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub(crate) context: Context,
    pub(crate) sequence: u64,
    pub(crate) slot: u32,
}

impl Ticket {
    /// The context it was submitted to.
    pub const fn context(self) -> Context {
        self.context
    }

    /// Words by which another process can name the same work.
    pub const fn words(self) -> [u64; 5] {
        let Context { gpu, slot, serial } = self.context;
        [gpu.0 as u64, slot as u64, serial, self.sequence, self.slot as u64]
    }
}

/// Span that a waiter looks ahead, and thus its longest sleep between checks for dead processes.
const HORIZON: Duration = Duration::from_millis(50);
/// Interval at which a waiter for another GPU's work or for a gate checks again.
const GLANCE: Duration = Duration::from_millis(1);
/// Most by which a sleep may last too long; so much of a wait is spent yielding instead.
const SLACK: Duration = Duration::from_micros(60);

impl Process {
    /// Queues work. Blocks while the context's queue is full (its length is [`crate::QUEUE_LENGTH`]).
    pub fn submit(&self, context: Context, work: Work) -> Result<Ticket, Refusal> {
        let node = self.node();
        loop {
            let changes = node.changes(context.gpu);
            let (ground, timeline) = node.bring(context.gpu);
            ground.check_present()?;
            if !ground.is_live(context) {
                return Err(Refusal::Destroyed);
            }
            if let Some(ticket) = ground.push(context, work) {
                return Ok(ticket);
            }
            drop(ground);
            let mine = |slot: usize, _: &_| slot == context.slot as usize;
            let horizon = timeline.now + HORIZON.as_nanos() as u64;
            let foreseen = timeline.foresee_any(horizon, node.rules(context.gpu), mine);
            node.doze(context.gpu, changes, foreseen);
        }
    }

    /// Waits until everything that is queued in a context now is done.
    pub fn drain(&self, context: Context) -> Result<(), Refusal> {
        let (ground, timeline) = self.node().bring(context.gpu);
        if !ground.is_live(context) {
            return Err(Refusal::Destroyed);
        }
        drop(ground);
        let queue = timeline.queues.iter().find(|queue| queue.context == context.slot as usize);
        let pieces = queue.map(|queue| &*queue.pieces).unwrap_or_default();
        for piece in pieces {
            self.node().wait(Ticket { context, sequence: piece.sequence, slot: piece.place as u32 })?;
        }
        Ok(())
    }
}

impl Node {
    /// The work that [`Ticket::words`] named, perhaps in another process; `None` for words that name none.
    pub fn ticket(&self, words: [u64; 5]) -> Option<Ticket> {
        let [gpu, slot, serial, sequence, place] = words;
        let gpu = self.gpu(usize::try_from(gpu).ok()?)?;
        let slot = u32::try_from(slot).ok().filter(|slot| (*slot as usize) < CONTEXTS)?;
        let place = u32::try_from(place).ok().filter(|place| (*place as usize) < QUEUE_LENGTH)?;
        let context = Context { gpu, slot, serial };
        (sequence != 0).then_some(Ticket { context, sequence, slot: place })
    }

    /// True if work is done.
    pub fn is_done(&self, ticket: Ticket) -> bool {
        if self.is_queued(ticket) {
            self.settle(ticket.context.gpu);
        }
        !self.is_queued(ticket)
    }

    /// Time at which a mark was reached; `None` until then. Remembered for the last [`crate::MARKS`] marks of
    /// a context; for older ones and for other kinds of work it is the time of the earliest mark still known,
    /// or of the call.
    pub fn finished_at(&self, ticket: Ticket) -> Option<Time> {
        if !self.is_done(ticket) {
            return None;
        }
        let time = self.mark_time(ticket).or_else(|| self.earliest_mark(ticket.context));
        Some(time.map_or_else(|| self.now(), Time))
    }

    /// Time until work is done if nothing else is submitted. `None` if that is beyond a horizon of 50 ms, or
    /// if the work waits for something elsewhere.
    pub fn foreseen(&self, ticket: Ticket) -> Option<Duration> {
        let gpu = ticket.context.gpu;
        let (ground, timeline) = self.bring(gpu);
        if !self.is_queued(ticket) {
            return Some(Duration::ZERO);
        }
        drop(ground);
        let horizon = timeline.now + HORIZON.as_nanos() as u64;
        let at = timeline.foresee(ticket.sequence, horizon, self.rules(gpu))?;
        Some(Time(at).since(self.now()))
    }

    /// Sleeps until work is done. Fails if its GPU is lost. In another world than the machine's own, this would wait
    /// for its time to move.
    pub fn wait(&self, ticket: Ticket) -> Result<(), Refusal> {
        let gpu = ticket.context.gpu;
        loop {
            let changes = self.changes(gpu);
            let (ground, timeline) = self.bring(gpu);
            if !self.is_queued(ticket) {
                return Ok(());
            }
            ground.check_present()?;
            drop(ground);
            let horizon = timeline.now + HORIZON.as_nanos() as u64;
            self.doze(gpu, changes, timeline.foresee(ticket.sequence, horizon, self.rules(gpu)));
        }
    }

    /// Opens a gate, so that its lane continues. Opening it twice, or opening what is no gate, does nothing.
    pub fn open_gate(&self, ticket: Ticket) {
        let (ground, mut timeline) = self.bring(ticket.context.gpu);
        ground.open_gate(ticket);
        timeline = Timeline { queues: ground.load().queues, ..timeline };
        ground.advance(&mut timeline);
    }

    /// Brings a GPU up to now.
    pub(crate) fn settle(&self, gpu: Gpu) {
        drop(self.bring(gpu));
    }

    /// Brings a GPU up to now and keeps it locked.
    pub(crate) fn bring(&self, gpu: Gpu) -> (Ground<'_>, Timeline) {
        self.bring_after(gpu, &mut Vec::new())
    }

    /// Settles first what other GPUs hold back. Two locks are never held at a time, and a GPU is visited
    /// once, so that GPUs which wait for each other's work end the round too: they see the rest the next
    /// time.
    fn bring_after(&self, gpu: Gpu, visited: &mut Vec<Gpu>) -> (Ground<'_>, Timeline) {
        visited.push(gpu);
        let mut ground = self.ground(gpu);
        let mut timeline = ground.load();
        let others = ground.waits_for(&timeline);
        if !others.is_empty() {
            drop(ground);
            for other in others {
                if !visited.contains(&other) {
                    drop(self.bring_after(other, visited));
                }
            }
            ground = self.ground(gpu);
            timeline = ground.load();
            ground.resolve(&mut timeline);
        }
        ground.advance(&mut timeline);
        (ground, timeline)
    }

    /// True if work is still in its queue, as far as its GPU has been brought.
    pub(crate) fn is_queued(&self, ticket: Ticket) -> bool {
        let words =
            self.gpu_words(ticket.context.gpu).piece(ticket.context.slot as usize, ticket.slot as usize);
        words.get(piece::SEQUENCE) == ticket.sequence
    }

    /// Time at which a mark was reached, if that is remembered.
    pub(crate) fn mark_time(&self, ticket: Ticket) -> Option<u64> {
        let (gpu, slot) = (self.gpu_words(ticket.context.gpu), ticket.context.slot as usize);
        let count = gpu.context(slot).get(context::MARKS_COUNT);
        (0..count.min(MARKS as u64))
            .map(|back| gpu.mark(slot, count - 1 - back))
            .find(|words| words.get(mark::SEQUENCE) == ticket.sequence)
            .map(|words| words.get(mark::AT))
    }

    fn earliest_mark(&self, of: Context) -> Option<u64> {
        let (gpu, slot) = (self.gpu_words(of.gpu), of.slot as usize);
        let count = gpu.context(slot).get(context::MARKS_COUNT);
        (count > 0).then(|| gpu.mark(slot, count.saturating_sub(MARKS as u64)).get(mark::AT))
    }

    fn changes(&self, gpu: Gpu) -> u32 {
        self.gpu_words(gpu).header().get(gpu::CHANGES) as u32
    }

    /// Sleeps until the foreseen moment, or a while if none is; ends early when something changes.
    fn doze(&self, gpu: Gpu, changes: u32, foreseen: Option<u64>) {
        let until = foreseen.map(Time);
        let length = match until {
            Some(until) => until.since(self.now()),
            None => self.idle_length(gpu),
        };
        if length > SLACK {
            sys::sleep_on(self.gpu_words(gpu).header().word(gpu::CHANGES), changes, length - SLACK);
        }
        while until.is_some_and(|until| until > self.now() && until.since(self.now()) <= SLACK) {
            thread::yield_now();
        }
        self.reap_now_and_then(gpu);
    }

    /// Nothing is foreseen: either the work ends beyond the horizon, or it waits for something elsewhere.
    fn idle_length(&self, gpu: Gpu) -> Duration {
        let ground = self.ground(gpu);
        let timeline = ground.load();
        if ground.waits_for(&timeline).is_empty() { HORIZON } else { GLANCE }
    }
}
