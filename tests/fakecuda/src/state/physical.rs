//! Memory by handle: physical, shared with other processes, imported, or bound to multicast objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use simgpu::Shared;

use crate::memory::backing::Backing;

/// Memory without an address, from `cuMemCreate` or another process.
pub(crate) struct Physical {
    pub(crate) device: usize,
    pub(crate) size: u64,
    pub(crate) handle_types: i32,
    /// Type and number of its location, as they were given.
    pub(crate) location: (i32, i32),
    pub(crate) backing: Arc<Backing>,
    /// Handles to it that are not released.
    pub(crate) held: u32,
    /// Ranges that map it.
    pub(crate) mapped: u32,
    /// Payment for its blocks in the engine.
    pub(crate) payment: Payment,
    /// Another process made it.
    pub(crate) imported: bool,
}

/// Payment for memory in the engine.
#[derive(Clone, Copy)]
pub(crate) enum Payment {
    /// By this process alone.
    Own,
    /// As a piece that others may hold, too.
    Shared(Shared),
    /// Not by any device: it is the host's.
    Host,
}

/// The shared memory of this process.
#[derive(Default)]
pub(crate) struct Pieces {
    /// Holds of each piece here: a process holds it until it has released it as often.
    pub(crate) holds: BTreeMap<Shared, u32>,
    /// Exported blocks of a heap, by their first address.
    pub(crate) exported: BTreeMap<u64, Shared>,
}

/// An object imported from another API.
pub(crate) struct External {
    pub(crate) memory: u64,
    pub(crate) size: u64,
}

/// A multicast object and the memory bound to it.
#[derive(Default)]
pub(crate) struct Multicast {
    pub(crate) size: u64,
    pub(crate) wanted: u32,
    pub(crate) devices: Vec<i32>,
    pub(crate) bound: Vec<Bound>,
}

pub(crate) struct Bound {
    pub(crate) device: i32,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) memory: u64,
}
