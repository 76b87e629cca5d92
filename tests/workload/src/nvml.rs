//! NVML's view of the GPUs, as any program can read it.

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
use serde::Serialize;
use tranche_domain::units::Bytes;

/// Failure of a query of NVML.
#[derive(Debug, thiserror::Error)]
#[error("NVML could not tell {what}: {cause}")]
pub(crate) struct NvmlFailure {
    what: &'static str,
    cause: NvmlError,
}

fn failed(what: &'static str) -> impl Fn(NvmlError) -> NvmlFailure {
    move |cause| NvmlFailure { what, cause }
}

/// NVML, loaded and initialised.
pub(crate) struct Observer {
    nvml: Nvml,
}

/// NVML's view at one instant.
#[derive(Debug, Serialize)]
pub(crate) struct NvmlView {
    /// True, unlike in the report of a failure.
    pub(crate) ok: bool,
    /// Version of NVML; ends in `-simulated` where it is.
    pub(crate) nvml_version: String,
    /// GPUs that NVML shows.
    pub(crate) gpus: Vec<NvmlGpu>,
}

/// One GPU as NVML shows it.
#[derive(Debug, Serialize)]
pub(crate) struct NvmlGpu {
    /// Index in NVML's order.
    pub(crate) index: u32,
    /// UUID, with the prefix `GPU-`.
    pub(crate) uuid: String,
    /// Product name that NVML reports.
    pub(crate) name: String,
    /// Total memory in bytes.
    pub(crate) total_bytes: Bytes,
    /// Bytes that the driver reserves for itself.
    pub(crate) reserved_bytes: Bytes,
    /// Bytes in use by processes.
    pub(crate) used_bytes: Bytes,
    /// Bytes that can be allocated.
    pub(crate) free_bytes: Bytes,
    /// Utilisation in percent, if NVML reports it.
    pub(crate) utilization_percent: Option<u32>,
    /// True if it is divided by MIG.
    pub(crate) mig: bool,
    /// Processes that use it.
    pub(crate) processes: Vec<NvmlProcess>,
}

/// One process on a GPU.
#[derive(Debug, Serialize)]
pub(crate) struct NvmlProcess {
    /// Process id that NVML reports.
    pub(crate) pid: u32,
    /// Bytes that it holds, if NVML reports them.
    pub(crate) used_bytes: Option<Bytes>,
}

impl Observer {
    /// Loads and initialises NVML.
    pub(crate) fn open() -> Result<Self, NvmlFailure> {
        Ok(Self { nvml: Nvml::init().map_err(failed("anything at all"))? })
    }

    /// Reads the state of every GPU.
    pub(crate) fn look(&self) -> Result<NvmlView, NvmlFailure> {
        let count = self.nvml.device_count().map_err(failed("the number of GPUs"))?;
        let device = |index| self.nvml.device_by_index(index).and_then(|device| read(index, &device));
        Ok(NvmlView {
            ok: true,
            nvml_version: self.nvml.sys_nvml_version().map_err(failed("its version"))?,
            gpus: (0..count).map(device).collect::<Result<_, _>>().map_err(failed("a GPU's state"))?,
        })
    }
}

fn read(index: u32, device: &Device<'_>) -> Result<NvmlGpu, NvmlError> {
    let memory = device.memory_info()?;
    Ok(NvmlGpu {
        index,
        uuid: device.uuid()?,
        name: device.name()?,
        total_bytes: Bytes::new(memory.total),
        reserved_bytes: Bytes::new(memory.reserved),
        used_bytes: Bytes::new(memory.used),
        free_bytes: Bytes::new(memory.free),
        utilization_percent: device.utilization_rates().ok().map(|rates| rates.gpu),
        mig: device.mig_mode().is_ok_and(|mode| mode.current == 1),
        processes: device.running_compute_processes()?.iter().map(process).collect(),
    })
}

fn process(info: &ProcessInfo) -> NvmlProcess {
    let used_bytes = match info.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(Bytes::new(bytes)),
        UsedGpuMemory::Unavailable => None,
    };
    NvmlProcess { pid: info.pid, used_bytes }
}
