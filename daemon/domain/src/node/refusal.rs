//! Why a node stays as it is.

use core::fmt;

use crate::id::{GpuUuid, SliceName};
use crate::placement::{Ever, Unplaceable};
use crate::units::{Bytes, Permille};

/// Why the node stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It cannot be placed.
    Unplaceable(Unplaceable),
    /// The name is taken.
    Exists(SliceName),
    /// No slice has that name.
    Unknown(SliceName),
    /// The parts of the request contradict each other.
    Contradiction(&'static str),
    /// A ceiling of compute below what is guaranteed.
    LimitBelowRequest {
        /// The ceiling.
        limit: Permille,
        /// What is guaranteed.
        request: Permille,
    },
    /// Whole GPUs are not resized.
    WholeGpus(SliceName),
    /// A job's slice is as large as its job, and ranked as that.
    OfJob(SliceName),
    /// A slice cannot grow so far where it is.
    CannotGrow {
        /// The slice.
        name: SliceName,
        /// The index of its GPU.
        index: u32,
        /// What it would have.
        memory: Bytes,
        /// What it would have of the compute.
        compute: Permille,
        /// The most it could have.
        most_memory: Bytes,
        /// The most it could have of the compute.
        most_compute: Permille,
    },
    /// A slice from before is on a GPU that is not here, or not as large, any more.
    Stranded {
        /// The slice.
        name: SliceName,
        /// Its GPU.
        gpu: GpuUuid,
        /// What is wrong with it.
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
    /// Whether the same request can succeed later without anybody changing it.
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Unplaceable(Unplaceable::NoRoom { ever, .. }) => !matches!(ever, Ever::Never),
            Self::Unplaceable(Unplaceable::Cordoned { .. }) => true,
            _ => false,
        }
    }
}
