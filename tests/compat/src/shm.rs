//! Shared memory and the messages on a slice's socket, as they are observed from outside.
//!
//! Each line has an operation by which one side informs the other, and the words of the region that it changes. The
//! values are chosen so that they can be recognised in these words.

mod control;
mod messages;
mod region;
mod usage;

use tranche_shm::compute::{self, CompletionMark};
use tranche_shm::credit::{Credit, UNIT_BYTES};
use tranche_shm::lease::Lease;
use tranche_shm::{ABI, MAX_DEVICES, MAX_SLOTS, control as control_region, message};

use crate::Description;

/// Beginnings of lines that are the same in every version.
///
/// By them a daemon recognises the regions of any other version, their version, and the processes attached to them.
pub const ALWAYS: [&str; 2] = ["always ", "seat "];

/// Describes the constants, regions and messages of this build.
pub fn shm() -> Description {
    let mut description = Description::default();
    constants(&mut description);
    control::describe(&mut description);
    usage::describe(&mut description);
    messages::describe(&mut description);
    description
}

fn constants(description: &mut Description) {
    let mut number = |name: &str, value: u64| description.add(format!("number {name}"), value.to_string());
    number("ABI", ABI);
    number("MAX_DEVICES", MAX_DEVICES as u64);
    number("MAX_SLOTS", MAX_SLOTS as u64);
    number("control::BYTES", control_region::BYTES as u64);
    number("control::DEPARTURE_PATIENCE_NS", control_region::DEPARTURE_PATIENCE_NS);
    number("compute::FIRST_BYTE", compute::FIRST_BYTE as u64);
    number("compute::REGION_BYTES", compute::REGION_BYTES as u64);
    number("compute::RECORD_WORDS", compute::RECORD_WORDS as u64);
    number("compute::MARKS", compute::MARKS as u64);
    number("credit::UNIT_BYTES", UNIT_BYTES);
    number("Credit::MOST", Credit::MOST.get().into());
    number("Mark::MOST_US", CompletionMark::MOST_US.into());
    number("Lease::MOST_DEPTH_US", Lease::MOST_DEPTH_US.into());
    number("Lease::MOST_LEAST", Lease::MOST_LEAST.into());
    number("message::FRAME_BYTES", message::FRAME_BYTES as u64);
}
