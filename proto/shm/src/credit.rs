//! The credit word: device memory that a process may take without a message, and has taken.
//!
//! One word per process and device, `granted:31 | turn:1 | used:32` in 4 KiB units. The process moves `used`, the
//! daemon moves `granted`, each by compare-and-swap on the whole word, so neither can overtake the other: a charge
//! that began before a recall fails and loads the word again. Nothing else is shared, hence a process can die at any
//! instruction and leave nothing half-written. What the daemon granted is in its own ledger; the word is only
//! where the process reads it.
//!
//! A daemon can die at any instruction, too. Its successor reads grants and recalls from the word itself. A hand-over of
//! a charge leaves no such trace, so it flips the bit in the middle in the same step.

use core::fmt;
use core::sync::atomic::Ordering::SeqCst;

use crate::total::TotalWord;
use crate::word::AtomicU64;

pub use crate::units::{UNIT_BYTES, Units};

/// The parts of a credit word, read at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// Memory that the process may hold, at most [`Credit::MOST`]; the daemon writes it.
    pub granted: Units,
    /// Memory that the process holds, as the process reports it.
    pub used: Units,
    /// Flips with each hand-over and with nothing else, until [`CreditWord::reset`].
    pub turn: bool,
}

impl Credit {
    /// Largest grant that the word's 31 bits hold: 8 TiB less 4 KiB.
    pub const MOST: Units = Units::new(u32::MAX >> 1);

    /// Granted and not used; zero if a process claims to use more than its grant.
    pub const fn unused(self) -> Units {
        self.granted.saturating_sub(self.used)
    }

    const fn unpack(word: u64) -> Self {
        Self {
            granted: Units::new((word >> 33) as u32),
            used: Units::new(word as u32),
            turn: word >> 32 & 1 == 1,
        }
    }

    const fn pack(self) -> u64 {
        (self.granted.get() as u64) << 33 | (self.turn as u64) << 32 | self.used.get() as u64
    }
}

/// A charge that exceeds the unused credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short(
    /// The credit at the instant of refusal.
    pub Credit,
);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} units of credit are in use", self.0.used.get(), self.0.granted.get())
    }
}

/// A credit word in a usage region, with the device's total, which each change of `used` invalidates.
#[derive(Clone, Copy, Debug)]
pub struct CreditWord<'a>(&'a AtomicU64, TotalWord<'a>);

impl<'a> CreditWord<'a> {
    /// The credit word stored in `word`, and the total of its device.
    pub const fn at(word: &'a AtomicU64, total: TotalWord<'a>) -> Self {
        Self(word, total)
    }

    /// All parts of the word at one instant.
    pub fn load(self) -> Credit {
        Credit::unpack(self.0.load(SeqCst))
    }

    /// Adds `units` to `used` if the grant covers them; called by the process.
    pub fn charge(self, units: Units) -> Result<(), Short> {
        self.change(|credit| {
            let used = credit.used.checked_add(units).filter(|used| *used <= credit.granted);
            used.map(|used| Credit { used, ..credit })
        })
        .map(|_| self.1.changed())
        .map_err(Short)
    }

    /// Subtracts `units` from `used` and keeps the grant; called by the process.
    #[inline(always)]
    pub fn release(self, units: Units) {
        let less = |credit: Credit| Credit { used: credit.used.saturating_sub(units), ..credit };
        let _ = self.change(|credit| Some(less(credit)));
        self.1.changed();
    }

    /// Subtracts `units` from `used` and from the grant; called by a process whose slice is over its cap.
    pub fn release_with_credit(self, units: Units) {
        let _ = self.change(|credit| {
            let used = credit.used.saturating_sub(units);
            Some(Credit { used, granted: credit.granted.saturating_sub(units).max(used), ..credit })
        });
        self.1.changed();
    }

    /// Adds up to `units` to the grant and returns how much was added; called by the daemon.
    ///
    /// Less than `units` only where the grant reaches [`Credit::MOST`], and zero where the process rewrites the word all
    /// the time.
    pub fn grant(self, units: Units) -> Units {
        let mut given = Units::ZERO;
        let done = self.change_against(DAEMON_ATTEMPTS, |credit| {
            let granted = credit.granted.saturating_add(units).min(Credit::MOST);
            given = granted.saturating_sub(credit.granted);
            Credit { granted, ..credit }
        });
        if done { given } else { Units::ZERO }
    }

    /// Takes up to `most` of the unused grant back and returns how much; called by the daemon.
    ///
    /// Zero also where the process rewrites the word all the time.
    pub fn recall(self, most: Units) -> Units {
        let mut got = Units::ZERO;
        let done = self.change_against(DAEMON_ATTEMPTS, |credit| {
            got = credit.unused().min(most);
            Credit { granted: credit.granted.saturating_sub(got), ..credit }
        });
        if done { got } else { Units::ZERO }
    }

    /// Lowers `used` and the grant to at most `most`; called by the daemon for a process that has ended.
    pub fn lower(self, most: Units) {
        let _ = self.change(|credit| {
            Some(Credit { granted: credit.granted.min(most), used: credit.used.min(most), ..credit })
        });
        self.1.changed();
    }

