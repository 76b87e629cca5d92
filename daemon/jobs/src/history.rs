//! History of GPU use by jobs.

use serde::{Deserialize, Serialize};
use tranche_domain::jobs::{JobName, MilliGpus, ProjectName};

/// A change of a job's GPU use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Time in milliseconds since the Unix epoch.
    pub time_unix_ms: u64,
    /// Project of the job.
    pub project: ProjectName,
    /// Name of the job.
    pub job: JobName,
    /// GPUs of all its members from this time on.
    pub gpus: MilliGpus,
}
