//! Nodes as data: models of a node, differences of its GPUs, and links among them.
#![forbid(unsafe_code)]

use std::path::Path;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::model::{MODELS, Model, models};
use crate::personality::Personality;

/// Most GPUs a node can have.
pub const MAX_GPUS: usize = 16;

/// One GPU of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuSpec {
    /// Its UUID, as `cuDeviceGetUuid` gives it.
    pub uuid: [u8; 16],
    /// Its PCI bus number; domain and device are 0.
    pub pci_bus: u8,
    /// The NVLink island it is on, if any.
    pub island: Option<u32>,
    /// Model of the GPU.
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
    /// Driver of the node.
    #[serde(default)]
    pub driver: Personality,
    /// Its GPUs, at least one and at most [`MAX_GPUS`].
    pub gpus: Vec<GpuSpec>,
}

/// A preset file: which models a node has. In TOML, `[[gpu]]` tables with `model`, `count`,
/// `island`, and perhaps the `driver`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PresetFile {
    about: String,
    driver: Option<String>,
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
        /// Name that was given.
        name: String,
        /// Names of known presets.
        known: String,
    },
    /// The file can't be read.
    #[error("can't read the preset file {path}: {source}")]
    Read {
        /// Path of the file.
        path: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The file is not a preset.
    #[error("{name} is not a preset: {source}")]
    Syntax {
        /// Its name or path.
        name: String,
        /// Syntax error and its position.
        source: Box<toml::de::Error>,
    },
    /// The file names a model that isn't there.
    #[error("{name} wants the model `{model}`, which is unknown; models are {known}")]
    Model {
        /// The preset's name or path.
        name: String,
        /// Model that it names.
        model: String,
        /// Keys of known models.
        known: String,
    },
    /// A driver that isn't there.
    #[error("{name} wants the driver `{driver}`, which is unknown; drivers are {known}")]
    Driver {
        /// Preset's name or path, or the command, that names the driver.
        name: String,
        /// Key of the driver.
        driver: String,
        /// Keys of known drivers.
        known: String,
    },
    /// No GPU, or too many.
    #[error("{name} has {count} GPUs; a node has 1 to {MAX_GPUS}")]
    Count {
        /// The preset's name or path.
        name: String,
        /// Number of its GPUs.
        count: usize,
    },
}

const PRESETS: [(&str, &str); 4] = [
    ("h200x1", include_str!("../presets/h200x1.toml")),
    ("v100x8", include_str!("../presets/v100x8.toml")),
    ("v100x16", include_str!("../presets/v100x16.toml")),
    ("mixed", include_str!("../presets/mixed.toml")),
];

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
        let driver = match &file.driver {
            Some(key) => driver(name, key)?,
            None => Personality::default(),
        };
        Ok(Self { preset: name.into(), driver, gpus })
    }

    /// The same node with another driver.
    pub fn with_driver(self, key: &str) -> Result<Self, BadPreset> {
        Ok(Self { driver: driver(&self.preset, key)?, ..self })
    }
}

fn driver(preset: &str, key: &str) -> Result<Personality, BadPreset> {
    Personality::named(key).ok_or_else(|| BadPreset::Driver {
        name: preset.into(),
        driver: key.into(),
        known: Personality::keys(),
    })
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

/// Version-4 UUID by its bits, but by no chance: the same for the same preset and index.
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
    fn a_preset_with_an_unknown_driver_is_refused() {
        let text = "about = \"x\"\ndriver = \"340\"\n[[gpu]]\nmodel = \"a30\"";
        let message = NodeSpec::parse("mine", text).unwrap_err().to_string();
        assert!(message.contains("340") && message.contains("535, 550, 570, 580, 610"), "{message}");
    }

    #[test]
    fn a_preset_without_a_driver_has_550() {
        let node = NodeSpec::preset("mixed").unwrap();
        assert_eq!(node.driver.key, "550");
        assert_eq!(node.with_driver("610").unwrap().driver.cuda, 13_050);
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
