//! Interfaces that older and newer releases rely on: messages of `tranche.v1`, and shared memory.
//!
//! Laws:
//! - The promise is in `frozen/`, in readable lines, and is never changed there by hand.
//! - The present state is derived from the code: descriptors are compiled from `proto/`, and of shared memory it is
//!   observed which words each operation changes. No list of offsets can be wrong about it.
//! - `make freeze` enters additions, and refuses everything else.
#![forbid(unsafe_code)]

mod description;
mod frozen;
mod shm;
mod wire;

pub use description::{Breach, Description};
pub use frozen::{Frozen, Verdict};
pub use wire::{descriptors, wire};
pub use {shm::ALWAYS, shm::shm};
