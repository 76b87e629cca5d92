//! Layout of a node's file, in 64-bit words.
//!
//! A header, the table of processes, their places for requests, one part per GPU (header, busy windows, what each process holds, faults, the log,
//! contexts with their queues and marks), and behind all that the node's specification as JSON.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};

use crate::lock::Lock;
use crate::preset::MAX_GPUS;

/// First word of a node's file ("SIMGPUND").
pub(crate) const MAGIC: u64 = u64::from_be_bytes(*b"SIMGPUND");
/// Moves with every change of this layout.
pub(crate) const VERSION: u64 = 4;

/// Processes that a node can know at a time.
pub(crate) const PROCESSES: usize = 512;
/// Pieces of memory of a GPU that several processes can hold.
pub(crate) const SHARED: usize = 512;
/// Contexts that a GPU can hold at a time.
pub(crate) const CONTEXTS: usize = 128;
/// Pieces of work that a context can have queued; submitting more waits.
pub const QUEUE_LENGTH: usize = 256;
/// Marks of a context whose times are remembered.
pub const MARKS: usize = 512;
/// Busy windows that are remembered.
pub(crate) const WINDOWS: usize = 8;
/// Faults of a GPU that are remembered.
pub(crate) const XIDS: usize = 64;
/// Entries of a GPU's log.
pub(crate) const LOG: usize = 16_384;

/// Fields of the node's header.
pub(crate) mod node {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 1;
    pub(crate) const GPUS: usize = 2;
    pub(crate) const BOOT: usize = 3;
    pub(crate) const TRAILER_BYTES: usize = 4;
    /// Three words of lock: over the table of processes.
    pub(crate) const LOCK: usize = 8;
    /// Slept on by waiters for faults.
    pub(crate) const EVENTS: usize = 11;
    pub(crate) const WORDS: usize = 64;
}

/// Fields of a process's place for requests of others to the driver in it.
pub(crate) mod request {
    /// Three words of lock: over the requests of others.
    pub(crate) const LOCK: usize = 0;
    pub(crate) const STATE: usize = 3;
    /// Thread that carries requests out, zero until it runs.
    pub(crate) const THREAD: usize = 4;
    /// Number of the last request. Slept on by that thread.
    pub(crate) const REQUESTED: usize = 5;
    /// Number of the last request that was carried out. Slept on by its caller.
    pub(crate) const ANSWERED: usize = 6;
    pub(crate) const KIND: usize = 7;
    pub(crate) const ARGUMENT: usize = 8;
    pub(crate) const RESULT: usize = 9;
    /// Bytes of device memory that are kept in the host's.
    pub(crate) const KEPT: usize = 10;
    /// For each GPU one more than the index of the one in its place; all zero where each keeps its own.
    pub(crate) const MAP: usize = 16;
    pub(crate) const WORDS: usize = MAP + super::MAX_GPUS;
}

/// Fields of a GPU's header.
pub(crate) mod gpu {
    /// Three words of lock: over all of the GPU's part.
    pub(crate) const LOCK: usize = 0;
    /// Slept on by waiters for work; moves when work may end earlier than foreseen.
    pub(crate) const CHANGES: usize = 3;
    pub(crate) const USED: usize = 4;
    pub(crate) const CONTEXT_BLOCKS: usize = 5;
    pub(crate) const MIG: usize = 6;
    pub(crate) const COMPUTE_MODE: usize = 7;
    pub(crate) const VIRTUALIZATION: usize = 8;
    pub(crate) const LOST: usize = 9;
    pub(crate) const NEEDS: usize = 10;
    /// Time up to which use is recorded: beyond [`NOW`] where a process was killed before it stored that.
    pub(crate) const RECORDED: usize = 11;
    /// Nonzero if checkpoints take as much of the host's memory as they hold of the GPU's.
    pub(crate) const FULL_IMAGES: usize = 12;
    /// Nonzero if the end of a process that was restored takes all GPUs with it.
    pub(crate) const RESTORED_HANGS: usize = 13;
    pub(crate) const NOW: usize = 16;
    pub(crate) const TURN: usize = 17;
    pub(crate) const SLICE_LEFT: usize = 18;
    pub(crate) const SWITCH_LEFT: usize = 19;
    pub(crate) const SEQUENCE: usize = 20;
    pub(crate) const CONTEXT_SERIAL: usize = 21;
    pub(crate) const CONTEXTS_HIGH: usize = 22;
    pub(crate) const XID_COUNT: usize = 23;
    pub(crate) const LOG_COUNT: usize = 24;
    pub(crate) const REAPED: usize = 25;
    /// Kernels' and copies' busy time since the node was made.
    pub(crate) const BUSY: usize = 26;
    pub(crate) const BUSY_COPY: usize = 27;
    pub(crate) const SHARED_SERIAL: usize = 28;
    /// Most blocks in use since the last reading.
    pub(crate) const USED_HIGH: usize = 29;
    /// For how long the dead keep what they hold, in nanoseconds.
    pub(crate) const LINGER: usize = 30;
    /// Nonzero if NVML calls about the GPU do not return.
    pub(crate) const HANGS: usize = 31;
    pub(crate) const WORDS: usize = 32;
}

