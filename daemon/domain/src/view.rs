//! What there is to see: the node at one instant, as plain data for people and scripts.
//!
//! The daemon makes it, the wire carries it, `tranche smi` draws it and `--json` prints it as it is.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::Serialize;

use crate::compute::{Priority, Why};
use crate::cordon::Cordon;
use crate::fault::Fault;
use crate::id::{GpuUuid, HostPid, InnerPid, NumaNode, SliceName};
use crate::pod::PodContainer;
use crate::request::{ComputeMode, Share};
use crate::units::{Bytes, Permille};

/// What a slice does with its compute, or why it does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComputeState {
    /// It may launch, and does.
    Running,
    /// It asks for nothing.
    #[default]
    NoWork,
    /// It used more of its share than another, who has the GPU.
    OverShare,
    /// It has used what it may use at most.
    LimitReached,
    /// It is frozen.
    Frozen,
    /// Another goes first.
    BehindPriority,
}

impl ComputeState {
    /// What the arbiter says, and the slice that is waited for.
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

impl fmt::Display for ComputeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Running => "running",
            Self::NoWork => "no work",
            Self::OverShare => "over its share",
            Self::LimitReached => "limit reached",
            Self::Frozen => "frozen",
            Self::BehindPriority => "behind priority",
        })
    }
}

/// The whole node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeView {
    /// Version of the daemon.
    pub daemon_version: String,
    /// The daemon's process.
    pub daemon_pid: HostPid,
    /// Where its sockets and regions are.
    pub runtime_dir: String,
    /// Version of the NVIDIA driver, or of the simulated one.
    pub driver_version: String,
    /// CUDA version of the driver: 1000 x major + 10 x minor.
    pub cuda_version: u32,
    /// Whether the GPUs are simulated.
    pub simulated: bool,
    /// Whether the daemon serves the whole node (true) or one user.
    pub privileged: bool,
    /// `not enforced`, or the technique.
    pub compute_enforcement: String,
    /// The GPUs in NVML's order.
    pub gpus: Vec<GpuView>,
    /// The slices by name.
    pub slices: Vec<SliceView>,
    /// Requests that wait for room, oldest first.
    pub waiting: Vec<WaitingView>,
    /// What the operator should know, such as a state file set aside.
    pub notes: Vec<String>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuView {
    /// NVML index.
    pub index: u32,
    /// UUID.
    pub uuid: GpuUuid,
    /// Product name.
    pub name: String,
    /// PCI bus id.
    pub pci_bus_id: String,
    /// Compute capability, such as `7.0`.
    pub compute_capability: String,
    /// The one NUMA node that it is near to, where NVML tells.
    pub numa_node: Option<NumaNode>,
    /// NVML's total.
    pub total: Bytes,
    /// What the driver keeps from everybody.
    pub reserved: Bytes,
    /// What slices can be made of: total less reserved.
    pub capacity: Bytes,
    /// In use now, by anybody.
    pub used: Bytes,
    /// Promised to slices.
    pub committed: Bytes,
    /// Compute promised to slices.
    pub committed_compute: Permille,
    /// Charged for a process's context before it is made.
    pub context_reserve: Bytes,
    /// When that was measured, in Unix milliseconds, 0 if an earlier release did; nothing where it is assumed, as
    /// `context_reserve_mib` of the configuration says.
    #[serde(default)]
    pub context_measured_unix_ms: Option<u64>,
    /// Utilisation in percent, where NVML tells.
    pub utilization_percent: Option<u32>,
    /// Memory interface utilisation in percent, where NVML tells.
    pub memory_utilization_percent: Option<u32>,
    /// Temperature in degrees Celsius, where NVML tells.
    pub temperature_celsius: Option<u32>,
    /// Power draw in milliwatts, where NVML tells.
    pub power_milliwatts: Option<u32>,
    /// Power limit in milliwatts, where NVML tells.
    pub power_limit_milliwatts: Option<u32>,
    /// Why no slice may be put here, if so; a cordon, where nothing else is in the way.
    pub not_sliceable: Option<String>,
    /// Who keeps further slices off it, if anybody.
    pub cordon: Option<Cordon>,
    /// Faults that the driver reported and that are not over.
    pub faults: Vec<Fault>,
    /// Processes on the GPU that are in no slice.
    pub foreign: Vec<ForeignProcessView>,
}

