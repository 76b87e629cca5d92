//! Priorities of slices and jobs.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Rank of a slice where several want the GPU, -128 to 127; the higher is first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(i8);

impl Priority {
    /// The default, 0.
    pub const DEFAULT: Self = Self(0);

    /// A priority; any number from -128 to 127.
    pub const fn new(priority: i8) -> Self {
        Self(priority)
    }

    /// The priority as a number.
    pub const fn get(self) -> i8 {
        self.0
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Error for a number outside the range of priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPriority(pub i32);

impl fmt::Display for BadPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no priority: -128 to 127 are, the higher goes first, and 0 is the usual one", self.0)
    }
}

impl core::error::Error for BadPriority {}

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
