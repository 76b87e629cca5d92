//! Output of `tranche smi --json`, by the names that scripts rely on; only fields that tests read.

use serde::Deserialize;
use tranche_domain::id::GpuUuid;
use tranche_domain::request::Share;
use tranche_domain::units::Bytes;

/// State of the node with its GPUs and slices.
#[derive(Clone, Debug, Deserialize)]
pub struct Snapshot {
    /// Pid of the daemon on the node.
    pub daemon_pid: u32,
    /// True if the GPUs are simulated.
    pub simulated: bool,
    /// Technique of compute enforcement, or `not enforced`.
    pub compute_enforcement: String,
    /// GPUs in NVML's order.
    pub gpus: Vec<GpuView>,
    /// Slices in the order of their names.
    pub slices: Vec<SliceView>,
    /// Requests that wait for room, oldest first.
    pub waiting: Vec<WaitingView>,
    /// Messages for the operator, such as a state file set aside.
    pub notes: Vec<String>,
}

impl Snapshot {
    /// The slice of that name, if there is one.
    pub fn find(&self, name: &str) -> Option<&SliceView> {
        self.slices.iter().find(|slice| slice.name == name)
    }

    /// The slice of that name; fails if there is none.
    #[track_caller]
    pub fn slice(&self, name: &str) -> &SliceView {
        match self.find(name) {
            Some(slice) => slice,
            None => panic!("there is no slice {name:?} in {:#?}", self.slices),
        }
    }
}

/// State of one GPU.
#[derive(Clone, Debug, Deserialize)]
pub struct GpuView {
    /// Index as NVML counts GPUs.
    pub index: u32,
    /// UUID as NVML reports it.
    pub uuid: GpuUuid,
    /// Total memory, from NVML.
    pub total: Bytes,
    /// Memory available to slices.
    pub capacity: Bytes,
    /// Memory in use, by any process.
    pub used: Bytes,
    /// Memory committed to slices.
    pub committed: Bytes,
    /// Charge for a process's context before its creation.
    pub context_reserve: Bytes,
    /// Reason for which no slice may be placed here.
    pub not_sliceable: Option<String>,
    /// Processes on the GPU outside all slices.
    pub foreign: Vec<ForeignProcessView>,
}

/// A process that uses a GPU outside all slices.
#[derive(Clone, Debug, Deserialize)]
pub struct ForeignProcessView {
    /// Pid on the host.
    pub pid: u32,
    /// Memory held, if NVML reports it.
    pub used: Option<Bytes>,
}

/// State of one slice.
#[derive(Clone, Debug, Deserialize)]
pub struct SliceView {
    /// Name, unique on the node.
    pub name: String,
    /// Share as it was requested, before rounding.
    pub share: Share,
    /// Parts, GPU by GPU.
    pub devices: Vec<SliceDeviceView>,
    /// Compute request on each GPU, in thousandths.
    pub compute: u32,
    /// State of its compute, such as `running` or `no work`.
    pub compute_state: String,
    /// Latency target in microseconds, if any.
    #[serde(default)]
    pub latency: Option<u32>,
    /// The gang with which it has its turns, if any.
    #[serde(default)]
    pub gang: Option<String>,
    /// The project that it counts for, if any.
    #[serde(default)]
    pub project: Option<String>,
    /// Its waits for the GPU, counted if it has such a target.
    #[serde(default)]
    pub waits: WaitsView,
    /// Launches let through a closed gate because outstanding work made no progress.
    pub launches_passed: u64,
    /// Launches let through a closed gate because the daemon was away.
    pub launches_degraded: u64,
    /// Enforcement tier, such as `preload`.
    pub tier: String,
    /// Reason for which the tier is not higher.
    pub tier_reason: String,
    /// Processes that are attached now.
    pub processes: Vec<ProcessView>,
    /// Processes whose descendants may attach.
    pub root_pids: Vec<u32>,
    /// Time without use of the GPU, if it is long enough to count as idle.
    #[serde(default)]
    pub idle_ms: Option<u64>,
}

/// Counts of a slice's waits for the GPU.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct WaitsView {
    /// Waits since the daemon began to schedule the slice.
    pub count: u64,
    /// Those that took longer than the target.
    pub late: u64,
}

impl SliceView {
    /// Memory cap on its first GPU.
    pub fn cap(&self) -> Bytes {
        self.devices[0].cap
    }

    /// Charged memory on its first GPU.
    pub fn used(&self) -> Bytes {
        self.devices[0].used
    }

    /// Pids of its processes on the host, ascending.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.processes.iter().map(|process| process.pid).collect();
        pids.sort_unstable();
        pids
    }
}

/// A slice's part of one GPU.
#[derive(Clone, Debug, Deserialize)]
pub struct SliceDeviceView {
    /// NVML index of the GPU.
    pub gpu_index: u32,
    /// UUID of the GPU as NVML reports it.
    pub gpu_uuid: GpuUuid,
    /// Memory cap on this GPU.
    pub cap: Bytes,
    /// Charged memory, shared memory once.
    pub used: Bytes,
    /// Part of it that several processes share.
    pub shared: Bytes,
    /// Charge beyond the cap after a shrink.
    pub over_cap: Bytes,
    /// Utilisation of the GPU by this slice in percent, if NVML reports it.
    pub utilization_percent: Option<u32>,
}

/// A process in a slice.
#[derive(Clone, Debug, Deserialize)]
pub struct ProcessView {
    /// Pid on the host.
    pub pid: u32,
    /// Pid in its own namespace, if different.
    pub inner_pid: Option<u32>,
    /// Command, as far as readable.
    pub command: String,
    /// Charged memory on each device, in the slice's order.
    pub used: Vec<Bytes>,
}

/// A request that waits for room.
#[derive(Clone, Debug, Deserialize)]
pub struct WaitingView {
    /// Requested name, if any.
    pub name: Option<String>,
    /// Reason for which it waits, as a sentence.
    pub reason: String,
    /// Uid of the requester.
    #[serde(default)]
    pub uid: Option<u32>,
    /// True if a parked slice is to return.
    #[serde(default)]
    pub returns: bool,
    /// Slices that have the room.
    #[serde(default)]
    pub holders: Vec<String>,
}
