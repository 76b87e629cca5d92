//! What a look finds, before anything is made of it.

use alloc::string::String;
use alloc::vec::Vec;

use crate::id::{GpuUuid, SliceName};
use crate::slice::ProcessId;
use crate::units::{Bytes, Permille};

/// The node as the driver, the kernel and the ledger see it at about one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    /// The GPUs that were looked at.
    pub gpus: Vec<OnGpu>,
    /// What was found in the pages that tenants write, since the last look.
    pub found: Vec<Found>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnGpu {
    /// Which.
    pub gpu: GpuUuid,
    /// Who uses it, as the driver says.
    pub users: Vec<User>,
    /// The slices that have a part of it.
    pub slices: Vec<Served>,
}

/// A process that uses a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Who.
    pub id: ProcessId,
    /// What it runs, as far as that can be read.
    pub command: String,
    /// What it holds, where the driver tells.
    pub holds: Option<Bytes>,
    /// To whom it belongs.
    pub whose: Whose,
}

/// To whom a process belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// It joined a slice.
    Member {
        /// Which.
        slice: SliceName,
        /// What it is charged.
        charged: Charged,
    },
    /// It descends from a slice's processes, or is in the slice's container, and has not joined.
    Relative {
        /// Which.
        slice: SliceName,
    },
    /// To no slice.
    Nobody,
}

/// What a process is charged on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// By its own word, at the most while the driver was asked.
    pub used: Bytes,
    /// What it was granted, by the ledger.
    pub granted: Bytes,
    /// What its slice is charged for together: the driver may count that with any of those who hold it.
    pub shared: Bytes,
    /// What is charged to its slice beside that, because the driver was seen to hold it.
    pub beyond: Bytes,
    /// What is charged for a context: so much more or less the driver may take.
    pub reserve: Bytes,
}

/// A slice's part of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Which slice.
    pub slice: SliceName,
    /// For which part of the time its processes ran on the GPU, as the driver says; nothing where it says nothing new.
    pub busy: Option<Permille>,
    /// For which part of the time they ran there, or read or wrote its memory. Nothing where the driver says nothing new.
    pub worked: Option<Permille>,
    /// For which part of the time they read or wrote memory, as the driver says, where copies and fills are not counted.
    /// Nothing where they are.
    pub moved: Permille,
    /// Which part of the time was counted for the slice.
    pub counted: Permille,
    /// For which part of the time others waited because of it.
    pub kept: Permille,
    /// Whoever ran most.
    pub busiest: Option<ProcessId>,
}

/// Something that no honest process writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// In the pages of which slice.
    pub slice: SliceName,
    /// In whose part of them. Any process of the slice may have written there.
    pub who: Option<ProcessId>,
    /// What.
    pub what: Deceit,
}

/// Ways to deceive us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deceit {
    /// A word claims more credit than was granted.
    Credit {
        /// So much more.
        beyond: Bytes,
    },
    /// A word says that more is used than was granted, which every charge makes sure of.
    Use {
        /// What it says.
        used: Bytes,
        /// What was granted.
        granted: Bytes,
    },
    /// The header was overwritten.
    Header,
    /// A time lies in the future.
    Time,
}
