//! Workloads of tenants on a GPU.

use crate::chance::Chance;
use crate::lies::Lies;

/// Distribution of the lengths of kernels or gaps, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub enum Lengths {
    /// One length for all, in nanoseconds.
    Fixed(u64),
    /// Any length between the two, each equally likely.
    Uniform(u64, u64),
    /// Any length between the two, each doubling as likely as the next.
    LogUniform(u64, u64),
}

impl Lengths {
    /// Draws one length in nanoseconds.
    pub fn draw(self, chance: &mut Chance) -> u64 {
        match self {
            Self::Fixed(length) => length,
            Self::Uniform(low, high) => chance.between(low, high),
            Self::LogUniform(low, high) => {
                let part = chance.between(0, 1 << 20) as f64 / f64::from(1 << 20);
                (low as f64 * (high as f64 / low as f64).powf(part)) as u64
            }
        }
    }
}

/// Workload of one thread of a tenant.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Launches without end, with at most `ahead` launches queued before the GPU.
    Saturating {
        /// Lengths of its kernels when alone on the GPU.
        kernels: Lengths,
        /// Launches that its driver's queue takes.
        ahead: u32,
    },
    /// Launches a few, waits for them, does something on the host, and again.
    Rounds {
        /// Lengths of its kernels when alone on the GPU.
        kernels: Lengths,
        /// Launches of a round.
        batch: u32,
        /// Time on the host between rounds.
        gap: Lengths,
    },
    /// Launches a few on each of its devices, then a collective there, waits for all of it, and again.
    Collective {
        /// Lengths of its kernels when alone on the GPU.
        kernels: Lengths,
        /// Kernels of a step.
        batch: u32,
        /// Length of the collective once all of its group have arrived. Until then it keeps the GPU.
        together: u64,
        /// Number of the group that must arrive.
        group: u64,
    },
    /// Launches nothing, and writes what it likes into the record of its process.
    Lying(Lies),
}

impl Load {
    /// Keeps 16 kernels of one length queued.
    pub const fn saturating(length: u64) -> Self {
        Self::Saturating { kernels: Lengths::Fixed(length), ahead: 16 }
    }

    /// Lengths of its kernels when alone on the GPU.
    pub const fn kernels(self) -> Lengths {
        match self {
            Self::Saturating { kernels, .. }
            | Self::Rounds { kernels, .. }
            | Self::Collective { kernels, .. } => kernels,
            Self::Lying(_) => Lengths::Fixed(0),
        }
    }

    /// The group whose collectives it launches.
    pub(crate) const fn group(self) -> Option<u64> {
        match self {
            Self::Collective { group, .. } => Some(group),
            _ => None,
        }
    }

    /// Waits for every kernel, then thinks.
    pub const fn synchronous(length: u64, gap: u64) -> Self {
        Self::Rounds { kernels: Lengths::Fixed(length), batch: 1, gap: Lengths::Fixed(gap) }
    }
}
