//! Lanes of contexts, and kinds of work in them.
#![forbid(unsafe_code)]

/// A queue of a context. Work in one lane runs in order, heads of different lanes run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// The legacy default stream: waits for all earlier work in blocking lanes, and they for it.
    Legacy,
    /// A stream that synchronises with the legacy one, by a number of the caller's (below 2^62).
    Blocking(u64),
    /// A stream that doesn't (`CU_STREAM_NON_BLOCKING`), by a number of the caller's (below 2^62).
    Free(u64),
}

/// Kind of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// Keeps the multiprocessors busy: counts as GPU utilisation.
    Kernel,
    /// Moves or fills bytes inside the device. It takes the GPU as a kernel does and counts as memory
    /// utilisation.
    Copy,
    /// Takes no time; the moment it is reached is remembered, so it is what an event records.
    Mark,
    /// Holds its lane until [`crate::Node::open_gate`]: a host callback, a wait for a value. Takes no GPU time.
    Gate,
    /// Brings bytes over the bus, beside whatever runs. It takes the copy engine of its direction and no GPU
    /// time.
    Upload,
    /// The same in the other direction.
    Download,
}
