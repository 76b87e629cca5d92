//! Observations of one moment, before evaluation.

use alloc::string::String;
use alloc::vec::Vec;

use crate::id::{GpuUuid, SliceName};
use crate::slice::ProcessId;
use crate::units::{Bytes, Permille};

/// The node at about one instant, from driver, kernel and ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedNode {
    /// GPUs with their processes.
    pub gpus: Vec<OnGpu>,
    /// Tampering found in usage regions since the last picture.
    pub found: Vec<InvalidValue>,
}

/// Observations of one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnGpu {
    /// UUID of the GPU.
    pub gpu: GpuUuid,
    /// Processes on the GPU, from the driver.
    pub users: Vec<GpuUser>,
    /// Slices with a part of the GPU.
    pub slices: Vec<Served>,
}

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuUser {
    /// Pid and start time.
    pub id: ProcessId,
    /// Command, as far as readable.
    pub command: String,
    /// Memory held, if the driver reports it.
    pub holds: Option<Bytes>,
    /// Slice that it belongs to, if any.
    pub whose: Whose,
}

/// Owner of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// A slice that the process is attached to.
    Member {
        /// Name of the slice.
        slice: SliceName,
        /// Charges of the process and its slice.
        charged: Charged,
    },
    /// A slice whose descendant or container process it is, without being attached.
    Relative {
        /// Name of the slice.
        slice: SliceName,
    },
    /// A process outside all slices.
    Nobody,
}

/// Charges of a process on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// Charge in its own usage word: the maximum while the driver was read.
    pub used: Bytes,
    /// Grant in the ledger.
    pub granted: Bytes,
    /// Shared charge of its slice, which the driver may count for any of the holders.
    pub shared: Bytes,
    /// Charge to its slice for memory that only the driver showed.
    pub beyond: Bytes,
    /// Context reserve: the tolerance for the driver's own memory.
    pub reserve: Bytes,
}

/// Observations of a slice on one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Name of the slice.
    pub slice: SliceName,
    /// Fraction of time with kernels running, from the driver; `None` without new samples.
    pub busy: Option<Permille>,
    /// Fraction of time with kernels or memory traffic, from the driver; `None` without new samples.
    pub worked: Option<Permille>,
    /// Fraction of time with memory traffic, from the driver.
    ///
    /// Zero if copies and fills are counted as GPU time.
    pub moved: Permille,
    /// Fraction of time charged to the slice.
    pub counted: Permille,
    /// Fraction of time in which other slices waited for it.
    pub kept: Permille,
    /// The process with the most GPU time.
    pub busiest: Option<ProcessId>,
}

/// A value in a usage region that the library never writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidValue {
    /// Slice of the region.
    pub slice: SliceName,
    /// Process that owns the slot. Any process of the slice may have written the value.
    pub who: Option<ProcessId>,
    /// Contradiction between record and ledger.
    pub what: Deceit,
}

/// Kinds of tampering with a usage region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deceit {
    /// A credit word exceeds the grant.
    Credit {
        /// Part of the credit word above the grant.
        beyond: Bytes,
    },
    /// The recorded use exceeds the grant, which the library prevents with each charge.
    Use {
        /// Use in its record.
        used: Bytes,
        /// Credit granted by the ledger.
        granted: Bytes,
    },
    /// The header was overwritten.
    Header,
    /// A timestamp is in the future.
    Time,
}
