//! Protocol between daemon and shim: two memory regions per slice and messages on its socket.
//!
//! Laws:
//! - A region is a slice of `AtomicU64` words and nothing else; no reference to plain data in it ever exists.
//! - The *control* region is written by the daemon and mapped read-only by tenants. The *usage* region is
//!   written by tenants, so the daemon trusts nothing in it: it loads a word once, checks it, and uses the copy.
//! - Nothing here calls the operating system. `shim/hooks` and `daemon/linux` map the regions.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "crash-points"))]
extern crate std;

pub mod compute;
pub mod control;
pub mod crash;
pub mod credit;
pub mod lease;
pub mod message;
pub mod parking;
mod region;
pub mod total;
mod transfers;
mod units;
pub mod usage;
pub mod version;

pub use region::{BadRegion, DeviceSlot, Slot};
pub(crate) use region::{check_header, header};
pub use transfers::CountedTransfers;

/// Version of the layout and of the messages. Both sides refuse any other.
pub const ABI: u64 = 4;
/// Most GPUs in one slice.
pub const MAX_DEVICES: usize = 16;
/// Most processes in one slice at a time.
pub const MAX_SLOTS: usize = 4096;

/// The word type of both regions.
///
/// `tests/model` compiles the same files with loom's words, to explore every order of their accesses.
mod word {
    pub(crate) use core::sync::atomic::AtomicU64;
}
