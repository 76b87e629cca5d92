//! What the simulated devices hold, asked of them and of nobody else.

use serde::Deserialize;
use tranche_domain::id::GpuUuid;
use tranche_domain::units::Bytes;

/// All devices of a node at one instant.
#[derive(Clone, Debug, Deserialize)]
pub struct Device {
    /// One after the other, in NVML's order.
    pub gpus: Vec<Gpu>,
}

/// One device.
#[derive(Clone, Debug, Deserialize)]
pub struct Gpu {
    /// UUID.
    pub uuid: GpuUuid,
    /// What each process holds.
    pub processes: Vec<Holding>,
}

/// What one process holds of a device.
#[derive(Clone, Debug, Deserialize)]
pub struct Holding {
    /// Its pid.
    pub pid: u32,
    /// All of it: contexts, code, allocations, by the block.
    pub memory_mib: u64,
}

impl Device {
    #[track_caller]
    pub(crate) fn read(json: &str) -> Self {
        match serde_json::from_str(json) {
            Ok(device) => device,
            Err(error) => panic!("simgpu show --json: {error}\n{json}"),
        }
    }

    /// What these processes hold together on one device.
    pub fn held_by(&self, gpu: usize, pids: &[u32]) -> Bytes {
        let holdings = self.gpus[gpu].processes.iter();
        holdings.filter(|held| pids.contains(&held.pid)).map(|held| Bytes::mib(held.memory_mib)).sum()
    }

    /// What anybody holds on any device.
    pub fn held(&self) -> Bytes {
        let holdings = self.gpus.iter().flat_map(|gpu| &gpu.processes);
        holdings.map(|held| Bytes::mib(held.memory_mib)).sum()
    }
}
