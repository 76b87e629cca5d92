//! The total word: cached sum of a device's credit words, valid until one of them changes.
//!
//! A sum over all credit words is expensive, and each query for free memory needs one. So a reader leaves its sum in a
//! word that all processes share, `sum:32 | turn:30 | state:2`. A writer changes its credit word first, loads the total
//! *afterwards*, and invalidates it if it holds a sum or a reader is adding. Without readers the word is never written,
//! so it stays in every processor's cache and costs an allocation one load.
//!
//! Either the reader sees the changed credit word, or the writer sees the reader's state: all four steps are
//! sequentially consistent. A process that dies between its change and its load has not returned from the call; the
//! daemon empties its slot, which is a change of its own. For a daemon that dies there, its successor repeats the load.
//!
//! Every process of the slice can write this word, as it can write the credit words. No grant depends on it.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::units::Units;
use crate::word::AtomicU64;

const STATE: u64 = 0b11;
/// No sum has been started since the last change.
const UNKNOWN: u64 = 0;
/// A reader is adding; the upper half is void.
const ADDING: u64 = 1;
/// The upper half is the sum, in units.
const KNOWN: u64 = 2;
/// Step of the counter of invalidations, in the bits between state and sum.
const TURN: u64 = STATE + 1;
const LOWER: u64 = u32::MAX as u64;

/// Attempts to invalidate the word. An honest writer in between has invalidated it as well.
const ATTEMPTS: u32 = 8;

/// A total word in a usage region.
#[derive(Clone, Copy, Debug)]
pub struct TotalWord<'a>(&'a AtomicU64);

impl<'a> TotalWord<'a> {
    /// The total word stored in `word`.
    pub const fn at(word: &'a AtomicU64) -> Self {
        Self(word)
    }

    /// The cached sum, or else the result of `add`, which is cached unless a credit word changes meanwhile.
    ///
    /// `add` must read the credit words with sequentially consistent loads.
    #[inline]
    pub fn get(self, add: impl FnOnce() -> Units) -> Units {
        let word = self.0.load(SeqCst);
        if word & STATE == KNOWN { sum(word) } else { self.add(word, add) }
    }

    fn add(self, mut word: u64, add: impl FnOnce() -> Units) -> Units {
        // The state is set before the first credit word is read; another reader may have set it already.
        if word & STATE == UNKNOWN {
            let adding = word & LOWER | ADDING;
            word = self.0.compare_exchange(word, adding, SeqCst, SeqCst).map_or_else(|now| now, |_| adding);
        }
        let sum = add();
        if word & STATE == ADDING {
            let known = word & LOWER ^ ADDING ^ KNOWN | u64::from(sum.get()) << 32;
            let _ = self.0.compare_exchange(word, known, SeqCst, Relaxed);
        }
        sum
    }

    /// Invalidates the sum. Each writer calls it after its change of a credit word, before it returns.
    #[inline(always)]
    pub fn changed(self) {
        let word = self.0.load(SeqCst);
        if word & STATE != UNKNOWN {
            self.forget(word);
        }
    }

    #[cold]
    fn forget(self, word: u64) {
        let turn = word & LOWER & !STATE;
        let next = turn.wrapping_add(TURN) & LOWER;
        let mut now = word;
        for _ in 0..ATTEMPTS {
            match self.0.compare_exchange(now, next, SeqCst, SeqCst) {
                Ok(_) => return,
                // Another writer invalidated it: a reader that began since then has read our change.
                Err(other) if other & LOWER & !STATE != turn => return,
                Err(other) => now = other,
            }
        }
    }
}

const fn sum(word: u64) -> Units {
    Units::new((word >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sum_is_cached_until_a_change() {
        let word = AtomicU64::new(0);
        let total = TotalWord::at(&word);
        assert_eq!(total.get(|| Units::new(7)), Units::new(7));
        assert_eq!(total.get(|| unreachable!("it is known")), Units::new(7));
        total.changed();
        assert_eq!(total.get(|| Units::new(8)), Units::new(8));
    }

    #[test]
    fn sum_overtaken_by_a_change_is_not_cached() {
        let word = AtomicU64::new(0);
        let total = TotalWord::at(&word);
        let overtaken = total.get(|| {
            total.changed();
            Units::new(7)
        });
        assert_eq!(overtaken, Units::new(7));
        assert_eq!(total.get(|| Units::new(8)), Units::new(8));
    }

    #[test]
    fn change_without_readers_writes_nothing() {
        let word = AtomicU64::new(0);
        TotalWord::at(&word).changed();
        assert_eq!(word.into_inner(), 0);
    }

    proptest! {
        #[test]
        fn sum_after_a_change_is_fresh_for_any_word(start: u64, units: u32) {
            let word = AtomicU64::new(start);
            let total = TotalWord::at(&word);
            total.changed();
            prop_assert_eq!(total.get(|| Units::new(units)), Units::new(units));
        }
    }
}
