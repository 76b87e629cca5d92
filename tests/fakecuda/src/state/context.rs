//! Contexts, and green ones, which use a part of another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::state::stream::Stream;

/// A context: a program's own, primary or green.
pub(crate) struct Context {
    /// The context in the engine.
    pub(crate) engine: simgpu::Context,
    /// Ordinal of its device.
    pub(crate) device: usize,
    /// Flags with which it was created.
    pub(crate) flags: u32,
    /// True if it is its device's primary one.
    pub(crate) primary: bool,
    /// Stream 0.
    pub(crate) legacy: Arc<Stream>,
    /// Contexts whose memory it may use.
    pub(crate) peers: BTreeSet<u64>,
    pub(crate) limits: BTreeMap<i32, usize>,
    /// Bytes charged for its limits beyond the defaults, by limit.
    pub(crate) extra: BTreeMap<i32, u64>,
    /// True if it is a green one, which uses another's place on the device.
    pub(crate) green: bool,
}

/// Multiprocessors that a green context can be made of.
pub(crate) struct Description {
    pub(crate) device: i32,
    pub(crate) multiprocessors: u32,
}

/// A green context with its multiprocessors.
pub(crate) struct Green {
    pub(crate) device: i32,
    pub(crate) multiprocessors: u32,
    pub(crate) context: u64,
}
