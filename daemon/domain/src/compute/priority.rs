//! Priorities of slices and jobs.

use crate::number::number;

number! {
    /// Rank of a slice where several want the GPU, -128 to 127; the higher is first.
    #[derive(Default)]
    Priority(i8), Display
}

impl Priority {
    /// The default, 0.
    pub const DEFAULT: Self = Self(0);
}

/// Error for a number outside the range of priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no priority: -128 to 127 are, the higher goes first, and 0 is the usual one")]
pub struct BadPriority(pub i32);

impl TryFrom<i32> for Priority {
    type Error = BadPriority;

    fn try_from(number: i32) -> Result<Self, BadPriority> {
        i8::try_from(number).map(Self::new).map_err(|_| BadPriority(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_has_a_range_and_an_order() {
        let priority = |number| Priority::try_from(number);
        assert_eq!(priority(0), Ok(Priority::DEFAULT));
        assert!(priority(-128).unwrap() < Priority::DEFAULT && Priority::DEFAULT < priority(127).unwrap());
        for number in [-129, 128, i32::MIN, i32::MAX] {
            assert_eq!(priority(number), Err(BadPriority(number)));
        }
    }
}
