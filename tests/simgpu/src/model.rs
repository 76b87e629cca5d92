//! GPUs and nodes as data: what a model is like, which models a node has, and who is linked to whom.

use std::path::Path;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::units::Blocks;

/// Most GPUs a node can have.
pub const MAX_GPUS: usize = 16;

/// Everything that is the same for all GPUs of a kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The name that the driver gives, such as `Tesla V100-SXM2-32GB`.
    pub name: String,
    /// The brand that NVML gives.
    pub brand: Brand,
    /// The chip's generation.
    pub architecture: Architecture,
    /// Compute capability, major then minor.
    pub compute_capability: [u32; 2],
    /// PCI device id above, vendor id below.
    pub pci_device_id: u32,
    /// PCI subsystem device id above, vendor id below.
    pub pci_subsystem_id: u32,
    /// Device memory.
    pub memory: Memory,
    /// Multiprocessors and how they are shared.
    pub compute: Compute,
    /// Clock rates.
    pub clocks: Clocks,
    /// Electrical power.
    pub power: Power,
    /// Temperatures.
    pub temperature: Temperature,
    /// NVLink and PCI Express.
    pub link: Link,
    /// Multi-instance GPU.
    pub mig: Mig,
}

impl Model {
    /// What programs may have of the memory: total less reserved, in whole blocks.
    pub const fn capacity(&self) -> Blocks {
        Blocks((self.memory.total_mib - self.memory.reserved_mib) / 2)
    }

    /// What a context costs in device memory.
    pub const fn context(&self) -> Blocks {
        Blocks::holding_mib(self.memory.context_mib)
    }

    /// What a loaded module costs in device memory.
    pub const fn module(&self) -> Blocks {
        Blocks::holding(self.memory.module_kib << 10)
    }
}

/// A brand, as far as NVML tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Brand {
    /// Tesla, up to Volta.
    Tesla,
    /// NVIDIA, as data-centre GPUs are called since Ampere.
    Nvidia,
}

/// A chip generation.
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
    /// What the driver keeps; the rest, less any odd MiB, can be handed out.
    pub reserved_mib: u64,
    /// What a context takes.
    pub context_mib: u64,
    /// What a loaded module takes.
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
    /// Multiprocessors.
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
    /// Second-level cache.
    pub l2_kib: u32,
    /// Asynchronous copy engines.
    pub copy_engines: u32,
    /// Streams of one context whose heads can run at the same time.
    pub concurrent_kernels: u32,
    /// How long a context runs before another one with work gets its turn.
    pub slice_us: u64,
    /// What changing from one context to another costs; nobody runs meanwhile.
    pub switch_us: u64,
}

/// Clock rates of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clocks {
    /// Multiprocessors, idle.
    pub idle_mhz: u32,
    /// Multiprocessors, at most.
    pub max_mhz: u32,
    /// Memory, always.
    pub memory_mhz: u32,
}

/// Electrical power of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Drawn when idle.
    pub idle_watts: u32,
    /// The limit, drawn when busy.
    pub limit_watts: u32,
}

/// Temperatures of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Temperature {
    /// When idle.
    pub idle_celsius: u32,
    /// When busy.
    pub busy_celsius: u32,
    /// Where clocks go down.
    pub slowdown_celsius: u32,
    /// Where the GPU stops.
    pub shutdown_celsius: u32,
}

/// Links of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// NVLinks; used only where a preset puts the GPU on an island.
    pub nvlinks: u32,
    /// NVLink generation.
    pub nvlink_version: u32,
    /// PCI Express generation.
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

/// One GPU of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuSpec {
    /// Its UUID, as `cuDeviceGetUuid` gives it.
    pub uuid: [u8; 16],
    /// Its PCI bus number; domain and device are 0.
    pub pci_bus: u8,
    /// The NVLink island it is on, if any.
    pub island: Option<u32>,
    /// What it is.
    pub model: Model,
}

