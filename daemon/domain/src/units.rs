//! Quantities of memory and shares. Bare integers are used at the boundaries of the program only.

use core::fmt;

use serde::{Deserialize, Serialize};

/// 1048576 bytes.
pub const MIB: Bytes = Bytes(1 << 20);
/// 1024 MiB.
pub const GIB: Bytes = Bytes(1 << 30);

/// Number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// This number of bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A number of mebibytes, saturating.
    pub const fn mib(mib: u64) -> Self {
        Self(mib.saturating_mul(MIB.0))
    }

    /// The number, for use at the boundaries of the program.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole mebibytes, rounded down.
    pub const fn whole_mib(self) -> u64 {
        self.0 / MIB.0
    }

    /// `self + other`, or `None` on overflow.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// `self - other`, or `None` if `other` is larger.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(rest) => Some(Self(rest)),
            None => None,
        }
    }

    /// Saturating `self + other`.
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// `self - other`, at least zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The part of `self` that `share` names, rounded down to a whole MiB.
    ///
    /// So parts of a GPU never sum to more than the GPU.
    pub fn part(self, share: Permille) -> Self {
        let exact = u128::from(self.0) * u128::from(share.get()) / 1000;
        let bytes = u64::try_from(exact).expect("a part is not larger than its u64 whole");
        Self(bytes - bytes % MIB.0)
    }
}

impl core::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::ZERO, Self::saturating_add)
    }
}

impl fmt::Display for Bytes {
    /// Whole MiB where exact, as nvidia-smi prints memory; bytes otherwise.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(MIB.0) {
            write!(f, "{} MiB", self.whole_mib())
        } else {
            write!(f, "{} bytes", self.0)
        }
    }
}

/// A share of one GPU in thousandths: 0 to 1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Permille(u16);

impl Permille {
    /// A share of no GPU time or memory.
    pub const ZERO: Self = Self(0);
    /// One whole GPU, a thousand thousandths.
    pub const WHOLE: Self = Self(1000);

    /// The number, 0 to 1000.
    pub const fn get(self) -> u32 {
        self.0 as u32
    }

    /// `self + other`, or `None` above the whole.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        Self::try_from(self.get() + other.get()).ok()
    }

    /// `self - other`, at least zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The share that `part` is of `whole`, rounded up so that a part is never zero. A `whole` of zero, or a
    /// larger part, gives the whole.
    pub fn of(part: Bytes, whole: Bytes) -> Self {
        if whole == Bytes::ZERO || part >= whole {
            return Self::WHOLE;
        }
        let share = (u128::from(part.get()) * 1000).div_ceil(u128::from(whole.get()));
        Self(u16::try_from(share).expect("a smaller part over its whole is at most 1000 permille"))
    }
}

/// Error for a share above 1000 permille.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} permille is more than one whole GPU (1000)")]
pub struct AboveWhole(pub u32);

impl TryFrom<u32> for Permille {
    type Error = AboveWhole;

    fn try_from(permille: u32) -> Result<Self, AboveWhole> {
        match u16::try_from(permille) {
            Ok(small) if small <= 1000 => Ok(Self(small)),
            _ => Err(AboveWhole(permille)),
        }
    }
}

impl From<Permille> for u32 {
    fn from(share: Permille) -> Self {
        share.get()
    }
}

impl fmt::Display for Permille {
    /// Percent, with a decimal only where there is one: `50 %`, `33.3 %`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 10 {
            0 => write!(f, "{} %", self.0 / 10),
            tenth => write!(f, "{}.{tenth} %", self.0 / 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn half_of_a_v100_is_16255_mib() {
        let half = Permille::try_from(500).unwrap();
        assert_eq!(Bytes::mib(32510).part(half), Bytes::mib(16255));
    }

    proptest! {
        #[test]
        fn parts_never_sum_to_more_than_the_whole(whole: u64, a in 0u32..=1000) {
            let (whole, a) = (Bytes::new(whole), Permille::try_from(a).unwrap());
            let b = Permille::WHOLE.saturating_sub(a);
            prop_assert!(whole.part(a).checked_add(whole.part(b)).unwrap() <= whole);
        }

        #[test]
        fn share_of_a_part_covers_it(whole in 1u64.., part: u64) {
            let (whole, part) = (Bytes::new(whole), Bytes::new(part % whole));
            let share = Permille::of(part, whole);
            prop_assert!(u128::from(whole.get()) * u128::from(share.get()) >= u128::from(part.get()) * 1000);
        }
    }
}
