//! What the daemon and the shim share: two memory regions per slice and a few messages on its socket.
//!
//! Laws:
//! - A region is a slice of `AtomicU64` words and nothing else; no reference to plain data in it ever exists.
//! - The *control* region is written by the daemon and mapped read-only by tenants. The *usage* region is
//!   written by tenants, so whatever the daemon reads there is a hint from a stranger: read once, check, use
//!   the copy.
//! - Nothing here calls the operating system. Mapping a region is the business of whoever owns it.
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
mod region;
pub mod total;
pub mod usage;
pub mod version;

pub use region::{BadRegion, DeviceSlot, Slot};
pub(crate) use region::{check_header, header};

/// Version of the layout and of the messages. Both sides refuse another.
pub const ABI: u64 = 4;
/// Most GPUs in one slice.
pub const MAX_DEVICES: usize = 16;
/// Most processes in one slice at a time.
pub const MAX_SLOTS: usize = 4096;

/// The one kind of word there is. The model of the protocol in `tests/model` has the same files over words of its
/// own, whose every access it can delay, reorder or make the last.
mod word {
    pub(crate) use core::sync::atomic::AtomicU64;
}
