//! Reasons for rejecting changes to a node.

use alloc::boxed::Box;
use alloc::string::String;

use crate::compute::Latency;
use crate::cordon::Cordon;
use crate::id::{GpuUuid, SliceName};
use crate::overcommit::Overcommit;
use crate::park::ParkStage;
use crate::placement::{Ever, Unplaceable};
use crate::units::{Bytes, Permille};

/// Reason for rejecting a change to a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request cannot be placed.
    #[error(transparent)]
    Unplaceable(#[from] Unplaceable),
    /// A slice with this name exists.
    #[error("a slice named {0} exists already: choose another name, or delete that one")]
    Exists(SliceName),
    /// No slice with this name exists.
    #[error("there is no slice named {0}; `tranche slice list` shows those there are")]
    Unknown(SliceName),
    /// The parts of the request contradict each other.
    #[error("{0}")]
    Contradiction(&'static str),
    /// The compute limit is below the compute request.
    #[error(
        "a limit of {limit} is below the compute request of {request}, which the slice is guaranteed: raise \
         the limit, or lower the request"
    )]
    LimitBelowRequest {
        /// Limit of the request.
        limit: Permille,
        /// Compute that it would have to reach.
        request: Permille,
    },
    /// A latency target cannot be held beside those of other slices.
    #[error(
        "a latency of {target} cannot be held on GPU {index}: with the {others} slices there that have a \
         latency target, each needs at least {least}, and the least target is {tightest}; ask for more,{} or \
         leave it out",
        if *moves { " name another GPU," } else { "" }
    )]
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
        /// True if the slice is new, and so can be on another GPU.
        moves: bool,
    },
    /// A slice of whole GPUs cannot be resized.
    #[error("slice {0} is made of several whole GPUs, which cannot be resized: delete it and make another")]
    WholeGpus(SliceName),
    /// Size, priority and latency target of a job's slice are those of the job.
    #[error(
        "slice {0} is a job's, which counts against its project as it was submitted, so its size, priority and \
         latency stay as they are: delete the job, and submit it with another -g, --priority or --latency"
    )]
    OfJob(SliceName),
    /// The slice cannot have this size on its GPU.
    #[error(
        "slice {name} cannot have {memory} and {compute} of compute: on GPU {index} it can have at most \
         {most_memory} and {most_compute} of compute; a slice in being never moves to another GPU"
    )]
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
    /// The slice is not on its GPUs, or on its way.
    #[error("slice {name} is {stage}: `tranche slice unpark {name}` brings a parked slice back")]
    Parked {
        /// Name of the slice.
        name: SliceName,
        /// Stage of its absence.
        stage: ParkStage,
    },
    /// The slice is on its GPUs.
    #[error("slice {0} is not parked")]
    NotParked(SliceName),
    /// A job's slice belongs to the quota scheduler.
    #[error(
        "slice {0} is a job's, whose parts of GPUs the quota scheduler gives: `tranche suspend` stops the job"
    )]
    ParkOfJob(SliceName),
    /// The contents of the slice's device memory have no room in host memory.
    #[error(
        "slice {name} cannot be parked: it needs {needed} of host memory, and parked slices have {taken} of {budget} \
         (`park_memory_mib` in the configuration); unpark or delete one of them"
    )]
    NoHostMemory {
        /// Name of the slice.
        name: SliceName,
        /// Host memory for its contents.
        needed: Bytes,
        /// Host memory of parked slices.
        taken: Bytes,
        /// Host memory that parked slices may have together.
        budget: Bytes,
    },
    /// Others have the part of a GPU that a parked slice needs.
    #[error(
        "slice {name} cannot come back: it needs {memory} and {compute} of compute on GPU {index}, where {free} and \
         {free_compute} of compute are free; delete or park others there, or wait with --wait"
    )]
    NoRoomToReturn {
        /// Name of the slice.
        name: SliceName,
        /// NVML index of the GPU.
        index: u32,
        /// Its memory cap there.
        memory: Bytes,
        /// Its compute request there.
        compute: Permille,
        /// Free memory of the GPU.
        free: Bytes,
        /// Free compute of the GPU.
        free_compute: Permille,
    },
    /// A GPU that a parked slice needs is cordoned.
    #[error(
        "slice {name} cannot come back: GPU {index} takes no further slices: it is {cordon}; `tranche gpu uncordon {index}` \
         ends that, or wait with --wait"
    )]
    CordonedToReturn {
        /// Name of the slice.
        name: SliceName,
        /// NVML index of the GPU.
        index: u32,
        /// The cordon in force.
        cordon: Box<Cordon>,
    },
    /// A GPU that a parked slice needs takes no slices.
    #[error("slice {name} cannot come back: GPU {index} takes no slices: {reason}")]
    ObstacleToReturn {
        /// Name of the slice.
        name: SliceName,
        /// NVML index of the GPU.
        index: u32,
        /// Obstacle of the GPU, as a clause.
        reason: String,
    },
    /// No slice rotates on this node.
    #[error(
        "slices of this node do not rotate: `memory_overcommit` in its configuration is 1; leave out --rotate, or have \
         the administrator raise it"
    )]
    NoRotation,
    /// A rotating slice has no place.
    #[error(
        "{why}; with --rotate the caps of a GPU's slices may reach {overcommit} times its memory (`memory_overcommit`), \
         beside what does not rotate"
    )]
    NoRoomToRotate {
        /// Reason for which it cannot be placed.
        why: Unplaceable,
        /// The overcommit of the node.
        overcommit: Overcommit,
    },
    /// A restored slice's GPU is absent, or smaller than before.
    #[error("slice {name} cannot be served: its GPU {gpu} {reason}")]
    Stranded {
        /// Name of the slice.
        name: SliceName,
        /// UUID of its GPU.
        gpu: GpuUuid,
        /// Difference found, to follow the GPU in a message.
        reason: &'static str,
    },
}

impl Refusal {
    /// Tests if the same request can succeed later without a change to it.
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Unplaceable(why) | Self::NoRoomToRotate { why, .. } => match why {
                Unplaceable::NoRoom { ever, .. } => !matches!(ever, Ever::Never),
                Unplaceable::Cordoned { .. } => true,
                _ => false,
            },
            Self::Latency { .. } => true,
            Self::NoRoomToReturn { .. } | Self::CordonedToReturn { .. } => true,
            _ => false,
        }
    }

    /// Tests if the reason is that others have the room.
    pub const fn is_want_of_room(&self) -> bool {
        matches!(
            self,
            Self::Unplaceable(Unplaceable::NoRoom { .. })
                | Self::NoRoomToRotate { why: Unplaceable::NoRoom { .. }, .. }
                | Self::NoRoomToReturn { .. }
        )
    }
}
