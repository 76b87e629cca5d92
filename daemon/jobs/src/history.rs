//! Who had how much when.

use serde::{Deserialize, Serialize};
use tranche_domain::jobs::{JobName, MilliGpus, ProjectName};

/// From then on a job had so much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// In milliseconds since the Unix epoch.
    pub time_unix_ms: u64,
    /// The job's project.
    pub project: ProjectName,
    /// The job.
    pub job: JobName,
    /// What its members had together.
    pub gpus: MilliGpus,
}
