//! Slices: commitment, processes and lifecycle.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::compute::{GangName, Latency, Priority};
use crate::id::{GpuUuid, HostPid, SliceName};
use crate::jobs::{MemberId, ProjectName};
use crate::park::{IdleTime, Park, ParkStage};
use crate::pod::PodContainer;
use crate::request::{ComputeMode, Share};
use crate::units::{Bytes, Permille};

/// Commitment of one GPU to a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// UUID of the GPU.
    pub gpu: GpuUuid,
    /// Memory cap on this GPU; whole MiB.
    pub cap: Bytes,
}

/// Parameters of a slice, as plain data for memory, disk and display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Name, unique on the node.
    pub name: SliceName,
    /// Share as it was requested, before rounding.
    pub share: Share,
    /// GPUs, in the order of the slice's device numbers.
    pub parts: Vec<Part>,
    /// Compute request on each GPU.
    pub compute: Permille,
    /// Compute limit on each GPU; at least the request.
    #[serde(default = "whole")]
    pub limit: Permille,
    /// Mode that bounds its compute.
    pub mode: ComputeMode,
    /// Scheduling priority; higher first.
    #[serde(default)]
    pub priority: Priority,
    /// Longest wait for the GPU that it should have while it is within its share, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// True if launches are held.
    #[serde(default)]
    pub frozen: bool,
    /// Stage of its absence from its GPUs; `None` while it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<Park>,
    /// True once the driver has restored processes of it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub returned: bool,
    /// The gang with which it has its turns, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangName>,
    /// True if the slice ends with its last process.
    pub ephemeral: bool,
    /// Time without use of its GPUs after which it is parked until its next call, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub park_idle: Option<IdleTime>,
    /// True if it is parked while others of its GPUs that rotate have their stay.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub rotates: bool,
    /// True if several containers may use it at a time.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub several_containers: bool,
    /// The pod that the slice is for, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodContainer>,
    /// The job member that the slice was created for. Its size is the job's, and it ends with the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<MemberId>,
    /// The project that the slice counts for, if it is no job's and its owner is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectName>,
    /// Uid of the user that owns it.
    pub owner_uid: u32,
    /// Time of creation, in milliseconds since the Unix epoch.
    pub created_unix_ms: u64,
}

/// Limit of a slice saved by a version without limits.
const fn whole() -> Permille {
    Permille::WHOLE
}

impl Slice {
    /// Compute that is guaranteed on each GPU.
    pub const fn guaranteed(&self) -> Permille {
        match self.mode {
            ComputeMode::BestEffort => Permille::ZERO,
            ComputeMode::Fair | ComputeMode::Strict => self.compute,
        }
    }

    /// Tests if its launches are held, by a freeze or because it is not on its GPUs.
    pub const fn is_held(&self) -> bool {
        self.frozen || self.parked.is_some()
    }

    /// Tests if its part of its GPUs is free for others.
    pub const fn is_away(&self) -> bool {
        matches!(self.parked, Some(Park { stage: ParkStage::Parked, .. }))
    }

    /// Tests if the driver may have restored a process of it.
    pub const fn may_be_restored(&self) -> bool {
        self.returned
            || matches!(self.parked, Some(Park { stage: ParkStage::Parking | ParkStage::Unparking, .. }))
    }

    /// The slice's part of this GPU, if any.
    pub fn part_of(&self, gpu: GpuUuid) -> Option<&Part> {
        self.parts.iter().find(|part| part.gpu == gpu)
    }
}

/// Identity of a process: a pid with its start time, which is unique, unlike the pid alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// Pid on the host.
    pub pid: HostPid,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start_time: u64,
}

/// Slot: index of an attached process's record in the regions of its slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat(pub u16);

/// Processes of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupants {
    /// Processes whose descendants may attach.
    pub roots: BTreeSet<ProcessId>,
    /// Attached processes by slot.
    pub members: BTreeMap<Seat, ProcessId>,
}

impl Occupants {
    /// Tests if there is neither a root nor an attached process.
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty() && self.members.is_empty()
    }

    /// Pids of all processes, without duplicates.
    pub fn pids(&self) -> BTreeSet<HostPid> {
        self.roots.iter().chain(self.members.values()).map(|process| process.pid).collect()
    }
}

