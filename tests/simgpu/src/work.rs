//! Work: what is put into a context's queue, and the ticket that says when it is done.

use std::time::Duration;

use crate::node::Node;
use crate::process::{Context, Process, Refusal};
use crate::units::Time;

/// Which queue of a context: work in one lane runs in order, heads of different lanes run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// The legacy default stream: waits for all earlier work in blocking lanes, and they for it.
    Legacy,
    /// A stream that synchronises with the legacy one, by a number of the caller's (below 2^62).
    Blocking(u64),
    /// A stream that doesn't (`CU_STREAM_NON_BLOCKING`), by a number of the caller's (below 2^62).
    Free(u64),
}

/// What a piece of work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// Keeps the multiprocessors busy: counts as GPU utilisation.
    Kernel,
    /// Keeps the memory busy: counts as memory utilisation.
    Copy,
    /// Takes no time; the moment it is reached is remembered, so it is what an event records.
    Mark,
    /// Holds its lane until [`Node::open_gate`]: a host callback, a wait for a value. Takes no GPU time.
    Gate,
}

/// One piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Where it queues.
    pub lane: Lane,
    /// What it is.
    pub kind: WorkKind,
    /// How long it takes when it has the GPU; ignored for marks and gates.
    pub duration: Duration,
    /// What must be done first, on any GPU of the node, besides what is before it in its lane.
    pub after: Option<Ticket>,
}

/// Names one submitted piece of work. Valid for ever: when the context is gone, the work counts as done.
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
}

impl Process {
    /// Queues work. Blocks while the context's queue is full (its length is [`crate::QUEUE_LENGTH`]).
    pub fn submit(&self, _context: Context, _work: Work) -> Result<Ticket, Refusal> {
        todo!()
    }

    /// Waits until everything that is queued in a context now is done.
    pub fn drain(&self, _context: Context) -> Result<(), Refusal> {
        todo!()
    }
}

impl Node {
    /// Whether work is done.
    pub fn is_done(&self, _ticket: Ticket) -> bool {
        todo!()
    }

    /// When a mark was reached; `None` until then. Remembered for the last [`crate::MARKS`] marks of a context; for
    /// older ones and for other kinds of work it is the time of the earliest mark still known, or of the call.
    pub fn finished_at(&self, _ticket: Ticket) -> Option<Time> {
        todo!()
    }

    /// Sleeps until work is done.
    pub fn wait(&self, _ticket: Ticket) -> Result<(), Refusal> {
        todo!()
    }

    /// Lets a gate's lane go on. Opening it twice, or opening what is no gate, does nothing.
    pub fn open_gate(&self, _ticket: Ticket) {
        todo!()
    }
}
