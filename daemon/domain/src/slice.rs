//! A slice: what it was promised, and where it is in its life.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::compute::Priority;
use crate::id::{GpuUuid, HostPid, SliceName};
use crate::jobs::MemberId;
use crate::pod::PodContainer;
use crate::request::{ComputeMode, Share};
use crate::units::{Bytes, Permille};

/// What a slice has of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The GPU.
    pub gpu: GpuUuid,
    /// The most device memory that the slice may hold there; whole MiB.
    pub cap: Bytes,
}

/// What a slice was promised: plain data, the same in memory, on disk and on screen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Its name, unique on the node.
    pub name: SliceName,
    /// What was asked for, as the user put it.
    pub share: Share,
    /// What it has, in the order in which its programs number their devices.
    pub parts: Vec<Part>,
    /// Its compute request, of each of its GPUs.
    pub compute: Permille,
    /// The most compute it may have, of each of its GPUs; at least the request.
    #[serde(default = "whole")]
    pub limit: Permille,
    /// How its compute is bounded.
    pub mode: ComputeMode,
    /// Who goes first.
    #[serde(default)]
    pub priority: Priority,
    /// Whether its programs' launches are held until it is thawed.
    #[serde(default)]
    pub frozen: bool,
    /// Whether it ends with its last process.
    pub ephemeral: bool,
    /// Whom it is for, where somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodContainer>,
    /// The member of a job that it was made for, if it was: its size is the job's, and it ends with the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<MemberId>,
    /// Who made it, and besides root alone may change it.
    pub owner_uid: u32,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_unix_ms: u64,
}

/// The limit of a slice that was written down before there were limits.
const fn whole() -> Permille {
    Permille::WHOLE
}

impl Slice {
    /// The compute that it is guaranteed of each of its GPUs.
    pub const fn guaranteed(&self) -> Permille {
        match self.mode {
            ComputeMode::BestEffort => Permille::ZERO,
            ComputeMode::Fair | ComputeMode::Strict => self.compute,
        }
    }

    /// Its part of a GPU, if it has one.
    pub fn part_of(&self, gpu: GpuUuid) -> Option<&Part> {
        self.parts.iter().find(|part| part.gpu == gpu)
    }
}

/// A process that cannot be mistaken for another: a pid may be used again, a pid with its start time may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its pid on the host.
    pub pid: HostPid,
    /// When it began, in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start_time: u64,
}

/// Index of a process's record in its slice's regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat(pub u16);

/// Who is in a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupants {
    /// Processes whose descendants may join.
    pub roots: BTreeSet<ProcessId>,
    /// Processes that have joined, by seat.
    pub members: BTreeMap<Seat, ProcessId>,
}

impl Occupants {
    /// Whether nobody is there, neither root nor member.
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty() && self.members.is_empty()
    }

    /// Everybody's pids, each once, in order.
    pub fn pids(&self) -> BTreeSet<HostPid> {
        self.roots.iter().chain(self.members.values()).map(|process| process.pid).collect()
    }
}

/// Where a slice is in its life. What is true only in one stage is stored only there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// Nobody has come yet. An ephemeral slice whose maker never enters it ends at the deadline.
    Awaiting {
        /// In milliseconds, on a clock that nobody sets.
        deadline_ms: u64,
    },
    /// Open to its roots and their descendants.
    Open(Occupants),
    /// It lets nobody in any more; its memory is promised to it until those still there are gone.
    Ending(Occupants),
}

/// A slice that is ending lets nobody in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsEnding;

impl core::fmt::Display for IsEnding {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the slice is ending and lets nobody in; make another one")
    }
}

impl core::error::Error for IsEnding {}

impl Life {
    /// The life of a slice just made.
    pub const fn awaiting(deadline_ms: u64) -> Self {
        Self::Awaiting { deadline_ms }
    }

    /// Who is there, if anybody ever came.
    pub const fn occupants(&self) -> Option<&Occupants> {
        match self {
            Self::Awaiting { .. } => None,
            Self::Open(occupants) | Self::Ending(occupants) => Some(occupants),
        }
    }

    /// Makes a process a root.
    pub fn enter(&mut self, root: ProcessId) -> Result<(), IsEnding> {
        self.open()?.roots.insert(root);
        Ok(())
    }

    /// Seats a process.
    pub fn join(&mut self, seat: Seat, process: ProcessId) -> Result<(), IsEnding> {
        self.open()?.members.insert(seat, process);
        Ok(())
    }

    /// Forgets a root that has ended.
    pub fn root_gone(&mut self, root: ProcessId) {
        if let Self::Open(occupants) | Self::Ending(occupants) = self {
            occupants.roots.remove(&root);
        }
    }

    /// Forgets a member that has ended and whose memory is free again.
    pub fn member_gone(&mut self, seat: Seat) {
        if let Self::Open(occupants) | Self::Ending(occupants) = self {
            occupants.members.remove(&seat);
        }
    }

    /// Lets nobody in from now on.
    pub fn end(&mut self) {
        let here = match self {
            Self::Awaiting { .. } => Occupants::default(),
            Self::Open(occupants) | Self::Ending(occupants) => core::mem::take(occupants),
        };
        *self = Self::Ending(here);
    }

    /// Whether a slice with this life is over: the ephemeral end with their last process, or when their
    /// maker did not come in time; the others only when told.
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
    fn an_ephemeral_slice_ends_with_its_last_root_and_process() {
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
    fn an_ephemeral_slice_that_nobody_enters_ends_at_its_deadline() {
        let life = Life::awaiting(10);
        assert!(!life.is_over(true, 9) && life.is_over(true, 10));
        assert!(!life.is_over(false, u64::MAX));
    }

    #[test]
    fn an_ending_slice_lets_nobody_in_and_is_over_when_empty() {
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
    fn a_process_with_a_used_pid_is_another_process() {
        let mut life = Life::awaiting(10);
        life.enter(process(1)).unwrap();
        life.root_gone(ProcessId { start_time: 2, ..process(1) });
        assert_eq!(life.occupants().unwrap().pids().len(), 1);
    }
}
