//! Streams, the operations in them, and events: each holds the others.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use simgpu::{Lane, Node, Ticket, Time, WorkKind};

use crate::bytes::{Copy, Fill, ValueWait, ValueWrite};
use crate::state::event::SharedMark;
use crate::wall::Callee;

/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: u32 = 1;

/// One entry of a stream or node of a graph.
#[derive(Clone)]
pub(crate) enum Op {
    /// A kernel: takes time, computes nothing.
    Kernel(Duration),
    /// Moves bytes.
    Copy(Copy),
    /// Writes a pattern to memory.
    Fill(Fill),
    /// Calls the program back.
    Host(Callee),
    /// Waits until a value in memory compares.
    WaitValue(ValueWait),
    /// Writes a value once what is before it is done.
    WriteValue(ValueWrite),
    /// Nothing, as a node that only joins others.
    Empty,
    /// Records the time at which this point is reached.
    Record(Arc<Event>),
    /// Waits for what an event recorded.
    WaitEvent(Arc<Event>),
    /// A graph's memory node: address and size become memory.
    Alloc(GraphMemory),
    /// The memory at an address of a graph goes.
    Free(u64),
    /// Plain memory at this address, with this number, goes.
    Leave(u64, u64),
    /// Physical memory is no longer in an array.
    Unpin(u64),
    /// Another graph's operations, in order.
    Child(Vec<Op>),
}

/// Memory that a graph allocates each time it runs.
#[derive(Clone, Copy)]
pub(crate) struct GraphMemory {
    /// Its address, fixed when the node was made.
    pub(crate) base: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// Ordinal of the device.
    pub(crate) device: usize,
}

impl Op {
    /// Tests if calls without a stream return when it is done.
    ///
    /// They do not where bytes of devices alone are moved or filled
    /// (<https://docs.nvidia.com/cuda/cuda-driver-api/api-sync-behavior.html>).
    pub(crate) const fn is_waited_for(&self) -> bool {
        match self {
            Self::Copy(copy) => copy.from.place.is_the_hosts_too() || copy.to.place.is_the_hosts_too(),
            Self::Fill(fill) => fill.place.is_the_hosts_too(),
            _ => true,
        }
    }

    /// Tests if it must wait for its turn before it acts, and hold up what follows until it has.
    pub(crate) const fn acts_in_turn(&self) -> bool {
        matches!(self, Self::Host(_) | Self::WaitValue(_))
    }

    /// Tests if any thread may carry it out in its turn, so that a wait for the stream needs no worker.
    pub(crate) const fn is_quiet(&self) -> bool {
        matches!(self, Self::WriteValue(_))
    }

    /// Kind of work for the engine.
    pub(crate) fn kind(&self) -> WorkKind {
        match self {
            Self::Kernel(_) => WorkKind::Kernel,
            Self::Copy(copy) => copy.kind(),
            Self::Fill(_) => WorkKind::Copy,
            _ => WorkKind::Mark,
        }
    }
}

/// A stream of a context.
pub(crate) struct Stream {
    /// Handle that programs have of it.
    pub(crate) handle: u64,
    /// The handle of its context.
    pub(crate) context: u64,
    /// Flags with which it was created.
    pub(crate) flags: u32,
    /// Priority, 0 the least.
    pub(crate) priority: i32,
    /// Its context in the engine, another one after each checkpoint.
    engine: Mutex<simgpu::Context>,
    pub(crate) lane: Lane,
    /// The last thing submitted; held while submitting, so that lane and list have one order.
    pub(crate) last: Mutex<Option<Ticket>>,
    pub(crate) deferred: Mutex<VecDeque<Deferred>>,
    /// Held while deferred operations act, so that each acts once and in order.
    pub(crate) acting: Mutex<()>,
    pub(crate) capture: Mutex<Option<Capture>>,
}

