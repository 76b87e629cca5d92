//! View of the node at one instant, as plain data for the wire, `tranche smi` and `--json`.

mod amounts;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::Serialize;

use crate::compute::{GangName, Latency, Priority, Waits, Why};
use crate::cordon::Cordon;
use crate::fault::Fault;
use crate::id::{GpuUuid, HostPid, InnerPid, NumaNode, SliceName};
use crate::jobs::ProjectName;
use crate::park::{IdleTime, Park, ParkStage};
use crate::pod::PodContainer;
use crate::request::{ComputeMode, Share};
use crate::units::{Bytes, Permille};
use crate::word::named;

named! {
    /// Scheduling state of a slice.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum ComputeState {
        /// The slice may launch, and does.
        Running = "running",
        /// The slice has no work.
        #[default]
        NoWork = "no work",
        /// Another slice with less use of its share has the GPU.
        OverShare = "over its share",
        /// The slice has reached its compute limit.
        LimitReached = "limit reached",
        /// The slice is frozen.
        Frozen = "frozen",
        /// A slice of higher priority has the GPU.
        BehindPriority = "behind priority",
    }
}

impl ComputeState {
    /// State for the scheduler's reason, and the slice that is waited for.
    pub fn of(why: Option<Why>) -> (Self, Option<SliceName>) {
        match why {
            Some(Why::Running) => (Self::Running, None),
            None | Some(Why::NoWork) => (Self::NoWork, None),
            Some(Why::OverShare { holder }) => (Self::OverShare, Some(holder)),
            Some(Why::LimitReached) => (Self::LimitReached, None),
            Some(Why::Frozen) => (Self::Frozen, None),
            Some(Why::BehindPriority { slice }) => (Self::BehindPriority, Some(slice)),
        }
    }
}

/// The node with its GPUs and slices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeView {
    /// Version of the daemon that answers.
    pub daemon_version: String,
    /// Pid of the daemon on the node.
    pub daemon_pid: HostPid,
    /// Directory of its sockets and regions.
    pub runtime_dir: String,
    /// Version of the NVIDIA driver, or of the simulated one.
    pub driver_version: String,
    /// CUDA version of the driver: 1000 x major + 10 x minor.
    pub cuda_version: u32,
    /// True if the GPUs are simulated.
    pub simulated: bool,
    /// True if the daemon serves the whole node, false if it serves a single user.
    pub privileged: bool,
    /// Technique of compute enforcement, or `not enforced`.
    pub compute_enforcement: String,
    /// GPUs, in NVML's order.
    pub gpus: Vec<GpuView>,
    /// Slices in the order of their names.
    pub slices: Vec<SliceView>,
    /// Requests that wait for room, oldest first.
    pub waiting: Vec<WaitingView>,
    /// Messages for the operator, such as a state file set aside.
    pub notes: Vec<String>,
}