/// Fields of a busy window.
pub(crate) mod window {
    pub(crate) const NUMBER: usize = 0;
    pub(crate) const KERNELS: usize = 1;
    pub(crate) const COPIES: usize = 2;
    pub(crate) const WORDS: usize = 3;
}

/// Fields of what one process holds of one GPU; its busy windows follow.
pub(crate) mod holding {
    pub(crate) const BLOCKS: usize = 0;
    pub(crate) const CONTEXT_BLOCKS: usize = 1;
    pub(crate) const CONTEXTS: usize = 2;
    pub(crate) const BUSY: usize = 3;
    pub(crate) const BUSY_COPY: usize = 4;
    /// This process's charge for shared memory, summed anew at every change of the shared pieces.
    pub(crate) const SHARED_BLOCKS: usize = 5;
    /// Time at which its process was first seen dead; zero until then.
    pub(crate) const DEAD_SINCE: usize = 6;
    /// Nonzero if its contexts came back from a checkpoint.
    pub(crate) const RESTORED: usize = 7;
    pub(crate) const WINDOWS: usize = 8;
    pub(crate) const WORDS: usize = WINDOWS + super::WINDOWS * super::window::WORDS;
}

/// Fields of a piece of memory that several processes hold.
pub(crate) mod shared {
    /// Zero where there is none; written last, cleared first.
    pub(crate) const SERIAL: usize = 0;
    pub(crate) const BLOCKS: usize = 1;
    /// The slot of the holder that it is counted for.
    pub(crate) const PAYER: usize = 2;
    /// One bit for each process that holds it.
    pub(crate) const HOLDERS: usize = 8;
    pub(crate) const WORDS: usize = HOLDERS + super::PROCESSES / 64;
}

/// Fields of a fault.
pub(crate) mod xid {
    pub(crate) const CODE: usize = 0;
    pub(crate) const AT: usize = 1;
    pub(crate) const WORDS: usize = 2;
}

/// Fields of a log entry.
pub(crate) mod entry {
    pub(crate) const PROCESS: usize = 0;
    pub(crate) const CONTEXT: usize = 1;
    pub(crate) const FROM: usize = 2;
    pub(crate) const TO: usize = 3;
    pub(crate) const WORDS: usize = 4;
}

/// Fields of a context; its queue and its marks follow.
pub(crate) mod context {
    /// Zero where there is no context.
    pub(crate) const SERIAL: usize = 0;
    pub(crate) const PROCESS: usize = 1;
    pub(crate) const BLOCKS: usize = 2;
    pub(crate) const QUEUED: usize = 3;
    pub(crate) const MARKS_COUNT: usize = 4;
    pub(crate) const QUEUE: usize = 8;
    pub(crate) const MARKS: usize = QUEUE + super::QUEUE_LENGTH * super::piece::WORDS;
    pub(crate) const WORDS: usize = MARKS + super::MARKS * super::mark::WORDS;
}

/// Fields of a queued piece of work.
pub(crate) mod piece {
    /// Zero where there is none; written last, cleared first.
    pub(crate) const SEQUENCE: usize = 0;
    pub(crate) const LANE: usize = 1;
    pub(crate) const KIND: usize = 2;
    pub(crate) const REMAINING: usize = 3;
    pub(crate) const AFTER: usize = 4;
    pub(crate) const AFTER_SEQUENCE: usize = 5;
    pub(crate) const AFTER_PLACE: usize = 6;
    pub(crate) const WORDS: usize = 8;
}

/// Fields of a remembered mark.
pub(crate) mod mark {
    pub(crate) const SEQUENCE: usize = 0;
    pub(crate) const AT: usize = 1;
    pub(crate) const WORDS: usize = 2;
}

const FIRST_REQUEST: usize = node::WORDS + PROCESSES;
const FIRST_GPU: usize = FIRST_REQUEST + PROCESSES * request::WORDS;
const GPU_WINDOWS: usize = gpu::WORDS;
const GPU_HOLDINGS: usize = GPU_WINDOWS + WINDOWS * window::WORDS;
const GPU_SHARED: usize = GPU_HOLDINGS + PROCESSES * holding::WORDS;
const GPU_XIDS: usize = GPU_SHARED + SHARED * shared::WORDS;
const GPU_LOG: usize = GPU_XIDS + XIDS * xid::WORDS;
const GPU_CONTEXTS: usize = GPU_LOG + LOG * entry::WORDS;
const GPU_ALL: usize = GPU_CONTEXTS + CONTEXTS * context::WORDS;

