//! Memory that the slices of a GPU may promise together, where they rotate.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// Multiple of a GPU's memory that the caps of its slices may reach, 1 to 16, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Overcommit(u32);

impl Overcommit {
    /// The memory of the GPU once: no slice rotates.
    pub const NONE: Self = Self(1_000);
    /// Largest multiple, in thousandths.
    const MOST: u32 = 16_000;

    /// Largest sum of caps on a GPU with this memory.
    pub fn of(self, capacity: Bytes) -> Bytes {
        let sum = u128::from(capacity.get()) * u128::from(self.0) / 1_000;
        Bytes::new(u64::try_from(sum).unwrap_or(u64::MAX))
    }
}

impl Default for Overcommit {
    fn default() -> Self {
        Self::NONE
    }
}

impl From<Overcommit> for f64 {
    fn from(overcommit: Overcommit) -> Self {
        Self::from(overcommit.0) / 1_000.0
    }
}

impl TryFrom<f64> for Overcommit {
    type Error = BadOvercommit;

    fn try_from(multiple: f64) -> Result<Self, BadOvercommit> {
        let thousandths = multiple * 1_000.0;
        let is_one = (f64::from(Self::NONE.0)..=f64::from(Self::MOST)).contains(&thousandths);
        // In range, so the cast neither saturates nor loses a sign.
        let rounded = (thousandths + 0.5) as u32;
        if is_one && (thousandths - f64::from(rounded)).abs() < 1e-6 {
            Ok(Self(rounded))
        } else {
            Err(BadOvercommit(multiple))
        }
    }
}

impl fmt::Display for Overcommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f64::from(*self).fmt(f)
    }
}

/// Error for a number that is no [`Overcommit`].
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the caps of a GPU's slices may reach 1 to 16 times its memory, in steps of 0.001, not {0} times")]
pub struct BadOvercommit(pub f64);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn overcommit_is_a_multiple_in_thousandths() {
        for (multiple, is_one) in [
            (1.0, true),
            (1.5, true),
            (2.345, true),
            (16.0, true),
            (0.999, false),
            (16.001, false),
            (1.0005, false),
            (-1.0, false),
            (f64::NAN, false),
            (f64::INFINITY, false),
        ] {
            assert_eq!(Overcommit::try_from(multiple).is_ok(), is_one, "{multiple}");
        }
        let overcommit = Overcommit::try_from(1.5).unwrap();
        assert_eq!(
            (overcommit.of(Bytes::mib(1000)), overcommit.to_string()),
            (Bytes::mib(1500), "1.5".into())
        );
        assert_eq!(Overcommit::try_from(16.0).unwrap().of(Bytes::new(u64::MAX)), Bytes::new(u64::MAX));
    }
}