/// State of one GPU of the node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuView {
    /// Index as NVML counts GPUs.
    pub index: u32,
    /// UUID as NVML reports it.
    pub uuid: GpuUuid,
    /// Product name as NVML reports it.
    pub name: String,
    /// PCI bus id, `domain:bus:device.function`.
    pub pci_bus_id: String,
    /// Compute capability, such as `7.0`.
    pub compute_capability: String,
    /// The NUMA node next to it, if NVML reports exactly one.
    pub numa_node: Option<NumaNode>,
    /// Total memory, from NVML.
    pub total: Bytes,
    /// Memory reserved by the driver.
    pub reserved: Bytes,
    /// Memory available to slices: total less reserved.
    pub capacity: Bytes,
    /// Memory in use, by any process.
    pub used: Bytes,
    /// Memory committed to slices.
    pub committed: Bytes,
    /// Compute committed to slices.
    pub committed_compute: Permille,
    /// Charge for a process's context before its creation.
    pub context_reserve: Bytes,
    /// Time of its measurement in Unix milliseconds, 0 if an earlier release measured it.
    ///
    /// `None` if it is the `context_reserve_mib` of the configuration.
    #[serde(default)]
    pub context_measured_unix_ms: Option<u64>,
    /// Utilisation in percent, if NVML reports it.
    pub utilization_percent: Option<u32>,
    /// Memory interface utilisation in percent, if NVML reports it.
    pub memory_utilization_percent: Option<u32>,
    /// Temperature in degrees Celsius, if NVML reports it.
    pub temperature_celsius: Option<u32>,
    /// Power draw in milliwatts, if NVML reports it.
    pub power_milliwatts: Option<u32>,
    /// Power limit in milliwatts, if NVML reports it.
    pub power_limit_milliwatts: Option<u32>,
    /// Reason for which no slice may be placed here; a cordon, if there is no other.
    pub not_sliceable: Option<String>,
    /// The cordon in force, if any.
    pub cordon: Option<Cordon>,
    /// Faults that were found and have not ended.
    pub faults: Vec<Fault>,
    /// Processes on the GPU outside all slices.
    pub foreign: Vec<ForeignProcessView>,
}

impl GpuView {
    /// Reason, other than a cordon, for which no slice may be placed here.
    pub fn obstacle(&self) -> Option<&str> {
        let cordon = self.cordon.as_ref().map(|cordon| cordon.told.as_str());
        self.not_sliceable.as_deref().filter(|why| Some(*why) != cordon)
    }
}

/// A slice or processes left on a GPU that is being drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RemainingView {
    /// NVML index of the GPU.
    pub gpu_index: u32,
    /// UUID of the GPU as NVML reports it.
    pub gpu_uuid: GpuUuid,
    /// Name of the slice; `None` for processes outside all slices.
    pub slice: Option<SliceName>,
    /// Pids; may be empty for a slice.
    pub pids: Vec<HostPid>,
}

impl fmt::Display for RemainingView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.slice, self.pids.as_slice()) {
            (Some(name), []) => write!(f, "slice {name}, without a process")?,
            (Some(name), pids) => write!(f, "slice {name} with {}", Pids(pids))?,
            (None, pids) => write!(f, "{} in no slice", Pids(pids))?,
        }
        write!(f, " (GPU {})", self.gpu_index)
    }
}

struct Pids<'a>(&'a [HostPid]);

impl fmt::Display for Pids<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "process" } else { "processes" })?;
        let mut pids = self.0.iter();
        pids.try_for_each(|pid| write!(f, " {pid}"))
    }
}

/// A process that uses a GPU outside all slices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ForeignProcessView {
    /// Pid on the host.
    pub pid: HostPid,
    /// Command, as far as readable.
    pub command: String,
    /// Memory held, if NVML reports it.
    pub used: Option<Bytes>,
}

