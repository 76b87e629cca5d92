//! Hindrances of a process to a checkpoint, as the process itself reports them.
//!
//! A false report harms the slice of the process alone: a checkpoint fails, and its process has to be ended.

use core::sync::atomic::Ordering::{Acquire, Release};

use crate::word::AtomicU64;

/// Memory or an object that a checkpoint does not take along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// Memory that the driver migrates between host and device.
    Managed,
    /// Memory shown to other processes, or opened from them, by IPC handles.
    Ipc,
    /// An object that spans the memory of several devices.
    Multicast,
    /// Physical memory exported or imported by descriptors or fabric handles.
    Shareable,
    /// A memory pool exported to other processes, or imported from them.
    Pool,
    /// Memory of another interface, such as Vulkan.
    External,
}

impl Hindrance {
    /// All of them, in the order of their bits.
    pub const ALL: [Self; 6] =
        [Self::Managed, Self::Ipc, Self::Multicast, Self::Shareable, Self::Pool, Self::External];

    const fn bit(self) -> u64 {
        2 << self as u64
    }
}

/// Bit of a process whose library reports at all.
const REPORTS: u64 = 1;

/// The word of a process with its hindrances. Bits are only ever set, until the record is cleared.
#[derive(Clone, Copy, Debug)]
pub struct HindranceWord<'a>(&'a AtomicU64);

/// Content of a [`HindranceWord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hindrances(u64);

impl<'a> HindranceWord<'a> {
    pub(crate) const fn at(word: &'a AtomicU64) -> Self {
        Self(word)
    }

    /// Sets the bit of a process that reports.
    pub fn begin(self) {
        self.0.fetch_or(REPORTS, Release);
    }

    /// Reports a hindrance, before the call that makes it.
    pub fn add(self, hindrance: Hindrance) {
        self.0.fetch_or(REPORTS | hindrance.bit(), Release);
    }

    /// Hindrances reported so far.
    pub fn load(self) -> Hindrances {
        Hindrances(self.0.load(Acquire))
    }
}

impl Hindrances {
    /// Tests if the process's library reports hindrances.
    pub const fn are_reported(self) -> bool {
        self.0 & REPORTS != 0
    }

    /// Hindrances that were reported.
    pub fn iter(self) -> impl Iterator<Item = Hindrance> {
        Hindrance::ALL.into_iter().filter(move |hindrance| self.0 & hindrance.bit() != 0)
    }

    /// Tests for bits that this version does not define.
    pub fn has_unknown(self) -> bool {
        let known = Hindrance::ALL.iter().fold(REPORTS, |all, hindrance| all | hindrance.bit());
        self.0 & !known != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hindrances_accumulate() {
        let word = AtomicU64::new(0);
        let word = HindranceWord::at(&word);
        assert!(!word.load().are_reported() && word.load().iter().count() == 0);
        word.begin();
        assert!(word.load().are_reported() && word.load().iter().count() == 0);
        for (count, hindrance) in Hindrance::ALL.into_iter().enumerate() {
            word.add(hindrance);
            assert_eq!(word.load().iter().count(), count + 1);
        }
        assert!(!word.load().has_unknown());
    }

    #[test]
    fn unknown_bits_are_recognised() {
        let word = AtomicU64::new(REPORTS | 1 << 40);
        assert!(HindranceWord::at(&word).load().has_unknown());
    }
}
