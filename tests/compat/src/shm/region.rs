//! Regions of zeroes, and the words of them that an act changes.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tranche_shm::{ABI, DeviceSlot, Slot};

/// Words of a region, zero at first.
pub(super) struct Region(pub(super) Vec<AtomicU64>);

impl Region {
    pub(super) fn of(words: usize) -> Self {
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    fn read(&self) -> Vec<u64> {
        self.0.iter().map(|word| word.load(SeqCst)).collect()
    }

    /// Positions of the magic and of the ABI, which a region of every version has.
    pub(super) fn heading(&self) -> String {
        let words = self.read();
        let magic = String::from_utf8_lossy(&words[0].to_be_bytes()).into_owned();
        let abi = words.iter().position(|word| *word == ABI);
        format!("0: {magic}, {}: ABI", abi.map_or("nowhere".into(), |at| at.to_string()))
    }

    /// Words that change during an operation, and their values afterwards.
    pub(super) fn while_doing(&self, act: impl FnOnce()) -> String {
        let before = self.read();
        act();
        let changed =
            before.iter().zip(self.read()).enumerate().filter(|(_, (before, after))| *before != after);
        let words: Vec<_> = changed.map(|(at, (_, after))| format!("{at}: {after:#x}")).collect();
        if words.is_empty() { "nothing".into() } else { words.join(", ") }
    }
}

pub(super) fn slot(index: usize) -> Slot {
    Slot::new(index).expect("there are more")
}

pub(super) fn device(index: usize) -> DeviceSlot {
    DeviceSlot::new(index).expect("there are more")
}
