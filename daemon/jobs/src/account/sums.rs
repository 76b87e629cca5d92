//! Sums of GPU use over a time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::holder::Holding;

/// GPU time that holders had and used in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UseSum {
    /// Thousandths of a GPU times milliseconds that were held.
    pub allocated: u64,
    /// Of those, held without use for so long that the slice counted as idle.
    pub idle: u64,
    /// Of those, held beyond the project's quota.
    pub borrowed: u64,
    /// GPU time used, in microseconds.
    pub used_us: u64,
    /// Nanoseconds of used time that are no whole microsecond yet.
    used_rest_ns: u64,
    /// Starts of members of jobs.
    pub starts: u64,
    /// Preemptions of members of jobs and of slices.
    pub preemptions: u64,
    /// Number of waits by length.
    waits: BTreeMap<u16, u64>,
}

impl UseSum {
    pub(super) fn add_time(&mut self, holding: Holding, ms: u64) {
        let times = |gpus: tranche_domain::jobs::MilliGpus| u64::from(gpus.get()).saturating_mul(ms);
        self.allocated = self.allocated.saturating_add(times(holding.gpus));
        self.idle = self.idle.saturating_add(times(holding.idle));
        self.borrowed = self.borrowed.saturating_add(times(holding.borrowed));
    }

    pub(super) fn add_use(&mut self, used: Duration) {
        let ns = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX).saturating_add(self.used_rest_ns);
        self.used_us = self.used_us.saturating_add(ns / 1_000);
        self.used_rest_ns = ns % 1_000;
    }

    pub(super) fn add_start(&mut self, wait: Option<Duration>) {
        self.starts += 1;
        if let Some(wait) = wait {
            *self.waits.entry(class(wait)).or_default() += 1;
        }
    }

    /// Adds the amounts of another period or holder.
    pub fn add(&mut self, other: &Self) {
        self.allocated = self.allocated.saturating_add(other.allocated);
        self.idle = self.idle.saturating_add(other.idle);
        self.borrowed = self.borrowed.saturating_add(other.borrowed);
        self.used_us = self.used_us.saturating_add(other.used_us);
        self.add_use(Duration::from_nanos(other.used_rest_ns));
        self.starts = self.starts.saturating_add(other.starts);
        self.preemptions = self.preemptions.saturating_add(other.preemptions);
        for (class, count) in &other.waits {
            let sum = self.waits.entry(*class).or_default();
            *sum = sum.saturating_add(*count);
        }
    }

    /// Number of waits for a first start.
    pub fn waits(&self) -> u64 {
        self.waits.values().sum()
    }

    /// The wait that this part of all waits does not exceed, at most an eighth too long.
    pub fn wait_at(&self, permille: u64) -> Option<Duration> {
        let rank = (self.waits() * permille).div_ceil(1_000).max(1);
        let mut below = 0;
        let mut classes = self.waits.iter();
        let class = classes.find(|(_, count)| {
            below += **count;
            below >= rank
        });
        class.map(|(class, _)| upper(*class))
    }
}

/// Class of a wait: milliseconds to three binary digits, rounded up.
fn class(wait: Duration) -> u16 {
    let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    let mut class = 0;
    while upper(class) < Duration::from_millis(ms) && class < 8 * 60 {
        class += 1;
    }
    class
}

/// Longest wait of a class.
fn upper(class: u16) -> Duration {
    let (octave, eighth) = (u32::from(class / 8), u64::from(class % 8));
    Duration::from_millis(match octave {
        0 => eighth,
        octave => (8 + eighth).checked_shl(octave - 1).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn wait_is_at_most_an_eighth_too_long(ms in 0u64..4_000_000_000) {
            let wait = Duration::from_millis(ms);
            let upper = upper(class(wait));
            prop_assert!(upper >= wait && upper <= wait + wait / 8, "{wait:?} {upper:?}");
        }

        #[test]
        fn sums_do_not_depend_on_the_order(uses in prop::collection::vec(0u64..5_000, 0..40), at in 0usize..40) {
            let all = uses.iter().map(|ns| Duration::from_nanos(*ns));
            let mut one = UseSum::default();
            all.clone().for_each(|used| one.add_use(used));
            let (mut first, mut second) = (UseSum::default(), UseSum::default());
            for (number, used) in all.enumerate() {
                if number < at { first.add_use(used) } else { second.add_use(used) }
            }
            second.add(&first);
            prop_assert_eq!(second, one);
        }
    }

    #[test]
    fn waits_have_a_median() {
        let mut sum = UseSum::default();
        assert_eq!(sum.wait_at(500), None);
        for seconds in [1, 2, 3, 4, 100] {
            sum.add_start(Some(Duration::from_secs(seconds)));
        }
        let near = |permille, seconds: u64| {
            let wait = sum.wait_at(permille).unwrap();
            wait >= Duration::from_secs(seconds) && wait < Duration::from_millis(seconds * 1_125)
        };
        assert!(near(500, 3) && near(950, 100) && near(0, 1));
        assert_eq!(sum.waits(), 5);
    }
}
