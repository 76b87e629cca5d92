//! Division of GPUs into devices, as configured.

use std::fmt;

use tranche_domain::id::GpuSelector;

use crate::profile::ProfileName;

/// Division of GPUs into devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Division {
    /// Each GPU by its layout; all devices are available at the same time.
    Static(Vec<Layout>),
    /// Each GPU offers every profile; devices that do not fit beside those in use become unhealthy.
    Dynamic,
}

/// Division of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The GPUs that it applies to.
    pub of: LayoutScope,
    /// Profiles of its devices; a name may occur several times.
    pub profiles: Vec<ProfileName>,
}

/// GPUs that a layout applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutScope {
    /// All without a more specific layout.
    Any,
    /// All of a model, by its product name, as in NVML and `tranche smi`.
    Model(String),
    /// One GPU, by index or UUID.
    Gpu(GpuSelector),
}

impl fmt::Display for LayoutScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("all GPUs"),
            Self::Model(model) => write!(f, "model {model:?}"),
            Self::Gpu(gpu) => write!(f, "GPU {gpu}"),
        }
    }
}
