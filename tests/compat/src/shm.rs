//! Shared memory and the messages on a slice's socket, as they are observed from outside.
//!
//! Each line has an operation by which one side informs the other, and the words of the region that it changes. The
//! values are chosen so that they can be recognised in these words.

mod control;
mod messages;
mod usage;

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tranche_shm::compute::{self, Mark};
use tranche_shm::credit::{Credit, UNIT_BYTES};
use tranche_shm::lease::Lease;
use tranche_shm::{ABI, DeviceSlot, MAX_DEVICES, MAX_SLOTS, Slot, control as control_region, message};

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
    number("Mark::MOST_US", Mark::MOST_US.into());
    number("Lease::MOST_DEPTH_US", Lease::MOST_DEPTH_US.into());
    number("Lease::MOST_LEAST", Lease::MOST_LEAST.into());
    number("message::FRAME_BYTES", message::FRAME_BYTES as u64);
}

/// Words of a region, zero at first.
struct Region(Vec<AtomicU64>);

impl Region {
    fn of(words: usize) -> Self {
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    fn read(&self) -> Vec<u64> {
        self.0.iter().map(|word| word.load(SeqCst)).collect()
    }

    /// Positions of the magic and of the ABI, which a region of every version has.
    fn heading(&self) -> String {
        let words = self.read();
        let magic = String::from_utf8_lossy(&words[0].to_be_bytes()).into_owned();
        let abi = words.iter().position(|word| *word == ABI);
        format!("0: {magic}, {}: ABI", abi.map_or("nowhere".into(), |at| at.to_string()))
    }

    /// Words that change during an operation, and their values afterwards.
    fn while_doing(&self, act: impl FnOnce()) -> String {
        let before = self.read();
        act();
        let changed =
            before.iter().zip(self.read()).enumerate().filter(|(_, (before, after))| *before != after);
        let words: Vec<_> = changed.map(|(at, (_, after))| format!("{at}: {after:#x}")).collect();
        if words.is_empty() { "nothing".into() } else { words.join(", ") }
    }
}

fn slot(index: usize) -> Slot {
    Slot::new(index).expect("there are more")
}

fn device(index: usize) -> DeviceSlot {
    DeviceSlot::new(index).expect("there are more")
}