/// Length of the part before the trailer.
pub(crate) const fn words(gpus: usize) -> usize {
    FIRST_GPU + gpus * GPU_ALL
}

/// Index in the file of a field of a GPU's header.
pub(crate) const fn gpu_word(index: usize, field: usize) -> usize {
    FIRST_GPU + index * GPU_ALL + field
}

/// Some consecutive words with a meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'a>(pub(crate) &'a [AtomicU64]);

impl<'a> Words<'a> {
    pub(crate) fn get(self, field: usize) -> u64 {
        self.0[field].load(Acquire)
    }

    pub(crate) fn set(self, field: usize, value: u64) {
        self.0[field].store(value, Release);
    }

    /// Adds, for words that only the holder of the lock writes.
    pub(crate) fn add(self, field: usize, value: u64) -> u64 {
        let sum = self.get(field).wrapping_add(value);
        self.set(field, sum);
        sum
    }

    /// Subtracts down to zero, for words that only the holder of the lock writes.
    pub(crate) fn take(self, field: usize, value: u64) {
        self.set(field, self.get(field).saturating_sub(value));
    }

    pub(crate) fn word(self, field: usize) -> &'a AtomicU64 {
        &self.0[field]
    }

    pub(crate) fn clear(self) {
        self.0.iter().filter(|word| word.load(Acquire) != 0).for_each(|word| word.store(0, Release));
    }

    pub(crate) fn lock(self, first: usize) -> Lock<'a> {
        Lock { holder: &self.0[first], turns: &self.0[first + 1], flags: &self.0[first + 2] }
    }

    pub(crate) fn part(self, first: usize, length: usize) -> Self {
        Self(&self.0[first..first + length])
    }

    /// Record `index` of a table that begins at `first`.
    pub(crate) fn record(self, first: usize, length: usize, index: usize) -> Self {
        self.part(first + index * length, length)
    }
}

/// A whole node's words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeWords<'a>(pub(crate) &'a [AtomicU64]);

impl<'a> NodeWords<'a> {
    pub(crate) fn header(self) -> Words<'a> {
        Words(&self.0[..node::WORDS])
    }

    /// The word with the stamp of a process, zero where there is none.
    pub(crate) fn process(self, slot: usize) -> &'a AtomicU64 {
        &self.0[node::WORDS + slot]
    }

    /// A process's place for requests to the driver in it.
    pub(crate) fn request(self, slot: usize) -> Words<'a> {
        Words(self.0).record(FIRST_REQUEST, request::WORDS, slot)
    }

    pub(crate) fn gpu(self, index: usize) -> GpuWords<'a> {
        let first = FIRST_GPU + index * GPU_ALL;
        GpuWords(Words(&self.0[first..first + GPU_ALL]))
    }
}

/// One GPU's words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuWords<'a>(Words<'a>);

impl<'a> GpuWords<'a> {
    pub(crate) fn header(self) -> Words<'a> {
        self.0.part(0, gpu::WORDS)
    }

    pub(crate) fn windows(self) -> Words<'a> {
        self.0.part(GPU_WINDOWS, WINDOWS * window::WORDS)
    }

    pub(crate) fn holding(self, process: usize) -> Words<'a> {
        self.0.record(GPU_HOLDINGS, holding::WORDS, process)
    }

    pub(crate) fn shared(self, place: usize) -> Words<'a> {
        self.0.record(GPU_SHARED, shared::WORDS, place)
    }

    pub(crate) fn xid(self, count: u64) -> Words<'a> {
        self.0.record(GPU_XIDS, xid::WORDS, count as usize % XIDS)
    }

    pub(crate) fn log(self, count: u64) -> Words<'a> {
        self.0.record(GPU_LOG, entry::WORDS, count as usize % LOG)
    }

    pub(crate) fn context(self, slot: usize) -> Words<'a> {
        self.0.record(GPU_CONTEXTS, context::WORDS, slot)
    }

    pub(crate) fn piece(self, context: usize, place: usize) -> Words<'a> {
        self.context(context).record(context::QUEUE, piece::WORDS, place)
    }

    pub(crate) fn mark(self, context: usize, count: u64) -> Words<'a> {
        self.context(context).record(context::MARKS, mark::WORDS, count as usize % MARKS)
    }
}

/// The busy windows inside a holding.
pub(crate) fn windows_of(holding: Words<'_>) -> Words<'_> {
    holding.part(holding::WINDOWS, WINDOWS * window::WORDS)
}