/// State of one slice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SliceView {
    /// Name, unique on the node.
    pub name: SliceName,
    /// Share as it was requested, before rounding.
    pub share: Share,
    /// Parts, GPU by GPU.
    pub devices: Vec<SliceDeviceView>,
    /// Compute request on each GPU.
    pub compute: Permille,
    /// Compute limit on each GPU.
    pub limit: Permille,
    /// Mode that bounds its compute.
    pub mode: ComputeMode,
    /// Scheduling priority; higher first.
    pub priority: Priority,
    /// Longest wait for the GPU that it should have while it is within its share, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Its waits for the GPU, counted if it has such a target.
    pub waits: Waits,
    /// The owner's gang with whose slices it has its turns, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangName>,
    /// Project that it counts for, if it is no job's and the node has projects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectName>,
    /// True if launches are held.
    pub frozen: bool,
    /// State of its compute at the last decision.
    pub compute_state: ComputeState,
    /// The slice that it waits for, if any.
    pub waits_for: Option<SliceName>,
    /// Launches let through a closed gate because outstanding work made no progress.
    pub launches_passed: u64,
    /// Launches let through a closed gate because the daemon was away.
    pub launches_degraded: u64,
    /// Enforcement tier, such as `preload`.
    pub tier: String,
    /// Reason for which the tier is not higher.
    pub tier_reason: String,
    /// True if the slice ends with its last process.
    pub ephemeral: bool,
    /// Time without use of its GPUs after which it is parked until its next call, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub park_idle: Option<IdleTime>,
    /// True if it is parked while others of its GPUs that rotate have their stay.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub rotates: bool,
    /// True if several containers may use it at a time.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub several_containers: bool,
    /// The pod that the slice is for, if set.
    pub pod: Option<PodContainer>,
    /// Uid of the user that owns it.
    pub owner_uid: u32,
    /// Time of creation, in milliseconds since the Unix epoch.
    pub created_unix_ms: u64,
    /// Processes that are attached now, and those without the shim in a pod with a whole GPU.
    pub processes: Vec<ProcessView>,
    /// Processes whose descendants may attach.
    pub root_pids: Vec<HostPid>,
    /// Time without use of the GPU, in milliseconds; `None` if it is too short to count as idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// Stage of its absence from its GPUs; `None` while it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked: Option<Park>,
    /// Time to the earliest return of a rotating slice that is wanted and away, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returns_in_ms: Option<u64>,
    /// Reason for which it does not return while a call of its programs waits, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cannot_return: Option<String>,
}

impl SliceView {
    /// Tests if it is away because others of its GPU have their stays, and not because it was parked.
    pub fn is_away_by_turn(&self) -> bool {
        self.rotates && self.parked.is_some_and(|park| park.wakes && park.stage == ParkStage::Parked)
    }

    /// State in one phrase: the stage of its absence while it is not on its GPUs, else that of its compute.
    pub fn state(&self) -> String {
        match self.parked {
            Some(_) if self.is_away_by_turn() => "away (rotates)".to_string(),
            Some(park) => park.stage.to_string(),
            // The launches of a parked slice are held, which its compute has as frozen.
            None => self.compute_state.to_string(),
        }
    }
}

/// A slice's part of one GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SliceDeviceView {
    /// NVML index of the GPU.
    pub gpu_index: u32,
    /// UUID of the GPU as NVML reports it.
    pub gpu_uuid: GpuUuid,
    /// Memory cap on this GPU.
    pub cap: Bytes,
    /// Charged memory.
    ///
    /// That of each process, shared memory once, and memory that the driver took beyond the context reserves.
    pub used: Bytes,
    /// Part of it that several processes share.
    pub shared: Bytes,
    /// Charge beyond the cap after a shrink; no memory is granted until it is zero.
    pub over_cap: Bytes,
    /// Utilisation of the GPU by this slice in percent, if NVML reports it.
    pub utilization_percent: Option<u32>,
    /// GPU time used over the last second.
    pub compute_used_1s: Permille,
    /// GPU time used over the last minute.
    pub compute_used_60s: Permille,
}

/// A process in a slice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessView {
    /// Pid on the host.
    pub pid: HostPid,
    /// Pid in its own namespace, if different.
    pub inner_pid: Option<InnerPid>,
    /// Command, as far as readable.
    pub command: String,
    /// Charged memory on each device, in the slice's order.
    pub used: Vec<Bytes>,
}

/// A request that waits for room.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitingView {
    /// Requested name, or that of a parked slice that is to return, if any.
    pub name: Option<SliceName>,
    /// Share that was requested.
    pub share: Share,
    /// Reason for which it waits, as a sentence.
    pub reason: String,
    /// Start of the wait, in milliseconds since the Unix epoch.
    pub since_unix_ms: u64,
    /// Pid of the requester.
    pub pid: HostPid,
    /// Uid of the requester; `None` from an earlier release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// True if a parked slice is to return, and no slice to be created.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub returns: bool,
    /// Slices that have the room, on the GPUs that may be used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<SliceName>,
}
