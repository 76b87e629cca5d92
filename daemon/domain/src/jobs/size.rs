//! Sizes of members: a fraction of one GPU, or whole GPUs.

use core::fmt;
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::amount::MilliGpus;
use crate::request::{Fraction, Share};

/// GPUs that each member takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// A fraction of one GPU.
    Part(Fraction),
    /// Whole GPUs, all on one island.
    Whole(NonZeroU32),
}

impl Size {
    /// Number of GPUs that a member is on.
    pub const fn gpus(self) -> u32 {
        match self {
            Self::Part(_) => 1,
            Self::Whole(count) => count.get(),
        }
    }

    /// Part taken of each GPU.
    pub const fn of_each(self) -> MilliGpus {
        match self {
            Self::Part(fraction) => MilliGpus::new(fraction.permille().get()),
            Self::Whole(_) => MilliGpus::ONE,
        }
    }

    /// Sum over all GPUs.
    pub const fn total(self) -> MilliGpus {
        self.of_each().times(self.gpus())
    }
}

impl From<Size> for Share {
    fn from(size: Size) -> Self {
        match size {
            Size::Part(fraction) => Self::Fraction(fraction),
            Size::Whole(count) => Self::Whole(count),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.total().fmt(f)
    }
}
