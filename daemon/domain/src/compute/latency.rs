//! Latency targets of slices, and counts of their waits.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::compute::time::Nanos;

/// Longest time that a slice within its share should wait for the GPU when it begins to want it.
///
/// 2 ms to 10 s, in whole microseconds: the hardware's time slice is about 2 ms long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Latency(u32);

impl Latency {
    /// The least target, 2 ms. So much is needed for each slice of a GPU that has a target.
    pub const LEAST: Self = Self(2_000);
    /// The greatest target, 10 s.
    pub const MOST: Self = Self(10_000_000);

    /// The target in microseconds.
    pub const fn micros(self) -> u32 {
        self.0
    }

    /// The target as a length of time.
    pub const fn nanos(self) -> Nanos {
        Nanos::micros(self.0 as u64)
    }

    /// The least target that can be held for each of some slices on one GPU, up to [`Latency::MOST`].
    pub fn least_of(slices: usize) -> Self {
        let all = u32::try_from(slices).unwrap_or(u32::MAX).saturating_mul(Self::LEAST.0);
        Self(all.clamp(Self::LEAST.0, Self::MOST.0))
    }
}

impl fmt::Display for Latency {
    /// In milliseconds, with up to three decimals: `5 ms`, `2.5 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", f64::from(self.0) / 1000.0)
    }
}

impl From<Latency> for u32 {
    fn from(latency: Latency) -> Self {
        latency.0
    }
}

impl TryFrom<u32> for Latency {
    type Error = BadLatency;

    fn try_from(micros: u32) -> Result<Self, BadLatency> {
        let latency = Self(micros);
        if (Self::LEAST..=Self::MOST).contains(&latency) { Ok(latency) } else { Err(BadLatency(micros)) }
    }
}

/// Error for a number of microseconds outside the range of latency targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a wait of {0} us is no latency target: 2 ms to 10 s are, as the hardware's own time slices are about 2 ms long"
)]
pub struct BadLatency(pub u32);

/// Counts of the waits of a slice with a latency target, since the daemon began to schedule it.
///
/// A wait lasts from the moment when the slice begins to want the GPU until it may launch. Those that began beyond its share
/// do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waits {
    /// Number of waits, such as took no time included.
    pub count: u64,
    /// Number of those that took longer than the target.
    pub late: u64,
    /// The longest, in microseconds.
    pub longest_us: u64,
}

impl Waits {
    /// Adds a wait, late if it is longer than the target.
    pub(super) fn add(&mut self, wait: Nanos, target: Latency) {
        self.count += 1;
        self.late += u64::from(wait > target.nanos());
        self.longest_us = self.longest_us.max(wait.get() / 1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn target_has_a_range_and_reads_as_milliseconds() {
        assert_eq!(Latency::try_from(5_000).unwrap().to_string(), "5 ms");
        assert_eq!(Latency::try_from(2_500).unwrap().to_string(), "2.5 ms");
        for micros in [0, 1_999, 10_000_001, u32::MAX] {
            assert_eq!(Latency::try_from(micros), Err(BadLatency(micros)));
        }
    }

    #[test]
    fn each_slice_with_a_target_needs_as_much() {
        let least = |slices| Latency::least_of(slices).micros();
        assert_eq!([0, 1, 2, 5, usize::MAX].map(least), [2_000, 2_000, 4_000, 10_000, 10_000_000]);
    }

    #[test]
    fn late_waits_are_counted() {
        let mut waits = Waits::default();
        let target = Latency::try_from(5_000).unwrap();
        for wait in [0, 5_000, 5_001] {
            waits.add(Nanos::micros(wait), target);
        }
        assert_eq!(waits, Waits { count: 3, late: 1, longest_us: 5_001 });
    }
}
