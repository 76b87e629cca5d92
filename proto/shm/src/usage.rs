//! The usage region: memory held by the processes of one slice, written by themselves.
//!
//! Layout in 64-bit words: a header of 16, then a record of 8 for each of 16 devices, a cache line with the total word
//! of [`crate::total`] in it. Then 4096 process records of 48: a credit word for each of 16 devices, the charge for
//! contexts on each, counters, and the word of [`crate::parking`]. Behind them lie the records of `compute`.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::control::Control;
use crate::credit::{Credit, CreditWord, Units};
use crate::parking::HindranceWord;
use crate::total::TotalWord;
use crate::word::AtomicU64;
use crate::{ABI, BadRegion, DeviceSlot, MAX_DEVICES, MAX_SLOTS, Slot, check_header, header};

/// First word of a usage region ("TRCHUSED").
pub const MAGIC: u64 = u64::from_be_bytes(*b"TRCHUSED");
/// Length of a usage region in words.
pub const WORDS: usize = FIRST_SLOT + MAX_SLOTS * SLOT_WORDS;
/// Length of a usage region in bytes.
pub const BYTES: usize = WORDS * 8;

/// Length of the region up to the end of the first `slots` process records, in bytes.
pub const fn bytes_for(slots: usize) -> usize {
    (FIRST_SLOT + slots * SLOT_WORDS) * 8
}

const FIRST_DEVICE: usize = 16;
const DEVICE_WORDS: usize = 8;
const FIRST_SLOT: usize = FIRST_DEVICE + MAX_DEVICES * DEVICE_WORDS;
const SLOT_WORDS: usize = 48;
const CONTEXT: usize = MAX_DEVICES;
const COUNTERS: usize = 2 * MAX_DEVICES;
const HINDRANCES: usize = COUNTERS + 8;

/// Counters of a process. Their order is the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Allocations refused at the cap.
    Refusals,
    /// Requests for credit sent to the daemon.
    Asked,
    /// Requests to which the daemon did not reply in time.
    Unanswered,
    /// Changes with every charge, so that a reader detects charges between two samples. It counts nothing exactly.
    Charges,
}

/// The usage region, as tenants and daemon map it: writable.
#[derive(Clone, Copy, Debug)]
pub struct Usage<'a> {
    words: &'a [AtomicU64; WORDS],
}

impl<'a> Usage<'a> {
    /// Writes the header of an empty usage region into zeroed words.
    pub fn init(words: &'a [AtomicU64], generation: u64) -> Result<Self, BadRegion> {
        let usage = Self::known(words).ok_or(BadRegion::TooShort(words.len()))?;
        words[header::ABI].store(ABI, Relaxed);
        words[header::WORDS].store(WORDS as u64, Relaxed);
        words[header::GENERATION].store(generation, Relaxed);
        words[header::MAGIC].store(MAGIC, Release);
        Ok(usage)
    }

    /// Checks the header of a region that was just mapped.
    pub fn attach(words: &'a [AtomicU64]) -> Result<Self, BadRegion> {
        check_header(words, MAGIC, WORDS)?;
        Self::known(words).ok_or(BadRegion::TooShort(words.len()))
    }

    /// A region that [`Usage::attach`] accepted before; only its length is checked.
    #[inline]
    pub fn known(words: &'a [AtomicU64]) -> Option<Self> {
        words.first_chunk().map(|words| Self { words })
    }

    /// Generation of the slice; its control region must carry the same number.
    pub fn generation(self) -> u64 {
        self.words[header::GENERATION].load(Acquire)
    }

    /// The credit word of a process on a device.
    #[inline(always)]
    pub fn credit(self, slot: Slot, device: DeviceSlot) -> CreditWord<'a> {
        CreditWord::at(&self.words[record(slot) + device.index()], self.total(device))
    }

    fn total(self, device: DeviceSlot) -> TotalWord<'a> {
        TotalWord::at(&self.words[total(device)])
    }

    /// Part of a process's charge that stands for its contexts on a device, in units.
    pub fn context(self, slot: Slot, device: DeviceSlot) -> &'a AtomicU64 {
        &self.words[record(slot) + CONTEXT + device.index()]
    }

    /// The word of a process's counter.
    pub fn counter(self, slot: Slot, counter: Counter) -> &'a AtomicU64 {
        &self.words[record(slot) + COUNTERS + counter as usize]
    }

    /// The word with what a process has done that cannot be checkpointed.
    pub fn hindrances(self, slot: Slot) -> HindranceWord<'a> {
        HindranceWord::at(&self.words[record(slot) + HINDRANCES])
    }

    /// Charge of the slice on a device: its processes' use and [`Control::common`], at about one instant.
    ///
    /// Use beyond a process's grant is not counted: its word is forged, or a recall is under way.
    #[inline]
    pub fn used(self, control: Control<'_>, device: DeviceSlot) -> Units {
        control.common(device).saturating_add(self.total(device).get(|| self.add_up(control, device)))
    }

    fn add_up(self, control: Control<'_>, device: DeviceSlot) -> Units {
        let slots = (0..control.slots_high()).filter_map(Slot::new);
        slots.fold(Units::ZERO, |sum, slot| {
            let credit = self.credit(slot, device).load();
            sum.saturating_add(credit.used.min(credit.granted))
        })
    }

    /// Zeroes the record of a slot before its next process.
    pub fn clear(self, slot: Slot) {
        for device in (0..MAX_DEVICES).filter_map(DeviceSlot::new) {
            self.credit(slot, device).reset(Credit::default());
        }
        for word in &self.words[record(slot) + CONTEXT..record(slot) + SLOT_WORDS] {
            word.store(0, Relaxed);
        }
    }
}

/// Index of the first word of a process's record.
pub(crate) const fn record(slot: Slot) -> usize {
    FIRST_SLOT + slot.index() * SLOT_WORDS
}

/// Index of a device's total word.
pub(crate) const fn total(device: DeviceSlot) -> usize {
    FIRST_DEVICE + device.index() * DEVICE_WORDS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{self, ControlWriter, ProcessIdentity};
    use std::vec::Vec;

    fn zeroed(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn use_is_summed_over_processes() {
        let (control, usage) = (zeroed(control::WORDS), zeroed(WORDS));
        let writer = ControlWriter::init(&control, 1, 1).unwrap();
        let usage = Usage::init(&usage, 1).unwrap();
        let device = DeviceSlot::new(0).unwrap();
        for index in [0, 5] {
            let slot = Slot::new(index).unwrap();
            writer.occupy(slot, ProcessIdentity { pid: 1, ..ProcessIdentity::default() });
            usage.credit(slot, device).grant(Units::new(9));
            usage.credit(slot, device).charge(Units::new(4)).unwrap();
        }
        assert_eq!(usage.used(writer.reader(), device), Units::new(8));
        usage.clear(Slot::new(5).unwrap());
        assert_eq!(usage.used(writer.reader(), device), Units::new(4));
    }
}
