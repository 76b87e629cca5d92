//! Entries of the table, and their kinds.

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

/// Declares the kinds of entries, and the list of all in their order.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $(= $number:literal)?,)*) => {
        /// Kind of object that an entry describes. Keys of different kinds never collide.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EntryKind {
            $($(#[$doc])* $kind $(= $number)?,)*
        }

        impl EntryKind {
            pub(super) const ALL: &[Self] = &[$(Self::$kind),*];
        }
    };
}

kinds! {
    /// Memory, by its device pointer.
    Memory = 1,
    /// Memory out of a pool, by its device pointer.
    Streamed,
    /// A block of addresses with small allocations in it.
    Block,
    /// An array or a mipmapped array.
    Array,
    /// Physical memory, by its handle.
    Physical,
    /// A mapping of physical memory, by its address.
    Mapping,
    /// A context, by its handle.
    Context,
    /// A memory pool on one device, by its handle.
    Pool,
    /// A memory pool in host memory, or one whose memory any device of the slice may hold.
    ForeignPool,
    /// Memory that several processes hold, by its share key.
    Shared,
    /// The share key of an exported object of this process.
    Alias,
    /// Memory of another process, by the pointer at which it is open.
    Opened,
    /// A module or library, by its handle.
    Module,
    /// Use of the code that a context's reserve covers, by device.
    Allowance,
    /// A limit of a context that the program raised.
    Limit,
    /// A graph ready to run, with the size of its memory nodes on one device.
    Graph,
    /// Charge for all graphs on a device.
    GraphMemory,
    /// A place in a multicast object, an endpoint or an array with memory bound to it.
    Binding,
    /// A device pointer that was freed in the order of a stream, which may not have reached the free.
    Leaving,
    /// A mark in a stream, by the work in front of it.
    Mark,
    /// A pool that was destroyed while a pointer of it was in use.
    GonePool,
    /// A context that exists or is being made, by its place in the list of contexts.
    Present,
    /// A library that is loaded or being loaded, by its place in the list of libraries.
    Library,
    /// The place of a library in the list, by its handle.
    Loaded,
    /// Charge for a library in one context.
    Copy,
}

/// Value of an entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Device that holds its memory.
    pub device: DeviceSlot,
    /// Number of its insertion: unique, so that it differs from a later object's with the same address.
    pub serial: u64,
    /// Charge for it, in units.
    pub units: Units,
    /// Meaning by [`EntryKind`], such as a size.
    pub detail: u64,
    /// Meaning by [`EntryKind`], such as a context.
    pub link: u64,
}

/// Error of a table without room for another entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;
