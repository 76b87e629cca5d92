//! Reasons for rejecting changes to a node.

use core::fmt;

use crate::compute::Latency;
use crate::id::{GpuUuid, SliceName};
use crate::placement::{Ever, Unplaceable};
use crate::units::{Bytes, Permille};

/// Reason for rejecting a change to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request cannot be placed.
    Unplaceable(Unplaceable),
    /// A slice with this name exists.
    Exists(SliceName),
    /// No slice with this name exists.
    Unknown(SliceName),
    /// The parts of the request contradict each other.
    Contradiction(&'static str),
    /// The compute limit is below the compute request.
    LimitBelowRequest {
        /// Limit of the request.
        limit: Permille,
        /// Compute that it would have to reach.
        request: Permille,
    },
    /// A latency target cannot be held beside those of other slices.
    Latency {
        /// NVML index of the GPU.
        index: u32,
        /// Target of the request.
        target: Latency,
        /// Number of slices with targets there.
        others: usize,
        /// The least of all targets.
        tightest: Latency,
        /// The least target that each could have.
        least: Latency,
    },
    /// A slice of whole GPUs cannot be resized.
    WholeGpus(SliceName),
    /// Size and priority of a job's slice are those of the job.
    OfJob(SliceName),
    /// The slice cannot have this size on its GPU.
    CannotGrow {
        /// Name of the slice.
        name: SliceName,
        /// NVML index of its GPU.
        index: u32,
        /// Memory on each GPU.
        memory: Bytes,
        /// Compute on each GPU.
        compute: Permille,
        /// Maximum memory on this GPU.
        most_memory: Bytes,
        /// Maximum compute on this GPU.
        most_compute: Permille,
    },
    /// A restored slice's GPU is absent, or smaller than before.
    Stranded {
        /// Name of the slice.
        name: SliceName,
        /// UUID of its GPU.
        gpu: GpuUuid,
        /// Difference found, to follow the GPU in a message.
        reason: &'static str,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unplaceable(why) => why.fmt(f),
            Self::Exists(name) => {
                write!(f, "a slice named {name} exists already: choose another name, or delete that one")
            }
            Self::Unknown(name) => {
                write!(f, "there is no slice named {name}; `tranche slice list` shows those there are")
            }
            Self::Contradiction(why) => f.write_str(why),
            Self::LimitBelowRequest { limit, request } => write!(
                f,
                "a limit of {limit} is below the compute request of {request}, which the slice is guaranteed: \
                 raise the limit, or lower the request"
            ),
            Self::Latency { index, target, others, tightest, least } => write!(
                f,
                "a latency of {target} cannot be held on GPU {index}: with the {others} slices there that have a latency target, \
                 each needs at least {least}, and the least target is {tightest}; ask for more, name another GPU, or leave it out"
            ),
            Self::WholeGpus(name) => write!(
                f,
                "slice {name} is made of several whole GPUs, which cannot be resized: delete it and make another"
            ),
            Self::OfJob(name) => write!(
                f,
                "slice {name} is a job's, which counts against its project as it was submitted, so its size and priority stay \
                 as they are: delete the job, and submit it with another -g or --priority"
            ),
            Self::CannotGrow { name, index, memory, compute, most_memory, most_compute } => write!(
                f,
                "slice {name} cannot have {memory} and {compute} of compute: on GPU {index} it can have at most \
                 {most_memory} and {most_compute} of compute; a slice in being never moves to another GPU"
            ),
            Self::Stranded { name, gpu, reason } => {
                write!(f, "slice {name} cannot be served: its GPU {gpu} {reason}")
            }
        }
    }
}

impl core::error::Error for Refusal {}

impl From<Unplaceable> for Refusal {
    fn from(why: Unplaceable) -> Self {
        Self::Unplaceable(why)
    }
}

impl Refusal {
    /// Tests if the same request can succeed later without a change to it.
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Unplaceable(Unplaceable::NoRoom { ever, .. }) => !matches!(ever, Ever::Never),
            Self::Unplaceable(Unplaceable::Cordoned { .. }) | Self::Latency { .. } => true,
            _ => false,
        }
    }
}
