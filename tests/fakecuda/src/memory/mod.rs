//! Device memory: its blocks, its bytes and its addresses.

pub(crate) mod alloc;
pub(crate) mod backing;
pub(crate) mod extents;
pub(crate) mod external;
pub(crate) mod graph;
pub(crate) mod heap;
pub(crate) mod host;
pub(crate) mod ipc;
pub(crate) mod location;
pub(crate) mod managed;
pub(crate) mod multicast;
pub(crate) mod physical;
pub(crate) mod place;
pub(crate) mod pointer;
pub(crate) mod pool;
pub(crate) mod ranges;
pub(crate) mod release;
pub(crate) mod reserve;
pub(crate) mod shared;
pub(crate) mod span;
pub(crate) mod virt;
