//! Holders of GPUs, and what they have at one instant.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::jobs::{MilliGpus, ProjectName};

/// Holder of a part of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuHolder {
    /// Project of the job or slice; `None` on a node without projects, and for pods.
    pub project: Option<ProjectName>,
    /// Uid of the owner.
    pub uid: u32,
    /// Name of the job, `slice:NAME`, or `pod:NAMESPACE/NAME`.
    pub name: String,
    /// UUID of the GPU.
    pub gpu: GpuUuid,
}

/// Identity of a slice on one GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct MeterId {
    pub(crate) slice: SliceName,
    /// Time of creation; later slices of the name have another.
    pub(crate) created_unix_ms: u64,
    pub(crate) gpu: GpuUuid,
}

/// Part of one GPU that a slice or a member of a job has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldPart {
    pub(crate) holder: GpuHolder,
    pub(crate) gpus: MilliGpus,
    pub(crate) idle: bool,
    /// GPU time that the slice has used; `None` before it is created.
    pub(crate) meter: Option<(MeterId, Duration)>,
}

/// Amount of a GPU that a holder has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holding {
    pub(crate) gpus: MilliGpus,
    pub(crate) idle: MilliGpus,
    /// Part beyond the project's quota.
    pub(crate) borrowed: MilliGpus,
}