    /// Moves a charge of `units` from the process to the daemon.
    ///
    /// Both `used` and the grant shrink, and `turn` flips. Called by the daemon. Returns false, and changes nothing, if `used` or the grant is below `units`.
    pub fn hand_over(self, units: Units) -> bool {
        let less = |credit: Credit| {
            let both =
                (credit.used.get().checked_sub(units.get()), credit.granted.get().checked_sub(units.get()));
            let (Some(used), Some(granted)) = both else { return None };
            Some(Credit { used: Units::new(used), granted: Units::new(granted), turn: !credit.turn })
        };
        let done = self.change(less).is_ok();
        self.1.changed();
        done
    }

    /// Invalidates the total, in place of a daemon that may have died between a change and this step.
    pub fn may_have_changed(self) {
        self.1.changed();
    }

    /// Overwrites the word; called by the daemon for a process that begins or has ended.
    pub fn reset(self, credit: Credit) {
        self.0.store(credit.pack(), SeqCst);
        self.1.changed();
    }

    /// Replaces the word by the result of `next`, repeated until no other write comes between.
    ///
    /// Returns the credit before the change; `Err` holds the credit for which `next` returned `None`.
    #[inline(always)]
    fn change(self, mut next: impl FnMut(Credit) -> Option<Credit>) -> Result<Credit, Credit> {
        let mut word = self.0.load(SeqCst);
        loop {
            let credit = Credit::unpack(word);
            let after = next(credit).ok_or(credit)?;
            match self.0.compare_exchange(word, after.pack(), SeqCst, SeqCst) {
                Ok(_) => return Ok(credit),
                Err(other) => word = other,
            }
        }
    }

    /// Replaces the word in at most `attempts` steps, because the process may rewrite it without end.
    ///
    /// Returns true if it was replaced.
    fn change_against(self, attempts: u32, mut next: impl FnMut(Credit) -> Credit) -> bool {
        let mut word = self.0.load(SeqCst);
        for _ in 0..attempts {
            match self.0.compare_exchange(word, next(Credit::unpack(word)).pack(), SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(other) => word = other,
            }
        }
        false
    }
}

/// Attempts of the daemon to change a word that its process keeps changing.
///
/// A process that charges and releases as fast as it can wins this race a few times in a row; only a loop of bare
/// writes wins it 10,000 times.
const DAEMON_ATTEMPTS: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn charge_beyond_grant_is_refused_without_a_change() {
        let word = AtomicU64::new(0);
        let total = AtomicU64::new(0);
        let credit = CreditWord::at(&word, TotalWord::at(&total));
        credit.grant(Units::new(10));
        assert_eq!(credit.charge(Units::new(10)), Ok(()));
        let before = credit.load();
        assert_eq!(credit.charge(Units::new(1)), Err(Short(before)));
        assert_eq!(credit.charge(Units::MAX), Err(Short(before)));
        assert_eq!(credit.load(), before);
    }

    proptest! {
        #[test]
        fn used_never_exceeds_granted_in_any_order(steps: std::vec::Vec<(u8, u32)>) {
            let word = AtomicU64::new(0);
            let total = AtomicU64::new(0);
            let credit = CreditWord::at(&word, TotalWord::at(&total));
            for (step, amount) in steps {
                let units = Units::new(amount % 1000);
                let before = credit.load();
                let mut handed_over = false;
                match step % 6 {
                    0 => drop(credit.grant(units)),
                    1 => drop(credit.charge(units)),
                    2 => credit.release(units),
                    3 => credit.release_with_credit(units),
                    4 => handed_over = credit.hand_over(units),
                    _ => drop(credit.recall(units)),
                }
                let now = credit.load();
                prop_assert!(now.used <= now.granted);
                prop_assert_eq!(now.turn != before.turn, handed_over, "it turns with hand-overs alone");
            }
        }

        #[test]
        fn credit_survives_pack_and_unpack(granted in 0..=Credit::MOST.get(), used: u32, turn: bool) {
            let credit = Credit { granted: Units::new(granted), used: Units::new(used), turn };
            prop_assert_eq!(Credit::unpack(credit.pack()), credit);
        }

        #[test]
        fn grant_on_any_word_stays_within_its_bits(start: u64, more: u32) {
            let (word, total) = (AtomicU64::new(start), AtomicU64::new(0));
            let credit = CreditWord::at(&word, TotalWord::at(&total));
            let before = credit.load();
            let given = credit.grant(Units::new(more));
            prop_assert_eq!(credit.load().granted, before.granted.saturating_add(given));
            prop_assert_eq!(credit.load().turn, before.turn);
        }

        #[test]
        fn recall_leaves_used_credit(
            granted in 0..=Credit::MOST.get(),
            used: u32,
            turn: bool,
            most: u32,
        ) {
            let word = AtomicU64::new(0);
            let total = AtomicU64::new(0);
            let credit = CreditWord::at(&word, TotalWord::at(&total));
            let used = used.min(granted);
            credit.reset(Credit { granted: Units::new(granted), used: Units::new(used), turn });
            let got = credit.recall(Units::new(most));
            let now = credit.load();
            prop_assert_eq!(now.used, Units::new(used));
            prop_assert_eq!(now.granted.saturating_add(got), Units::new(granted));
        }
    }
}
