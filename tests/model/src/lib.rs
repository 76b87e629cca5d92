//! The credit protocol under loom, in each order in which a slice's processes and their daemon can act.
//!
//! Memory is that of a weak machine, and any one step may be the last of the process or the daemon that takes it.
//!
//! Law: nothing here imitates the protocol. The files of both halves are compiled a second time, over words of this
//! crate's own; only what surrounds them (a driver, a reaper, a socket) is simulated, in [`world`].
//!
//! Loom finds a race between two instructions in seconds, each time, which a stress test meets once in a week. A crate
//! of its own, unlike `--cfg loom`, is an ordinary test, needs no second build of the tree, and keeps loom out of what
//! is shipped. Two things are left out: words that carry no part of the protocol (headers, counters, identities) are
//! plain, and the number of preemptions is bounded, see the tests.
#![forbid(unsafe_code)]
// The unit tests of the borrowed files run in the crates that own them.
#![cfg(not(test))]

extern crate self as tranche_shm;

pub mod piece;
pub mod shared;
pub mod slice;
pub mod word;
pub mod world;

#[allow(dead_code, reason = "the model uses the protocol, not all of the region")]
#[path = "../../../proto/shm/src/control.rs"]
pub mod control;
/// Crash points without effect: the model ends a process at any step.
pub mod crash {
    /// Does nothing, under the signature of the real function.
    pub const fn point(_name: &'static str) {}
}
#[allow(dead_code, reason = "the model uses the protocol, not all of the words")]
#[path = "../../../proto/shm/src/credit.rs"]
pub mod credit;
#[allow(dead_code, reason = "the model launches nothing")]
#[path = "../../../proto/shm/src/lease.rs"]
pub mod lease;
#[allow(dead_code, reason = "the model calls the daemon and sends nothing")]
#[path = "../../../proto/shm/src/message.rs"]
pub mod message;
#[allow(dead_code, reason = "the model parks nothing")]
#[path = "../../../proto/shm/src/parking.rs"]
pub mod parking;
#[allow(dead_code, reason = "the model uses the protocol, not all of the region")]
#[path = "../../../proto/shm/src/region.rs"]
pub mod region;
#[path = "../../../proto/shm/src/total.rs"]
pub mod total;
#[path = "../../../proto/shm/src/transfers.rs"]
mod transfers;
pub use transfers::CountedTransfers;
#[allow(dead_code, reason = "the model uses the protocol, not all of the units")]
#[path = "../../../proto/shm/src/units.rs"]
mod units;
#[allow(dead_code, reason = "the model uses the protocol, not all of the region")]
#[path = "../../../proto/shm/src/usage.rs"]
pub mod usage;

#[allow(dead_code, reason = "no process of the model ends while no daemon runs")]
#[path = "../../../daemon/slices/src/slice_runtime/account.rs"]
mod account;
#[path = "../../../daemon/slices/src/slice_runtime/common.rs"]
mod common;
#[allow(dead_code, reason = "the model's disk forgets nothing and needs no tidying")]
#[path = "../../../daemon/slices/src/shares/change.rs"]
mod shares;

#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/binding.rs"]
pub mod binding;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/calls.rs"]
pub mod calls;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/charge.rs"]
pub mod charge;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/context.rs"]
pub mod context;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/extent.rs"]
pub mod extent;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/forget.rs"]
pub mod forget;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/graph.rs"]
pub mod graph;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/image.rs"]
pub mod image;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/ledger.rs"]
pub mod ledger;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/lend.rs"]
pub mod lend;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/library.rs"]
pub mod library;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/limit.rs"]
pub mod limit;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/link.rs"]
pub mod link;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/list.rs"]
pub mod list;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/lock.rs"]
pub mod lock;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/mark.rs"]
pub mod mark;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/memory.rs"]
pub mod memory;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/module.rs"]
pub mod module;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/order.rs"]
pub mod order;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/physical.rs"]
pub mod physical;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/pool/mod.rs"]
pub mod pool;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/ptx.rs"]
pub mod ptx;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/share.rs"]
pub mod share;
#[allow(dead_code, reason = "the model only charges and shares")]
#[path = "../../../shim/policy/src/table.rs"]
pub mod table;

pub use region::{BadRegion, DeviceSlot, Slot};
pub(crate) use region::{check_header, header};

/// Version of the regions, as in the real ones.
pub const ABI: u64 = 4;
/// One device is enough: devices share nothing.
pub const MAX_DEVICES: usize = 1;
/// Two processes race in all the ways that more can, two at a time.
pub const MAX_SLOTS: usize = 2;
