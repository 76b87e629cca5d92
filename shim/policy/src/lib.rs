//! Decisions of the shim: which requests for device memory are charged, and when a charge is released.
//!
//! Laws:
//! - *Charge before the driver, release after it.* At no instant does the driver hold more for this process
//!   than its credit word counts as used.
//! - Every charge is held by exactly one of: a [`Reservation`] on a thread's stack, or an entry of the
//!   [`Ledger`]. So nothing is charged twice and nothing is forgotten, whatever the driver returns.
//! - No lock of this crate is held while the driver runs. Only the end of a context keeps calls that allocate in it
//!   waiting, and waits for them, see [`Ledger::begin_call`].
//! - All state lies in words that the caller owns and that are zero at the beginning, because the shim keeps
//!   them in memory that a forked child finds zeroed: the child begins without allocations.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod binding;
mod calls;
mod charge;
mod context;
mod extent;
mod forget;
mod gate;
mod graph;
mod image;
mod ledger;
mod lend;
mod library;
mod limit;
mod link;
mod list;
mod location;
mod lock;
mod mark;
mod memory;
mod module;
mod order;
mod physical;
mod pool;
mod ptx;
mod share;
mod table;
pub mod uuid;
mod visible;

pub use binding::{Bound, Tile};
pub use calls::{Call, ContextEnd, ORDER_PATIENCE_NS};
pub use charge::{
    ChargeRefused, CreditResult, DaemonLink, MemoryView, PATIENCE_NS, Reservation, ShareReply, ShareReport,
    Tenant,
};
pub use extent::{ArrayShape, BLOCK, BLOCK_BYTES, Extent, Pitched};
pub use gate::{
    Awaited, GATE_WORDS, Gate, Grant, Host, Launch, LaunchTarget, Pending, Route, Spent, Transfer, Work,
};
pub use graph::GraphUse;
pub use image::{ELF, ELF_HEADER, FAT, FAT_HEADER, FAT_WRAPPER, ImageSize, elf_length, fat_length};
pub use ledger::{Claim, ClaimDenied, Ledger, Owner};
pub use limit::limit_cost;
pub use location::Location;
pub use lock::{Guard, Lock, Pause};
pub use mark::{Hush, Mark, Marks};
pub use order::Barrier;
pub use pool::{PoolPlace, PoolUse};
pub use table::{EntryKind, EntryTable, Full, Open, TableEntry};
pub use visible::{ENTRY_BYTES, VARIABLE, Visible};