impl GpuView {
    /// What is in the way of slices that no operator can take away by uncordoning.
    pub fn obstacle(&self) -> Option<&str> {
        let cordon = self.cordon.as_ref().map(|cordon| cordon.told.as_str());
        self.not_sliceable.as_deref().filter(|why| Some(*why) != cordon)
    }
}

/// Somebody who is still on a GPU that is being drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RemainingView {
    /// NVML index of the GPU.
    pub gpu_index: u32,
    /// UUID of the GPU.
    pub gpu_uuid: GpuUuid,
    /// The slice; nothing for processes that are in none.
    pub slice: Option<SliceName>,
    /// The processes; a slice may be there without any.
    pub pids: Vec<HostPid>,
}

impl fmt::Display for RemainingView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.slice, self.pids.as_slice()) {
            (Some(name), []) => write!(f, "slice {name}, in which nobody is")?,
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

/// A process that uses a GPU outside any slice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ForeignProcessView {
    /// Its pid.
    pub pid: HostPid,
    /// Its command, as far as it can be read.
    pub command: String,
    /// What NVML says it holds, where NVML tells.
    pub used: Option<Bytes>,
}

/// One slice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SliceView {
    /// Its name.
    pub name: SliceName,
    /// What was asked for.
    pub share: Share,
    /// What it has, GPU by GPU.
    pub devices: Vec<SliceDeviceView>,
    /// Its compute request, of each of its GPUs.
    pub compute: Permille,
    /// The most compute it may have, of each of its GPUs.
    pub limit: Permille,
    /// How its compute is bounded.
    pub mode: ComputeMode,
    /// Who goes first.
    pub priority: Priority,
    /// Whether its programs' launches are held.
    pub frozen: bool,
    /// What it does with its compute, or why it does nothing.
    pub compute_state: ComputeState,
    /// The slice that it waits for, where it waits for one.
    pub waits_for: Option<SliceName>,
    /// Launches let through though it was not its turn, because nothing that was outstanding made progress.
    pub launches_passed: u64,
    /// Launches let through though it was not its turn, because the daemon was away.
    pub launches_degraded: u64,
    /// Its enforcement tier.
    pub tier: String,
    /// Why it has that tier.
    pub tier_reason: String,
    /// Whether it ends with its last process.
    pub ephemeral: bool,
    /// Whom it is for, where somebody said so.
    pub pod: Option<PodContainer>,
    /// Who made it.
    pub owner_uid: u32,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_unix_ms: u64,
    /// Its processes that use CUDA.
    pub processes: Vec<ProcessView>,
    /// Processes whose descendants may join it.
    pub root_pids: Vec<HostPid>,
}

/// A slice's part of one GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SliceDeviceView {
    /// NVML index of the GPU.
    pub gpu_index: u32,
    /// UUID of the GPU.
    pub gpu_uuid: GpuUuid,
    /// The most it may hold.
    pub cap: Bytes,
    /// What it is charged for now: its processes each, what they share once, and what the driver took beyond
    /// the reserves for their contexts.
    pub used: Bytes,
    /// What of that several of its processes hold.
    pub shared: Bytes,
    /// By how much it is over its cap, as it may be after a shrink: until that is freed it gets nothing new.
    pub over_cap: Bytes,
    /// Utilisation of the GPU by this slice in percent as NVML tells, where it does.
    pub utilization_percent: Option<u32>,
    /// What it used of the GPU's time over the last second.
    pub compute_used_1s: Permille,
    /// What it used of the GPU's time over the last minute.
    pub compute_used_60s: Permille,
}

/// A process in a slice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessView {
    /// Its pid on the host.
    pub pid: HostPid,
    /// Its pid in its own namespace, where that differs.
    pub inner_pid: Option<InnerPid>,
    /// Its command, as far as it can be read.
    pub command: String,
    /// What it is charged for, per device of the slice in the slice's order.
    pub used: Vec<Bytes>,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitingView {
    /// The name it asks for, if any.
    pub name: Option<SliceName>,
    /// What it asks for.
    pub share: Share,
    /// What it waits for.
    pub reason: String,
    /// Since when, in milliseconds since the Unix epoch.
    pub since_unix_ms: u64,
    /// Who waits.
    pub pid: HostPid,
}