/// An operation that acts in its turn.
pub(crate) struct Deferred {
    pub(crate) op: Op,
    /// Done means that its turn has come.
    pub(crate) ready: Ticket,
    /// Opened when it has acted.
    pub(crate) gate: Option<Ticket>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    /// A stream of a context.
    pub(crate) fn new(handle: u64, context: u64, engine: simgpu::Context, lane: Lane, priority: i32) -> Self {
        let flags = if matches!(lane, Lane::Free(_)) { NON_BLOCKING } else { 0 };
        Self {
            handle,
            context,
            flags,
            priority,
            engine: Mutex::new(engine),
            lane,
            last: Mutex::default(),
            deferred: Mutex::default(),
            acting: Mutex::default(),
            capture: Mutex::default(),
        }
    }

    /// Its context in the engine.
    pub(crate) fn engine(&self) -> simgpu::Context {
        *lock(&self.engine)
    }

    /// Puts it into another context of the engine, with nothing submitted there yet.
    pub(crate) fn move_to(&self, engine: simgpu::Context) {
        *lock(&self.engine) = engine;
        *lock(&self.last) = None;
    }

    /// The capture that this stream is in, to read or change.
    pub(crate) fn capture(&self) -> MutexGuard<'_, Option<Capture>> {
        lock(&self.capture)
    }
}

/// A stream's part in a capture.
#[derive(Clone)]
pub(crate) struct Capture {
    /// The graph being made.
    pub(crate) graph: u64,
    /// The nodes that the next one comes after.
    pub(crate) tail: Vec<usize>,
    /// True if the capture began, and so must end, in this stream.
    pub(crate) origin: bool,
    /// Strictness of a capture, and the threads that it binds.
    pub(crate) strictness: Strictness,
}

/// Strictness of a capture with calls that are not part of it.
#[derive(Clone, Copy)]
pub(crate) struct Strictness {
    pub(crate) mode: i32,
    pub(crate) thread: std::thread::ThreadId,
}

/// An event, made in a context.
pub(crate) struct Event {
    pub(crate) flags: u32,
    pub(crate) context: u64,
    pub(crate) state: Mutex<State>,
    /// The mark that other processes see, for an event that can be shared.
    pub(crate) shared: Option<SharedMark>,
}

#[derive(Clone, Default)]
pub(crate) enum State {
    /// Never recorded: counts as done.
    #[default]
    Fresh,
    /// Recorded as this mark of this stream.
    Recorded(Ticket, Arc<Stream>),
    /// Seen done at this moment.
    Done(Time),
    /// Recorded while its stream was being captured: graph and nodes.
    Captured(u64, Vec<usize>),
    /// Recorded by another process as this mark.
    Elsewhere(Ticket),
}

impl Event {
    fn own(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// State after the last record, by any process that has the event.
    pub(crate) fn state(&self, node: &Node) -> State {
        let own = self.own();
        match (self.shared.as_ref().and_then(|shared| shared.get(node)), &own) {
            (None, _) | (_, State::Captured(..)) => own,
            (Some(mark), State::Recorded(ours, _)) if *ours == mark => own,
            (Some(mark), _) => State::Elsewhere(mark),
        }
    }

    pub(crate) fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Sets it to a mark of a stream.
    pub(crate) fn recorded(&self, mark: Ticket, stream: Arc<Stream>) {
        self.set(State::Recorded(mark, stream));
        if let Some(shared) = &self.shared {
            shared.set(mark);
        }
    }

    /// Sets it to nodes of a captured graph.
    pub(crate) fn captured(&self, graph: u64, nodes: Vec<usize>) {
        self.set(State::Captured(graph, nodes));
    }

    /// The mark it stands for, if there is something to wait for.
    ///
    /// With its stream, if that is of this process.
    pub(crate) fn pending(&self, node: &Node) -> Option<(Ticket, Option<Arc<Stream>>)> {
        match self.state(node) {
            State::Recorded(mark, stream) => Some((mark, Some(stream))),
            State::Elsewhere(mark) => Some((mark, None)),
            _ => None,
        }
    }

    /// The graph and nodes it stands for, if it was captured.
    pub(crate) fn in_graph(&self) -> Option<(u64, Vec<usize>)> {
        match self.own() {
            State::Captured(graph, nodes) => Some((graph, nodes)),
            _ => None,
        }
    }
}