impl GpuSpec {
    /// The UUID as NVML writes it: `GPU-` and the usual five groups.
    pub fn uuid_text(&self) -> String {
        let hex: String = self.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// The PCI bus id as NVML writes it, with a domain of eight digits.
    pub fn pci_bus_id(&self) -> String {
        format!("00000000:{:02X}:00.0", self.pci_bus)
    }
}

/// A node: its name and its GPUs in NVML's order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// The preset it was made from.
    pub preset: String,
    /// Its GPUs, at least one and at most [`MAX_GPUS`].
    pub gpus: Vec<GpuSpec>,
}

/// A preset file: which models a node has. In TOML, `[[gpu]]` tables with `model`, `count`, `island`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PresetFile {
    about: String,
    gpu: Vec<PresetGpus>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PresetGpus {
    model: String,
    #[serde(default = "one")]
    count: usize,
    island: Option<u32>,
}

const fn one() -> usize {
    1
}

/// Why a preset can't be used.
#[derive(Debug, Error)]
pub enum BadPreset {
    /// Neither a known name nor a file.
    #[error("no preset is called `{name}` and no file is there; presets are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The file can't be read.
    #[error("can't read the preset file {path}: {source}")]
    Read {
        /// Its path.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not a preset.
    #[error("{name} is not a preset: {source}")]
    Syntax {
        /// Its name or path.
        name: String,
        /// What is wrong, and where.
        source: Box<toml::de::Error>,
    },
    /// The file names a model that isn't there.
    #[error("{name} wants the model `{model}`, which is unknown; models are {known}")]
    Model {
        /// The preset's name or path.
        name: String,
        /// What it wants.
        model: String,
        /// What there is.
        known: String,
    },
    /// No GPU, or too many.
    #[error("{name} has {count} GPUs; a node has 1 to {MAX_GPUS}")]
    Count {
        /// The preset's name or path.
        name: String,
        /// How many.
        count: usize,
    },
}

const MODELS: [(&str, &str); 4] = [
    ("v100-sxm2-32gb", include_str!("../models/v100-sxm2-32gb.toml")),
    ("a100-sxm4-40gb", include_str!("../models/a100-sxm4-40gb.toml")),
    ("a30", include_str!("../models/a30.toml")),
    ("h200", include_str!("../models/h200.toml")),
];

const PRESETS: [(&str, &str); 4] = [
    ("h200x1", include_str!("../presets/h200x1.toml")),
    ("v100x8", include_str!("../presets/v100x8.toml")),
    ("v100x16", include_str!("../presets/v100x16.toml")),
    ("mixed", include_str!("../presets/mixed.toml")),
];

/// Every model with its key.
pub fn models() -> impl Iterator<Item = (&'static str, Model)> {
    MODELS.iter().map(|(key, text)| {
        (*key, toml::from_str(text).expect("models that are built in are valid: a test reads them all"))
    })
}

/// Every built-in preset: its name and what it is.
pub fn presets() -> impl Iterator<Item = (&'static str, String)> {
    PRESETS.iter().map(|(name, text)| {
        let file: PresetFile =
            toml::from_str(text).expect("presets that are built in are valid: a test reads them all");
        (*name, file.about)
    })
}

impl NodeSpec {
    /// Reads a preset: a built-in name, else the path of a preset file.
    pub fn preset(name_or_path: &str) -> Result<Self, BadPreset> {
        if let Some((name, text)) = PRESETS.iter().find(|(name, _)| *name == name_or_path) {
            return Self::parse(name, text);
        }
        if !Path::new(name_or_path).exists() {
            return Err(BadPreset::Unknown { name: name_or_path.into(), known: list(&PRESETS) });
        }
        let text = std::fs::read_to_string(name_or_path)
            .map_err(|source| BadPreset::Read { path: name_or_path.into(), source })?;
        Self::parse(name_or_path, &text)
    }