/// Stage in the lifecycle of a slice; data of one stage is stored in that variant only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// No process has entered yet. An ephemeral slice ends at the deadline if none enters.
    Awaiting {
        /// Deadline in milliseconds, on a monotonic clock.
        deadline_ms: u64,
    },
    /// Open to roots and their descendants.
    Open(Occupants),
    /// Closed to new processes; the memory stays committed until the present ones are gone.
    Ending(Occupants),
}

/// Error for entering a slice that is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the slice is ending and takes no more processes; create another one")]
pub struct IsEnding;

impl Life {
    /// The stage of a new slice.
    pub const fn awaiting(deadline_ms: u64) -> Self {
        Self::Awaiting { deadline_ms }
    }

    /// Processes of the slice; `None` before the first entered.
    pub const fn occupants(&self) -> Option<&Occupants> {
        match self {
            Self::Awaiting { .. } => None,
            Self::Open(occupants) | Self::Ending(occupants) => Some(occupants),
        }
    }

    /// Adds a root process.
    pub fn enter(&mut self, root: ProcessId) -> Result<(), IsEnding> {
        self.open()?.roots.insert(root);
        Ok(())
    }

    /// Adds an attached process in a slot.
    pub fn join(&mut self, seat: Seat, process: ProcessId) -> Result<(), IsEnding> {
        self.open()?.members.insert(seat, process);
        Ok(())
    }

    /// Removes a root that has ended.
    pub fn root_gone(&mut self, root: ProcessId) {
        if let Self::Open(occupants) | Self::Ending(occupants) = self {
            occupants.roots.remove(&root);
        }
    }

    /// Removes an attached process that has ended and whose memory is free.
    pub fn member_gone(&mut self, seat: Seat) {
        if let Self::Open(occupants) | Self::Ending(occupants) = self {
            occupants.members.remove(&seat);
        }
    }

    /// Closes the slice to new processes.
    pub fn end(&mut self) {
        let here = match self {
            Self::Awaiting { .. } => Occupants::default(),
            Self::Open(occupants) | Self::Ending(occupants) => core::mem::take(occupants),
        };
        *self = Self::Ending(here);
    }

    /// Tests if the slice is over.
    ///
    /// An ephemeral one is after its last process or its deadline, another one once ended and empty.
    pub fn is_over(&self, ephemeral: bool, now_ms: u64) -> bool {
        match self {
            Self::Awaiting { deadline_ms } => ephemeral && now_ms >= *deadline_ms,
            Self::Open(occupants) => ephemeral && occupants.is_empty(),
            Self::Ending(occupants) => occupants.is_empty(),
        }
    }

    fn open(&mut self) -> Result<&mut Occupants, IsEnding> {
        if matches!(self, Self::Awaiting { .. }) {
            *self = Self::Open(Occupants::default());
        }
        match self {
            Self::Open(occupants) => Ok(occupants),
            _ => Err(IsEnding),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn process(pid: u32) -> ProcessId {
        ProcessId { pid: HostPid::new(pid), start_time: 1 }
    }

    #[test]
    fn ephemeral_slice_ends_with_last_process() {
        let mut life = Life::awaiting(10);
        life.enter(process(1)).unwrap();
        life.join(Seat(0), process(2)).unwrap();
        life.root_gone(process(1));
        assert!(!life.is_over(true, 99));
        life.member_gone(Seat(0));
        assert!(life.is_over(true, 99));
        assert!(!life.is_over(false, 99), "a standing slice waits for the next program");
    }

    #[test]
    fn unentered_ephemeral_slice_ends_at_deadline() {
        let life = Life::awaiting(10);
        assert!(!life.is_over(true, 9) && life.is_over(true, 10));
        assert!(!life.is_over(false, u64::MAX));
    }

    #[test]
    fn ending_slice_rejects_entry_until_empty() {
        let mut life = Life::awaiting(10);
        life.enter(process(1)).unwrap();
        life.end();
        assert_eq!(life.enter(process(2)), Err(IsEnding));
        assert_eq!(life.join(Seat(3), process(2)), Err(IsEnding));
        assert!(!life.is_over(false, 0));
        life.root_gone(process(1));
        assert!(life.is_over(false, 0));
    }

    #[test]
    fn reused_pid_is_another_process() {
        let mut life = Life::awaiting(10);
        life.enter(process(1)).unwrap();
        life.root_gone(ProcessId { start_time: 2, ..process(1) });
        assert_eq!(life.occupants().unwrap().pids().len(), 1);
    }
}
