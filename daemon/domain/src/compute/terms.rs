//! What a slice is promised, what is seen of it, and what it may do.

use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::compute::time::{Instant, Nanos};
use crate::id::{GpuUuid, SliceName};
use crate::request::ComputeMode;
use crate::units::Permille;
use crate::word::{is_label, word};

/// Which slice goes first where several want the GPU: the higher. Most have the default, 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(i8);

impl Priority {
    /// Before nobody and behind nobody of the default.
    pub const DEFAULT: Self = Self(0);

    /// A priority; any number from -128 to 127.
    pub const fn new(priority: i8) -> Self {
        Self(priority)
    }

    /// The plain number.
    pub const fn get(self) -> i8 {
        self.0
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a slice is promised of the time of each of its GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Its GPUs, sorted and each once. It may run on all of them or on none.
    pub gpus: Vec<GpuUuid>,
    /// What it gets of each whenever it has work; also its weight where idle time is shared. Zero: best effort.
    pub request: Permille,
    /// What it never exceeds.
    pub limit: Permille,
    /// Who goes first.
    pub priority: Priority,
    /// It may not launch at all until it is thawed.
    pub frozen: bool,
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

impl Terms {
    /// The terms of a mode as users name it.
    pub fn of_mode(mode: ComputeMode, gpus: Vec<GpuUuid>, request: Permille) -> Self {
        let (request, limit) = match mode {
            ComputeMode::Fair => (request, Permille::WHOLE),
            ComputeMode::Strict => (request, request),
            ComputeMode::BestEffort => (Permille::ZERO, Permille::WHOLE),
        };
        Self { gpus, request, limit, priority: Priority::DEFAULT, frozen: false, gang: None }
    }
}

/// What is seen of a slice: sums over its processes, which they wrote themselves. Nothing here is believed further
/// than it harms the slice alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// For each GPU of its terms the time during which it had work outstanding there, since it began.
    pub busy: Vec<Nanos>,
    /// GPU time that it has submitted and that is not known to be done, estimated. Zero means that it is idle: work of
    /// unknown length counts a nanosecond at least.
    pub outstanding: Nanos,
    /// Whether it says itself that it has work outstanding. One that never waits for its work says so for longer than it
    /// has any.
    pub claims_work: bool,
    /// Whether a thread of it waits at the gate, be it for its turn or because too much is outstanding. Whoever waits
    /// there has marked the end of what it launched before, so that this becomes known.
    pub waiting: bool,
    /// What one launch of it typically takes; zero if that is not known yet, and then the gate lets no more than the
    /// lease's least through at a time.
    pub kernel: Nanos,
    /// The longest launch seen lately.
    pub longest: Nanos,
    /// Any number that differs whenever a launch was submitted or became known to be done since the last time, such as
    /// the sum of both counts.
    pub progress: u64,
}

/// What a slice may do until it is told otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Whether it may launch.
    pub open: bool,
    /// While it may launch, it does so as long as less than this is outstanding. Its processes mark the end of their
    /// work often enough to know when there is room again.
    pub depth: Nanos,
    /// How many launches it may have outstanding however long they take, 1 to 15.
    pub least: u8,
    /// Whether it rings when it becomes busy and when it becomes idle. It always rings when it begins to wait.
    pub bell: bool,
    /// It is closed by order, and no time limit opens it.
    pub frozen: bool,
}

/// What is to be done now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The leases that change, each slice at most once. Those that close come first.
    pub leases: Vec<(SliceName, Lease)>,
    /// When to decide again if nothing happens until then; nothing if only an event can change anything.
    pub look_again: Option<Instant>,
}

/// Over how long a share is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// The last second.
    Second,
    /// The last minute.
    Minute,
}

/// Why a slice does not run, or that it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It may launch.
    Running,
    /// It asks for nothing.
    NoWork,
    /// It used more of its share than the one that has the GPU.
    OverShare {
        /// Who has the GPU.
        holder: SliceName,
    },
    /// It has used what it may use at most.
    LimitReached,
    /// It is frozen.
    Frozen,
    /// One of a higher priority has the GPU.
    BehindPriority {
        /// Who that is.
        slice: SliceName,
    },
}
