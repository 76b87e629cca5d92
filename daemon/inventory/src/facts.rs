//! What there is to know of GPUs, as plain data.

use std::fmt;

use tranche_domain::fault::Xid;
use tranche_domain::id::{GpuUuid, HostPid, NumaNode};
use tranche_domain::units::Bytes;

/// The driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Version of the kernel driver.
    pub driver_version: String,
    /// Version of the NVML library.
    pub nvml_version: String,
    /// The CUDA version that the driver supports: 1000 x major + 10 x minor.
    pub cuda_version: u32,
    /// Whether the GPUs are simulated: the simulated NVML says so in its version.
    pub simulated: bool,
    /// GPUs that the driver counts but that would not even tell their UUID.
    pub unreadable: Vec<UnreadableGpu>,
}

/// A GPU of which nothing is known but that it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableGpu {
    /// NVML index.
    pub index: u32,
    /// What NVML said.
    pub cause: String,
}

/// One GPU, as far as it does not change from moment to moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuFacts {
    /// NVML index.
    pub index: u32,
    /// UUID.
    pub uuid: GpuUuid,
    /// Product name.
    pub name: String,
    /// PCI bus id.
    pub pci_bus_id: String,
    /// Compute capability.
    pub compute_capability: ComputeCapability,
    /// NVML's total.
    pub total: Bytes,
    /// What the driver keeps from everybody.
    pub reserved: Bytes,
    /// GPUs of one number reach each other by NVLink.
    pub island: u32,
    /// The one NUMA node that it is near to, where NVML tells.
    pub numa_node: Option<NumaNode>,
    /// Why no slice may be put here, if so.
    pub not_sliceable: Option<NotSliceable>,
}

impl GpuFacts {
    /// What slices can be made of: total less reserved.
    pub fn capacity(&self) -> Bytes {
        self.total.saturating_sub(self.reserved)
    }
}

/// A compute capability, such as 7.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeCapability {
    /// The generation.
    pub major: u32,
    /// The member of it.
    pub minor: u32,
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A fault that the driver reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuFault {
    /// Where; nothing if the driver does not even tell that.
    pub gpu: Option<GpuUuid>,
    /// What.
    pub xid: Xid,
}

/// Why a GPU takes no slices. Prints what is the matter and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSliceable {
    /// Divided by MIG already.
    Mig,
    /// One process at a time.
    ExclusiveProcess,
    /// No process at all.
    Prohibited,
    /// A vGPU, or the host side of vGPUs.
    Vgpu,
    /// The driver says that nothing but this helps.
    NeedsRecovery(Recovery),
    /// Does not answer any more.
    Lost {
        /// What NVML said.
        cause: String,
    },
}

/// What the driver says a GPU needs to work again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// A reset.
    Reset,
    /// A reboot of the node.
    Reboot,
    /// The end of what uses it together with other GPUs.
    DrainPeers,
    /// The end of what uses it, and then a reset.
    DrainAndReset,
}

impl NotSliceable {
    /// Whether something is wrong with it, other than how it is set up.
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

impl fmt::Display for NotSliceable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mig => f.write_str(
                "MIG is on, and a GPU is divided once; use its MIG instances, or turn MIG off with `nvidia-smi -mig 0`",
            ),
            Self::ExclusiveProcess => f.write_str(
                "compute mode is exclusive-process, so that two programs cannot share it; \
                 set the default mode with `nvidia-smi -c 0`",
            ),
            Self::Prohibited => f.write_str(
                "compute mode is prohibited, so that nothing can run on it; \
                 set the default mode with `nvidia-smi -c 0`",
            ),
            Self::Vgpu => f.write_str(
                "it is under NVIDIA vGPU, whose hypervisor divides it already; use a GPU that is passed through whole",
            ),
            Self::NeedsRecovery(recovery) => write!(f, "the driver wants that {recovery}"),
            Self::Lost { cause } => write!(f, "it does not answer ({cause}); reset it or reboot the node"),
        }
    }
}

/// What a GPU is doing at one instant. `None` where this GPU does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuState {
    /// Memory in use by anybody, without what the driver reserves.
    pub used: Bytes,
    /// Share of the last sampling period in which some kernel ran, in percent.
    pub utilization_percent: Option<u32>,
    /// Share of that period in which memory was read or written, in percent.
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
    /// Its pid, in the pid namespace of whoever loaded the driver.
    pub pid: HostPid,
    /// What it holds there, where the driver tells.
    pub used: Option<Bytes>,
}

/// How much of a GPU a process used over one sampling period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessUtilization {
    /// Its pid.
    pub pid: HostPid,
    /// Share of the period in which its kernels ran, in percent.
    pub sm_percent: u32,
    /// Share of the period in which it read or wrote memory, in percent.
    pub memory_percent: u32,
    /// When the sample was taken, in microseconds on the driver's clock.
    pub timestamp_us: u64,
}
