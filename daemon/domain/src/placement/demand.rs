//! Demands: a part of a GPU, or whole ones.

use core::fmt;
use core::num::NonZeroU32;

use crate::units::{Bytes, Permille};

/// Memory of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryDemand {
    /// A share of the GPU's capacity.
    Share(Permille),
    /// A number of bytes, rounded down to whole MiB.
    Bytes(Bytes),
}

impl MemoryDemand {
    /// Size on a GPU of this capacity, in whole MiB.
    pub fn on(self, capacity: Bytes) -> Bytes {
        match self {
            Self::Share(share) => capacity.part(share),
            Self::Bytes(bytes) => Bytes::mib(bytes.whole_mib()),
        }
    }
}

/// Compute of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeDemand {
    /// A share of the GPU's compute.
    Share(Permille),
    /// In proportion to the memory, rounded down, at least one permille.
    LikeMemory,
}

impl ComputeDemand {
    /// Compute for a part of `memory` on a GPU of this capacity.
    pub fn on(self, memory: Bytes, capacity: Bytes) -> Permille {
        match self {
            Self::Share(share) => share,
            Self::LikeMemory => proportion(memory, capacity),
        }
    }
}

/// Memory as a fraction of the capacity. Rounded down, so that parts that fit together in memory fit in
/// compute.
fn proportion(memory: Bytes, capacity: Bytes) -> Permille {
    let permille = u128::from(memory.get()) * 1000 / u128::from(capacity.get().max(1));
    let bounded = u32::try_from(permille).unwrap_or(1000).clamp(1, 1000);
    Permille::try_from(bounded).unwrap_or(Permille::WHOLE)
}

/// The object of a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// A part of one GPU.
    Part {
        /// Memory of the part.
        memory: MemoryDemand,
        /// Compute of the part.
        compute: ComputeDemand,
    },
    /// Whole GPUs, each given entirely.
    Whole(NonZeroU32),
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part { memory: MemoryDemand::Share(share), .. } => write!(f, "{share} of a GPU's memory")?,
            Self::Part { memory: MemoryDemand::Bytes(bytes), .. } => {
                write!(f, "{} of a GPU's memory", Bytes::mib(bytes.whole_mib()))?;
            }
            Self::Whole(count) if count.get() == 1 => f.write_str("one whole GPU")?,
            Self::Whole(count) => write!(f, "{count} whole GPUs")?,
        }
        match self {
            Self::Part { compute: ComputeDemand::Share(share), .. } => {
                write!(f, " and {share} of its compute")
            }
            _ => Ok(()),
        }
    }
}
