//! Terms of slices, observations of them, and leases.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::compute::latency::Latency;
use crate::compute::priority::Priority;
use crate::compute::time::{Instant, Nanos};
use crate::id::{GpuUuid, SliceName};
use crate::units::Permille;
use crate::word::{is_label, named, word};

named! {
    /// Bound on a slice's compute.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum ComputeMode {
        /// At least the request; idle time is shared.
        #[default]
        Fair = "fair",
        /// Exactly the request at most.
        Strict = "strict",
        /// Time that no other slice uses.
        BestEffort = "best-effort",
    }
}

/// Compute terms of a slice on each of its GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputeTerms {
    /// Its GPUs, sorted and each once. It may run on all of them or on none.
    pub gpus: Vec<GpuUuid>,
    /// Part of each that it gets whenever it has work; also its weight where idle time is shared. Zero is best effort.
    pub request: Permille,
    /// Part of each that it never exceeds.
    pub limit: Permille,
    /// Rank before shares are compared.
    pub priority: Priority,
    /// Launches are held until it is thawed.
    pub frozen: bool,
    /// Longest wait for the GPU that it should have while it is within its share, if any.
    pub latency: Option<Latency>,
    /// The gang that it belongs to, if any: its slices have their turns at the same time.
    pub gang: Option<Gang>,
}

word! {
    /// Name of a gang: 1 to 63 of `a-z 0-9 -`, beginning and ending with a letter or digit.
    GangName,
    "the name of a gang",
    "1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit",
    is_label
}

/// A set of slices whose programs wait for each other, such as the ranks of one job.
///
/// A slice joins only gangs of its owner, so that no tenant has its turns with another's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gang {
    /// Uid of the owner of all its slices.
    pub owner_uid: u32,
    /// Name among the owner's gangs.
    pub name: GangName,
}

impl ComputeTerms {
    /// The terms of a mode as users name it.
    pub fn of_mode(mode: ComputeMode, gpus: Vec<GpuUuid>, request: Permille) -> Self {
        let (request, limit) = match mode {
            ComputeMode::Fair => (request, Permille::WHOLE),
            ComputeMode::Strict => (request, request),
            ComputeMode::BestEffort => (Permille::ZERO, Permille::WHOLE),
        };
        Self { gpus, request, limit, priority: Priority::DEFAULT, frozen: false, latency: None, gang: None }
    }
}

/// An observation of a slice: sums over its processes, which they wrote themselves.
///
/// A false value may harm that slice alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// For each GPU of its terms the time during which it had work outstanding there, since it began.
    pub busy: Vec<Nanos>,
    /// GPU time that it has submitted and that is not known to be done, estimated. Zero means that it is idle: work of
    /// unknown length counts a nanosecond at least.
    pub outstanding: Nanos,
    /// Its record has work outstanding. Without a wait for its end the record has it for longer than it lasts.
    pub claims_work: bool,
    /// A thread of it waits at the gate, for a turn or for room.
    ///
    /// Before it waits it marks the end of its earlier launches, so that this becomes known.
    pub waiting: bool,
    /// Processes with work outstanding, on the GPU where they are most. The hardware gives each as much time as any other.
    pub contexts: u32,
    /// In the records of all processes with work, the last launches were in one stream each.
    pub in_order: bool,
    /// Typical length of one launch; zero if it is not known yet.
    ///
    /// The gate then lets no more than the lease's least through at a time.
    pub kernel: Nanos,
    /// Longest launch of the last ones, which older ones leave slowly.
    pub longest: Nanos,
    /// Number that differs after each launch and each known end of one, such as the sum of both counts.
    pub progress: u64,
}

/// Permission of a slice to launch, until the next lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseDecision {
    /// It may launch, within its depth.
    pub open: bool,
    /// Outstanding GPU time up to which it launches.
    ///
    /// Its processes mark the end of their work often enough to know when there is room again.
    pub depth: Nanos,
    /// Launches that it may have outstanding however long they take, 1 to 15.
    pub least: u8,
    /// It signals when it becomes busy and when it becomes idle, too. It always signals when it begins to wait.
    pub bell: bool,
    /// It is closed by an operator, and no time limit opens it.
    pub frozen: bool,
}

/// Announced successor of a closed lease, unless another decision comes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextLease {
    /// An open one holds from that time on without another decision.
    ///
    /// A closed one means that an opening is likely about then.
    pub lease: LeaseDecision,
    /// Time of its beginning.
    pub at: Instant,
}

/// Result of one decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Leases that change or came into force by themselves, each slice at most once. Those that close come first.
    pub leases: Vec<(SliceName, LeaseDecision)>,
    /// Announcements that change, each slice at most once; `None` takes one back.
    pub next: Vec<(SliceName, Option<NextLease>)>,
    /// Time of the next decision without an event before; `None` if only an event can change it.
    pub look_again: Option<Instant>,
}

/// Length over which a use is averaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// One second until now.
    Second,
    /// One minute until now.
    Minute,
}

/// State of a slice with the reason for which it does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The lease is open.
    Running,
    /// No work outstanding and no thread at the gate.
    NoWork,
    /// It used more of its share than the one that has the GPU.
    OverShare {
        /// Slice that has the GPU.
        holder: SliceName,
    },
    /// It used its limit.
    LimitReached,
    /// Launches are held by an operator.
    Frozen,
    /// One of a higher priority has the GPU.
    BehindPriority {
        /// Slice of the higher priority.
        slice: SliceName,
    },
}
