//! Moments and lengths of time, in nanoseconds.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A length of time in nanoseconds. Sums and differences stay within 64 bits: they stop at the ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(u64);

impl Nanos {
    /// Zero nanoseconds.
    pub const ZERO: Self = Self(0);
    /// Largest value, about 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// A number of nanoseconds.
    pub const fn new(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A number of microseconds.
    pub const fn micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// A number of milliseconds.
    pub const fn millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Length in nanoseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// `self` times `numerator / denominator`, rounded down; a denominator of zero counts as one.
    pub fn scaled(self, numerator: u64, denominator: u64) -> Self {
        let denominator = denominator.max(1);
        if let Some(product) = self.0.checked_mul(numerator) {
            return Self(product / denominator);
        }
        let exact = u128::from(self.0) * u128::from(numerator) / u128::from(denominator);
        Self(u64::try_from(exact).unwrap_or(u64::MAX))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Self;
    /// Difference, at least zero.
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl core::iter::Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::ZERO, Self::add)
    }
}

impl fmt::Display for Nanos {
    /// In the largest unit that leaves no fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            nanos if nanos.is_multiple_of(1_000_000) => write!(f, "{} ms", nanos / 1_000_000),
            nanos if nanos.is_multiple_of(1_000) => write!(f, "{} us", nanos / 1_000),
            nanos => write!(f, "{nanos} ns"),
        }
    }
}

/// A moment, as nanoseconds of one clock that never goes back (`CLOCK_MONOTONIC`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// Moment by its nanoseconds since the clock's beginning.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's beginning.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// This moment on a clock that is ahead by some nanoseconds.
    pub const fn ahead_by(self, nanos: i64) -> Self {
        Self(self.0.saturating_add_signed(nanos))
    }

    /// Time since `earlier`; zero if that is later.
    pub fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for Instant {
    type Output = Self;
    fn add(self, length: Nanos) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}
