//! What the processes of a slice use of a device together, remembered for as long as nobody changes it.
//!
//! Adding up means looking at every credit word, and whoever asks what is free would do it each time. So the sum
//! is left in a word that all of them share, `sum:32 | turn:30 | state:2`, and whoever changes what is used looks at
//! that word *afterwards* and takes the sum away if there is one, or if somebody is adding up. As long as nobody
//! asks, nobody writes it, so that it lies in every processor's cache and costs an allocation one look.
//!
//! Either who adds up sees a change, or who made it sees that somebody adds up: all four steps are sequentially
//! consistent. A process that dies between its change and its look has not returned from it; its seat is emptied
//! soon, and that is a change. For a daemon that dies there, its successor looks.
//!
//! Like the words that it sums up, this one is as good as the worst process of the slice. Nothing is granted on its
//! word.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::credit::Units;
use crate::word::AtomicU64;

const STATE: u64 = 0b11;
/// Nobody has asked since the last change.
const UNKNOWN: u64 = 0;
/// Somebody adds up.
const ADDING: u64 = 1;
/// The upper half is the sum.
const KNOWN: u64 = 2;
/// Counted up with each change that is seen here, in the bits between state and sum.
const TURN: u64 = STATE + 1;
const LOWER: u64 = u32::MAX as u64;

/// How often another may write the word while we try to: each time it did what we wanted, or is up to no good.
const ATTEMPTS: u32 = 8;

/// The word, where it lies in a usage region.
#[derive(Clone, Copy, Debug)]
pub struct TotalWord<'a>(&'a AtomicU64);

impl<'a> TotalWord<'a> {
    /// The word that `word` is.
    pub const fn at(word: &'a AtomicU64) -> Self {
        Self(word)
    }

    /// The sum, if it is known; else it is what `add` finds, and known from now on if nothing changes meanwhile.
    /// `add` looks at the credit words with sequentially consistent loads.
    #[inline]
    pub fn get(self, add: impl FnOnce() -> Units) -> Units {
        let word = self.0.load(SeqCst);
        if word & STATE == KNOWN { sum(word) } else { self.add(word, add) }
    }

    fn add(self, mut word: u64, add: impl FnOnce() -> Units) -> Units {
        // Whoever begins to add up says so first; whoever finds another adding up need not.
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

    /// Says that what is used has changed; to be called after each change, before its maker goes on.
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
                // Another has taken the sum away: who adds up since then has seen our change.
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
    fn a_sum_is_known_until_something_changes() {
        let word = AtomicU64::new(0);
        let total = TotalWord::at(&word);
        assert_eq!(total.get(|| Units::new(7)), Units::new(7));
        assert_eq!(total.get(|| unreachable!("it is known")), Units::new(7));
        total.changed();
        assert_eq!(total.get(|| Units::new(8)), Units::new(8));
    }

    #[test]
    fn a_sum_that_was_overtaken_is_not_kept() {
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
    fn while_nobody_asks_a_change_writes_nothing() {
        let word = AtomicU64::new(0);
        TotalWord::at(&word).changed();
        assert_eq!(word.into_inner(), 0);
    }

    proptest! {
        #[test]
        fn whatever_the_word_a_sum_after_a_change_is_the_one_added_up(start: u64, units: u32) {
            let word = AtomicU64::new(start);
            let total = TotalWord::at(&word);
            total.changed();
            prop_assert_eq!(total.get(|| Units::new(units)), Units::new(units));
        }
    }
}
