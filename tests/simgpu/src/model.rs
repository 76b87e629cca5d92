//! GPUs as data: the properties of a model.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

use crate::units::Blocks;

/// Everything that is the same for all GPUs of a kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The name that the driver gives, such as `Tesla V100-SXM2-32GB`.
    pub name: String,
    /// The brand that NVML gives.
    pub brand: Brand,
    /// Generation of the chip.
    pub architecture: Architecture,
    /// Compute capability, major then minor.
    pub compute_capability: [u32; 2],
    /// PCI device id above, vendor id below.
    pub pci_device_id: u32,
    /// PCI subsystem device id above, vendor id below.
    pub pci_subsystem_id: u32,
    /// Size and bandwidth of device memory.
    pub memory: Memory,
    /// Multiprocessors and how they are shared.
    pub compute: Compute,
    /// Clock rates in MHz.
    pub clocks: Clocks,
    /// Electrical power in watts.
    pub power: Power,
    /// Temperatures in degrees Celsius.
    pub temperature: Temperature,
    /// NVLink and PCI Express.
    pub link: Link,
    /// Multi-instance GPU of the model.
    pub mig: Mig,
}

impl Model {
    /// Memory that programs may have: total less reserved, in whole blocks.
    pub const fn capacity(&self) -> Blocks {
        Blocks((self.memory.total_mib - self.memory.reserved_mib) / 2)
    }

    /// Device memory of a context, in blocks.
    pub const fn context(&self) -> Blocks {
        Blocks::holding_mib(self.memory.context_mib)
    }

    /// Device memory of a loaded module, in blocks.
    pub const fn module(&self) -> Blocks {
        Blocks::holding(self.memory.module_kib << 10)
    }
}

/// A brand, as far as NVML distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Brand {
    /// Tesla, up to Volta.
    Tesla,
    /// NVIDIA, as data-centre GPUs are called since Ampere.
    Nvidia,
}

/// A generation of chips, by compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// Compute capability 7.0.
    Volta,
    /// Compute capability 7.5.
    Turing,
    /// Compute capability 8.0 and 8.6.
    Ampere,
    /// Compute capability 8.9.
    Ada,
    /// Compute capability 9.0.
    Hopper,
}

/// Device memory of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// All of it, as NVML's second memory query gives it.
    pub total_mib: u64,
    /// Memory that the driver keeps; the rest, less any odd MiB, can be handed out.
    pub reserved_mib: u64,
    /// Device memory of a context in MiB.
    pub context_mib: u64,
    /// Device memory of a loaded module in KiB.
    pub module_kib: u64,
    /// Size of the BAR1 aperture.
    pub bar1_mib: u64,
    /// Width of the bus.
    pub bus_bits: u32,
    /// Bandwidth, for the duration of copies inside the device.
    pub gigabytes_per_second: u64,
}

/// Multiprocessors of a model and how contexts share them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compute {
    /// Number of streaming multiprocessors.
    pub sm_count: u32,
    /// FP32 cores in each.
    pub cores_per_sm: u32,
    /// Threads that can reside on one.
    pub max_threads_per_sm: u32,
    /// Blocks that can reside on one.
    pub max_blocks_per_sm: u32,
    /// 32-bit registers of one.
    pub registers_per_sm: u32,
    /// Shared memory of one.
    pub shared_kib_per_sm: u32,
    /// Shared memory that one block can opt in to.
    pub shared_kib_per_block_optin: u32,
    /// Size of the second-level cache.
    pub l2_kib: u32,
    /// Number of asynchronous copy engines.
    pub copy_engines: u32,
    /// Streams of one context whose heads can run at the same time.
    pub concurrent_kernels: u32,
    /// Length of a context's turn in microseconds while another has work.
    pub slice_us: u64,
    /// Cost of taking the GPU from a context with work and giving it to another; no context runs meanwhile.
    /// With slices of 2 ms, 190 us lose 8.7 %; published for two saturating contexts are 9.4 % (GV100,
    /// artefacts of XSched, OSDI'25) and 8 % (A100).
    pub switch_us: u64,
    /// Cost of a change of contexts when the last has no work left: nothing is saved. A guess between nothing
    /// and the 34 to 41 us that a driver's own preemption was measured to take (XSched, GV100).
    pub handover_us: u64,
}

/// Clock rates of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clocks {
    /// Clock of idle multiprocessors in MHz.
    pub idle_mhz: u32,
    /// Highest clock of the multiprocessors in MHz.
    pub max_mhz: u32,
    /// Constant clock of the memory in MHz.
    pub memory_mhz: u32,
}

/// Electrical power of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Power drawn when idle, in watts.
    pub idle_watts: u32,
    /// The limit, drawn when busy.
    pub limit_watts: u32,
}

/// Temperatures of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Temperature {
    /// Temperature of an idle GPU.
    pub idle_celsius: u32,
    /// Temperature of a busy GPU.
    pub busy_celsius: u32,
    /// Temperature at which clocks go down.
    pub slowdown_celsius: u32,
    /// Temperature at which the GPU stops.
    pub shutdown_celsius: u32,
}

/// Links of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// NVLinks; used only where a preset puts the GPU on an island.
    pub nvlinks: u32,
    /// Generation of its NVLinks.
    pub nvlink_version: u32,
    /// Generation of PCI Express.
    pub pcie_generation: u32,
    /// Bandwidth, for the duration of copies to and from the host.
    pub pcie_gigabytes_per_second: u64,
}

/// Multi-instance GPU of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mig {
    /// Most instances; 0 where the model has no MIG.
    pub instances: u32,
}

pub(crate) const MODELS: [(&str, &str); 4] = [
    ("v100-sxm2-32gb", include_str!("../models/v100-sxm2-32gb.toml")),
    ("a100-sxm4-40gb", include_str!("../models/a100-sxm4-40gb.toml")),
    ("a30", include_str!("../models/a30.toml")),
    ("h200", include_str!("../models/h200.toml")),
];

/// Every model with its key.
pub fn models() -> impl Iterator<Item = (&'static str, Model)> {
    MODELS.iter().map(|(key, text)| {
        (*key, toml::from_str(text).expect("models that are built in are valid: a test reads them all"))
    })
}
