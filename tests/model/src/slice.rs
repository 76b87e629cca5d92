//! Two processes with credit in hand and no daemon.

use crate::control::{self, Control, ControlWriter, ProcessIdentity};
use crate::credit::Units;
use crate::usage::{self, Usage};
use crate::word::AtomicU64;
use crate::{DeviceSlot, Slot};

/// A slice whose processes change what they use, and read the total.
pub struct Slice {
    control: Vec<AtomicU64>,
    usage: Vec<AtomicU64>,
}

impl Slice {
    /// Two processes with some credit each; the total was read once before.
    pub fn with_credit() -> Self {
        let modelled = [usage::total(device()), usage::record(slot(0)), usage::record(slot(1))];
        let word = |at| if modelled.contains(&at) { AtomicU64::modelled() } else { AtomicU64::plain() };
        let control: Vec<_> = (0..control::WORDS).map(|_| AtomicU64::plain()).collect();
        let usage: Vec<_> = (0..usage::WORDS).map(word).collect();
        let writer = ControlWriter::init(&control, 1, 1).expect("as long as the region");
        let region = Usage::init(&usage, 1).expect("as long as the region");
        for process in [0, 1] {
            writer.occupy(slot(process), ProcessIdentity { pid: 1, ..ProcessIdentity::default() });
            region.credit(slot(process), device()).grant(Units::new(9));
        }
        let slice = Self { control, usage };
        assert_eq!(slice.used(), 0);
        slice
    }

    fn usage(&self) -> Usage<'_> {
        Usage::attach(&self.usage).expect("made whole")
    }

    /// Units that both processes use together.
    pub fn used(&self) -> u32 {
        self.usage().used(Control::attach(&self.control).expect("made whole"), device()).get()
    }

    /// Charges units to a process.
    pub fn charge(&self, process: usize, units: u32) {
        let credit = self.usage().credit(slot(process), device());
        credit.charge(Units::new(units)).expect("it was granted more");
    }

    /// Releases units of a process.
    pub fn release(&self, process: usize, units: u32) {
        self.usage().credit(slot(process), device()).release(Units::new(units));
    }
}

fn device() -> DeviceSlot {
    DeviceSlot::new(0).expect("there is one")
}

fn slot(process: usize) -> Slot {
    Slot::new(process).expect("there are two")
}
