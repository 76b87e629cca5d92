//! The credit protocol, run as it is under loom: each order in which the processes of a slice and its daemon can
//! take their steps, with the memory of a weak machine, and with any one step the last of whoever takes it.
//!
//! Law: nothing here imitates the protocol. The files of both halves are compiled a second time, over words of
//! this crate's own; only what surrounds them (a driver, a reaper, a socket) is made up, in [`world`].
//!
//! Why loom and not the real thing under stress: a race between two instructions shows itself to a stress test
//! once in a week, and here in seconds, each time. Why a crate of its own and not `--cfg loom`: it is an ordinary
//! test, needs no second build of the tree, and nothing of loom can get into what is shipped. What it leaves out:
//! words that carry no part of the protocol (headers, counters, identities) are plain; the number of times that
//! somebody is interrupted is bounded, see the tests.
#![forbid(unsafe_code)]
// The unit tests of the files it borrows stay where they belong.
#![cfg(not(test))]

extern crate self as tranche_shm;

pub mod shared;
pub mod slice;
pub mod word;
pub mod world;

#[allow(dead_code, reason = "the model uses the protocol, not all of the region")]
#[path = "../../../proto/shm/src/control.rs"]
pub mod control;
/// The model dies where it likes, and needs nobody to name the place.
pub mod crash {
    /// Nothing happens here.
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
#[allow(dead_code, reason = "the model uses the protocol, not all of the region")]
#[path = "../../../proto/shm/src/region.rs"]
pub mod region;
#[path = "../../../proto/shm/src/total.rs"]
pub mod total;
#[allow(dead_code, reason = "the model uses the protocol, not all of the region")]
#[path = "../../../proto/shm/src/usage.rs"]
pub mod usage;

#[path = "../../../daemon/agent/src/slice_runtime/account.rs"]
mod account;
#[path = "../../../daemon/agent/src/slice_runtime/common.rs"]
mod common;
#[allow(dead_code, reason = "the model's disk forgets nothing and needs no tidying")]
#[path = "../../../daemon/agent/src/shares/change.rs"]
mod shares;

#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/binding.rs"]
pub mod binding;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/calls.rs"]
pub mod calls;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/charge.rs"]
pub mod charge;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/context.rs"]
pub mod context;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/extent.rs"]
pub mod extent;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/graph.rs"]
pub mod graph;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/image.rs"]
pub mod image;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/ledger.rs"]
pub mod ledger;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/lend.rs"]
pub mod lend;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/library.rs"]
pub mod library;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/limit.rs"]
pub mod limit;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/lock.rs"]
pub mod lock;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/mark.rs"]
pub mod mark;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/memory.rs"]
pub mod memory;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/module.rs"]
pub mod module;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/physical.rs"]
pub mod physical;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/pool/mod.rs"]
pub mod pool;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/ptx.rs"]
pub mod ptx;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/share.rs"]
pub mod share;
#[allow(dead_code, reason = "the model charges and shares, and no more")]
#[path = "../../../shim/policy/src/table.rs"]
pub mod table;

pub use region::{BadRegion, DeviceSlot, Slot};
pub(crate) use region::{check_header, header};

/// As in the real regions.
pub const ABI: u64 = 4;
/// One device is enough: devices share nothing.
pub const MAX_DEVICES: usize = 1;
/// Two processes race in all the ways that more can, two at a time.
pub const MAX_SLOTS: usize = 2;