    /// Reads the text of a preset.
    pub fn parse(name: &str, text: &str) -> Result<Self, BadPreset> {
        let file: PresetFile = toml::from_str(text)
            .map_err(|source| BadPreset::Syntax { name: name.into(), source: Box::new(source) })?;
        let count = file.gpu.iter().map(|group| group.count).fold(0, usize::saturating_add);
        if !(1..=MAX_GPUS).contains(&count) {
            return Err(BadPreset::Count { name: name.into(), count });
        }
        let mut gpus = Vec::with_capacity(count);
        for group in &file.gpu {
            let model = model(name, &group.model)?;
            for _ in 0..group.count {
                gpus.push(numbered(name, gpus.len(), group.island, model.clone()));
            }
        }
        Ok(Self { preset: name.into(), gpus })
    }
}

fn model(preset: &str, key: &str) -> Result<Model, BadPreset> {
    models().find(|(known, _)| *known == key).map(|(_, model)| model).ok_or_else(|| BadPreset::Model {
        name: preset.into(),
        model: key.into(),
        known: list(&MODELS),
    })
}

fn list(table: &[(&str, &str)]) -> String {
    table.iter().map(|(key, _)| *key).collect::<Vec<_>>().join(", ")
}

fn numbered(preset: &str, index: usize, island: Option<u32>, model: Model) -> GpuSpec {
    let pci_bus = 0x10 + 8 * u8::try_from(index).expect("a node has at most 16 GPUs");
    GpuSpec { uuid: uuid(preset, index), pci_bus, island, model }
}

/// The same for the same preset and index, on every machine: a version-4 UUID by its bits, but by no chance.
fn uuid(preset: &str, index: usize) -> [u8; 16] {
    let seed = preset.bytes().chain([0, index as u8]).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&mixed(seed).to_be_bytes());
    uuid[8..].copy_from_slice(&mixed(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)).to_be_bytes());
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// The finaliser of SplitMix64.
const fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_model_and_preset_that_is_built_in_can_be_read() {
        assert_eq!(models().count(), 4);
        let sizes: Vec<_> = presets().map(|(name, _)| NodeSpec::preset(name).unwrap().gpus.len()).collect();
        assert_eq!(sizes, [1, 8, 16, 5]);
    }

    #[test]
    fn a_v100_can_hand_out_32510_mib() {
        let node = NodeSpec::preset("v100x8").unwrap();
        assert_eq!(node.gpus[3].model.capacity().mib(), 32510);
    }

    #[test]
    fn no_two_gpus_share_a_uuid_or_a_bus_id() {
        let nodes: Vec<_> = presets().map(|(name, _)| NodeSpec::preset(name).unwrap()).collect();
        let uuids: HashSet<_> = nodes.iter().flat_map(|node| node.gpus.iter().map(|gpu| gpu.uuid)).collect();
        assert_eq!(uuids.len(), 30);
        for node in nodes {
            let buses: HashSet<_> = node.gpus.iter().map(GpuSpec::pci_bus_id).collect();
            assert_eq!(buses.len(), node.gpus.len());
        }
    }

    #[test]
    fn a_preset_names_the_same_gpus_every_time() {
        assert_eq!(NodeSpec::preset("v100x8").unwrap(), NodeSpec::preset("v100x8").unwrap());
    }

    #[test]
    fn sixteen_v100s_are_in_two_islands_of_eight() {
        let node = NodeSpec::preset("v100x16").unwrap();
        let on = |island| node.gpus.iter().filter(|gpu| gpu.island == Some(island)).count();
        assert_eq!((on(0), on(1)), (8, 8));
    }

    #[test]
    fn an_unknown_preset_says_which_there_are() {
        let message = NodeSpec::preset("v100x9").unwrap_err().to_string();
        assert!(message.contains("v100x9") && message.contains("v100x16"), "{message}");
    }

    #[test]
    fn a_preset_with_an_unknown_model_says_which_there_are() {
        let message =
            NodeSpec::parse("mine", "about = \"x\"\n[[gpu]]\nmodel = \"k80\"").unwrap_err().to_string();
        assert!(message.contains("k80") && message.contains("a100-sxm4-40gb"), "{message}");
    }

    #[test]
    fn a_preset_with_an_unknown_key_is_refused_with_its_line() {
        let message = NodeSpec::parse("mine", "about = \"x\"\ngpus = 3").unwrap_err().to_string();
        assert!(message.contains("gpus") && message.contains("line 2"), "{message}");
    }

    #[test]
    fn a_node_of_seventeen_gpus_is_refused() {
        let text = "about = \"x\"\n[[gpu]]\nmodel = \"a30\"\ncount = 17";
        assert!(matches!(NodeSpec::parse("mine", text), Err(BadPreset::Count { count: 17, .. })));
    }
}
