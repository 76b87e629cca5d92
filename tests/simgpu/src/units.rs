//! Quantities that must not be confused with one another.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bytes in one block, the grain in which the simulated driver hands out device memory.
pub const BLOCK_BYTES: u64 = 2 << 20;
const MIB: u64 = 1 << 20;

/// An amount of device memory in blocks of 2 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Blocks(pub u64);

impl Blocks {
    /// No memory, zero blocks.
    pub const ZERO: Self = Self(0);

    /// The fewest blocks that hold a number of bytes.
    pub const fn holding(bytes: u64) -> Self {
        Self(bytes.div_ceil(BLOCK_BYTES))
    }

    /// The fewest blocks that hold a number of MiB.
    pub const fn holding_mib(mib: u64) -> Self {
        Self::holding(mib * MIB)
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0 * BLOCK_BYTES
    }

    /// The size in MiB.
    pub const fn mib(self) -> u64 {
        self.bytes() / MIB
    }

    /// The difference, or nothing where it would be negative.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Blocks {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl std::iter::Sum for Blocks {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB", self.mib())
    }
}

/// Index of a GPU in its node, from 0 as NVML counts. Made by [`crate::Node::gpu`], so it always exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gpu(pub(crate) usize);

impl Gpu {
    /// The index, from 0.
    pub const fn index(self) -> usize {
        self.0
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {}", self.0)
    }
}

/// A moment in nanoseconds of the node's clock (CLOCK_MONOTONIC unless a test injects another).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// A moment that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// Time since another moment; zero if that is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Self;
    fn sub(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)))
    }
}
