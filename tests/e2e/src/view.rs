//! What `tranche smi --json` prints, as a script would read it: only what the tests look at, by the names that
//! scripts rely on.

use serde::Deserialize;
use tranche_domain::id::GpuUuid;
use tranche_domain::request::Share;
use tranche_domain::units::Bytes;

/// The node.
#[derive(Clone, Debug, Deserialize)]
pub struct Snapshot {
    /// Pid of the daemon.
    pub daemon_pid: u32,
    /// True if the GPUs are simulated.
    pub simulated: bool,
    /// Mode of compute enforcement.
    pub compute_enforcement: String,
    /// The GPUs.
    pub gpus: Vec<GpuView>,
    /// The slices.
    pub slices: Vec<SliceView>,
    /// Requests that wait.
    pub waiting: Vec<WaitingView>,
    /// What the operator should know.
    pub notes: Vec<String>,
}

impl Snapshot {
    /// The slice of that name, if there is one.
    pub fn find(&self, name: &str) -> Option<&SliceView> {
        self.slices.iter().find(|slice| slice.name == name)
    }

    /// The slice of that name.
    #[track_caller]
    pub fn slice(&self, name: &str) -> &SliceView {
        match self.find(name) {
            Some(slice) => slice,
            None => panic!("there is no slice {name:?} in {:#?}", self.slices),
        }
    }
}

/// A GPU.
#[derive(Clone, Debug, Deserialize)]
pub struct GpuView {
    /// NVML index.
    pub index: u32,
    /// UUID.
    pub uuid: GpuUuid,
    /// NVML's total.
    pub total: Bytes,
    /// What slices can be made of.
    pub capacity: Bytes,
    /// In use by anybody.
    pub used: Bytes,
    /// Promised to slices.
    pub committed: Bytes,
    /// Charged for a context before it is made.
    pub context_reserve: Bytes,
    /// Why no slice may be put here.
    pub not_sliceable: Option<String>,
    /// Processes in no slice.
    pub foreign: Vec<ForeignProcessView>,
}

/// A process in no slice.
#[derive(Clone, Debug, Deserialize)]
pub struct ForeignProcessView {
    /// Its pid.
    pub pid: u32,
    /// What NVML says it holds.
    pub used: Option<Bytes>,
}

/// A slice.
#[derive(Clone, Debug, Deserialize)]
pub struct SliceView {
    /// Its name.
    pub name: String,
    /// What was asked for.
    pub share: Share,
    /// What it has of each GPU.
    pub devices: Vec<SliceDeviceView>,
    /// What it does with its compute, or why it does nothing.
    pub compute_state: String,
    /// Launches let through out of turn, as nothing outstanding made progress.
    pub launches_passed: u64,
    /// Launches let through while the daemon was away.
    pub launches_degraded: u64,
    /// Its enforcement tier.
    pub tier: String,
    /// Why that one.
    pub tier_reason: String,
    /// Its processes.
    pub processes: Vec<ProcessView>,
    /// Processes whose descendants may join.
    pub root_pids: Vec<u32>,
}

impl SliceView {
    /// What the slice may hold of its first GPU.
    pub fn cap(&self) -> Bytes {
        self.devices[0].cap
    }

    /// What it is charged for on its first GPU.
    pub fn used(&self) -> Bytes {
        self.devices[0].used
    }

    /// The pids of its processes, in order.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.processes.iter().map(|process| process.pid).collect();
        pids.sort_unstable();
        pids
    }
}

/// A slice's part of a GPU.
#[derive(Clone, Debug, Deserialize)]
pub struct SliceDeviceView {
    /// NVML index.
    pub gpu_index: u32,
    /// UUID.
    pub gpu_uuid: GpuUuid,
    /// The most it may hold.
    pub cap: Bytes,
    /// What it is charged for.
    pub used: Bytes,
    /// What of that several of its processes hold.
    pub shared: Bytes,
    /// By how much it is over its cap.
    pub over_cap: Bytes,
    /// Use of the GPU by it in percent, where known.
    pub utilization_percent: Option<u32>,
}

/// A process in a slice.
#[derive(Clone, Debug, Deserialize)]
pub struct ProcessView {
    /// Its pid.
    pub pid: u32,
    /// Its pid in its own namespace, where that is another.
    pub inner_pid: Option<u32>,
    /// Its command.
    pub command: String,
    /// What it is charged for, by device.
    pub used: Vec<Bytes>,
}

/// A request that waits.
#[derive(Clone, Debug, Deserialize)]
pub struct WaitingView {
    /// The name it asks for.
    pub name: Option<String>,
    /// What it waits for.
    pub reason: String,
}
