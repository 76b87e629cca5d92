//! Memory that processes hold on the simulated devices, as these report it themselves.

use serde::Deserialize;
use tranche_domain::id::GpuUuid;
use tranche_domain::units::Bytes;

/// All devices of a node at one instant, from `simgpu show --json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Device {
    /// Devices in NVML's order.
    pub gpus: Vec<Gpu>,
}

/// One device with its processes.
#[derive(Clone, Debug, Deserialize)]
pub struct Gpu {
    /// UUID as NVML reports it.
    pub uuid: GpuUuid,
    /// Memory of each process on the device.
    pub processes: Vec<Holding>,
}

/// Memory of one process on a device.
#[derive(Clone, Debug, Deserialize)]
pub struct Holding {
    /// Pid on the host.
    pub pid: u32,
    /// Contexts, code and allocations in MiB, in whole blocks.
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

    /// Sum of the memory of these processes on one device.
    pub fn held_by(&self, gpu: usize, pids: &[u32]) -> Bytes {
        let holdings = self.gpus[gpu].processes.iter();
        holdings.filter(|held| pids.contains(&held.pid)).map(|held| Bytes::mib(held.memory_mib)).sum()
    }

    /// Sum of the memory of all processes on all devices.
    pub fn held(&self) -> Bytes {
        let holdings = self.gpus.iter().flat_map(|gpu| &gpu.processes);
        holdings.map(|held| Bytes::mib(held.memory_mib)).sum()
    }
}
