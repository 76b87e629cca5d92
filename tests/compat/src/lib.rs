//! What others rely on who are older or newer than this build: the messages of `tranche.v1`, and what daemon and shim
//! share.
//!
//! Laws:
//! - What was promised is in `frozen/`, in lines to be read, and is never changed there by hand.
//! - What is so today is found out by asking the code: descriptors are compiled from `proto/`, and of shared memory it
//!   is observed which words change when something is said. No list of offsets can lie about it.
//! - An addition is entered by `make freeze`, which refuses everything else.
#![forbid(unsafe_code)]

mod description;
mod frozen;
mod shm;
mod wire;

pub use description::{Breach, Description};
pub use frozen::{Frozen, Verdict};
pub use wire::{descriptors, wire};
pub use {shm::ALWAYS, shm::shm};
