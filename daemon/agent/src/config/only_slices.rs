//! Configuration value: processes that may open the GPUs.

use std::path::{Component, PathBuf};

use serde::{Deserialize, Serialize};

/// Cgroup of NVIDIA's persistence daemon, where it runs as a service.
const PERSISTENCED: &str = "/system.slice/nvidia-persistenced.service";

/// Processes that the kernel permits to open the GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "OnlySlicesValue", into = "OnlySlicesValue")]
pub enum OnlySlices {
    /// Any process, subject to file modes and other cgroups.
    #[default]
    No,
    /// Processes of slices, of the daemon, and in these cgroups.
    Besides(Vec<PathBuf>),
}

#[derive(Clone, Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "`only_slices` is true, false, or a list of cgroups such as [\"/system.slice/dcgm-exporter.service\"]"
)]
enum OnlySlicesValue {
    Is(bool),
    Besides(Vec<PathBuf>),
}

impl OnlySlices {
    /// Additional cgroups without their first slash; `None` where every process may open GPUs.
    pub(crate) fn besides(&self) -> Option<Vec<PathBuf>> {
        let below = |path: &PathBuf| path.strip_prefix("/").unwrap_or(path).to_owned();
        match self {
            Self::No => None,
            Self::Besides(cgroups) => Some(cgroups.iter().map(below).collect()),
        }
    }
}

impl TryFrom<OnlySlicesValue> for OnlySlices {
    type Error = String;

    fn try_from(written: OnlySlicesValue) -> Result<Self, String> {
        let cgroups = match written {
            OnlySlicesValue::Is(false) => return Ok(Self::No),
            OnlySlicesValue::Is(true) => vec![PERSISTENCED.into()],
            OnlySlicesValue::Besides(cgroups) => cgroups,
        };
        let is_below = |path: &PathBuf| {
            let mut parts = path.components();
            parts.next() == Some(Component::RootDir)
                && parts.clone().next().is_some()
                && parts.all(|part| matches!(part, Component::Normal(_)))
        };
        match cgroups.iter().find(|path| !is_below(path)) {
            Some(wrong) => Err(format!(
                "`only_slices` names {}: it takes paths beneath the root of the cgroups, as `systemctl show -P ControlGroup \
                 NAME` prints them",
                wrong.display()
            )),
            None => Ok(Self::Besides(cgroups)),
        }
    }
}

impl From<OnlySlices> for OnlySlicesValue {
    fn from(only: OnlySlices) -> Self {
        match only {
            OnlySlices::No => Self::Is(false),
            OnlySlices::Besides(cgroups) => Self::Besides(cgroups),
        }
    }
}
