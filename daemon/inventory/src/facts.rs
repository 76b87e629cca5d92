//! Properties of GPUs, as plain data.

use std::fmt;

use tranche_domain::fault::Xid;
use tranche_domain::id::{GpuUuid, HostPid, NumaNode};
use tranche_domain::units::Bytes;

/// Properties of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Version of the kernel driver.
    pub driver_version: String,
    /// Version of the NVML library.
    pub nvml_version: String,
    /// Supported CUDA version: 1000 x major + 10 x minor.
    pub cuda_version: u32,
    /// True if the GPUs are simulated, as the simulated NVML's version shows.
    pub simulated: bool,
    /// GPUs that the driver counts but whose UUID is unreadable.
    pub unreadable: Vec<UnreadableGpu>,
}

/// A GPU without readable properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableGpu {
    /// Index of the GPU in NVML.
    pub index: u32,
    /// Error that NVML returned.
    pub cause: String,
}

/// Constant properties of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuFacts {
    /// Index of the GPU in NVML.
    pub index: u32,
    /// UUID, the same after a reboot, unlike the index.
    pub uuid: GpuUuid,
    /// Product name, as NVML reports it.
    pub name: String,
    /// PCI bus id, such as `00000000:3B:00.0`.
    pub pci_bus_id: String,
    /// Compute capability, such as 7.0.
    pub compute_capability: ComputeCapability,
    /// Total memory, from NVML.
    pub total: Bytes,
    /// Memory reserved by the driver.
    pub reserved: Bytes,
    /// Island number; GPUs of the same island are connected by NVLink.
    pub island: u32,
    /// The NUMA node next to it, if NVML reports exactly one.
    pub numa_node: Option<NumaNode>,
    /// Reason for which no slice may be placed here, if any.
    pub not_sliceable: Option<NotSliceable>,
}

impl GpuFacts {
    /// Memory available to slices: total less reserved.
    pub fn capacity(&self) -> Bytes {
        self.total.saturating_sub(self.reserved)
    }
}

/// A compute capability, such as 7.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeCapability {
    /// Major version, such as 7 of 7.5.
    pub major: u32,
    /// Minor version, such as 5 of 7.5.
    pub minor: u32,
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A fault reported by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuFault {
    /// The GPU; `None` if the driver does not report it.
    pub gpu: Option<GpuUuid>,
    /// Kind of the fault.
    pub xid: Xid,
}

/// Reason for which a GPU takes no slices; displays as a message with a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSliceable {
    /// MIG mode is enabled.
    #[error(
        "MIG is on, and a GPU is divided once; use its MIG instances, or turn MIG off with `nvidia-smi -mig 0`"
    )]
    Mig,
    /// Compute mode is exclusive-process.
    #[error(
        "compute mode is exclusive-process, so that two programs cannot share it; \
         set the default mode with `nvidia-smi -c 0`"
    )]
    ExclusiveProcess,
    /// Compute mode is prohibited.
    #[error(
        "compute mode is prohibited, so that nothing can run on it; \
         set the default mode with `nvidia-smi -c 0`"
    )]
    Prohibited,
    /// The GPU is a vGPU, or hosts vGPUs.
    #[error(
        "it is under NVIDIA vGPU, whose hypervisor divides it already; use a GPU that is passed through whole"
    )]
    Vgpu,
    /// The driver demands this recovery.
    #[error("the driver wants that {0}")]
    NeedsRecovery(Recovery),
    /// The GPU does not respond.
    #[error("it does not answer ({cause}); reset it or reboot the node")]
    Lost {
        /// Error that NVML returned.
        cause: String,
    },
}

/// Recovery that the driver demands for a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// A reset of the GPU.
    Reset,
    /// A reboot of the node.
    Reboot,
    /// The end of all programs on it and its peer GPUs.
    DrainPeers,
    /// The end of all programs on it, then a reset.
    DrainAndReset,
}

impl NotSliceable {
    /// Tests if this is a failure rather than a configuration.
    pub const fn is_fault(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::NeedsRecovery(_))
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "it be reset; end what uses it and run `nvidia-smi --gpu-reset`",
            Self::Reboot => "the node be rebooted",
            Self::DrainPeers => "what uses it together with other GPUs end",
            Self::DrainAndReset => "what uses it end and it be reset (`nvidia-smi --gpu-reset`)",
        })
    }
}

/// Momentary state of a GPU. `None` for values that this GPU does not report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuState {
    /// Memory in use by any process, without the driver's reservation.
    pub used: Bytes,
    /// Fraction of the last sampling period with a running kernel, in percent.
    pub utilization_percent: Option<u32>,
    /// Fraction of that period with memory reads or writes, in percent.
    pub memory_utilization_percent: Option<u32>,
    /// Temperature in degrees Celsius.
    pub temperature_celsius: Option<u32>,
    /// Power draw in milliwatts.
    pub power_milliwatts: Option<u32>,
    /// Power limit in force, in milliwatts.
    pub power_limit_milliwatts: Option<u32>,
}

/// A process with a context on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuProcess {
    /// Pid, in the pid namespace in which the driver was loaded.
    pub pid: HostPid,
    /// Memory held, if the driver reports it.
    pub used: Option<Bytes>,
}

/// GPU use of a process over one sampling period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessUtilization {
    /// Pid, as NVML reports it.
    pub pid: HostPid,
    /// Fraction of the period with kernels of the process, in percent.
    pub sm_percent: u32,
    /// Fraction of the period with memory reads or writes, in percent.
    pub memory_percent: u32,
    /// Time of the sample, in microseconds on the driver's clock.
    pub timestamp_us: u64,
}
