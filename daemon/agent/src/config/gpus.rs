//! Configuration value: GPUs to divide.

use serde::{Deserialize, Serialize};
use tranche_domain::id::GpuSelector;

/// GPUs that the daemon divides into slices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "GpusValue", into = "GpusValue")]
pub enum ManagedGpus {
    /// All GPUs of the node.
    #[default]
    All,
    /// These GPUs, at least one.
    These(Vec<GpuSelector>),
}

#[derive(Clone, Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "`gpus` is \"all\", or a list of GPUs by index or UUID, such as [0, \"GPU-...\"]"
)]
enum GpusValue {
    Word(String),
    List(Vec<Name>),
}

#[derive(Clone, Deserialize, Serialize)]
#[serde(untagged, expecting = "a GPU is an index or a UUID")]
enum Name {
    Index(u32),
    Text(String),
}

impl TryFrom<GpusValue> for ManagedGpus {
    type Error = String;

    fn try_from(written: GpusValue) -> Result<Self, String> {
        match written {
            GpusValue::Word(word) if word == "all" => Ok(Self::All),
            GpusValue::Word(word) => Err(format!("`gpus` is {word:?}: it takes \"all\", or a list of GPUs")),
            GpusValue::List(names) if names.is_empty() => {
                Err("`gpus` names none, and without GPUs there are no slices: name some, or \"all\"".into())
            }
            GpusValue::List(names) => {
                names.into_iter().map(selector).collect::<Result<_, _>>().map(Self::These)
            }
        }
    }
}

fn selector(name: Name) -> Result<GpuSelector, String> {
    match name {
        Name::Index(index) => Ok(GpuSelector::Index(index)),
        Name::Text(text) => text.parse().map_err(|bad| format!("`gpus`: {bad}, nor an index")),
    }
}

impl From<ManagedGpus> for GpusValue {
    fn from(gpus: ManagedGpus) -> Self {
        let name = |gpu| match gpu {
            GpuSelector::Index(index) => Name::Index(index),
            GpuSelector::Uuid(uuid) => Name::Text(uuid.to_string()),
        };
        match gpus {
            ManagedGpus::All => Self::Word("all".into()),
            ManagedGpus::These(gpus) => Self::List(gpus.into_iter().map(name).collect()),
        }
    }
}
