//! History of GPU use by jobs and users' slices.

use serde::{Deserialize, Serialize};
use tranche_domain::id::SliceName;
use tranche_domain::jobs::{MilliGpus, ProjectName};

/// A change of the GPU use of a job or a user's slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Time in milliseconds since the Unix epoch.
    pub time_unix_ms: u64,
    /// Project of the job or slice.
    pub project: ProjectName,
    /// Name of the job, or `slice:NAME` of a slice.
    pub job: String,
    /// GPUs of all its members from this time on.
    pub gpus: MilliGpus,
}

/// Project and name of an entry of the history.
pub(crate) type EntryName = (ProjectName, String);

/// Name of a user's slice among those of jobs, which have no colon.
pub(crate) fn slice_entry(name: &SliceName) -> String {
    format!("slice:{name}")
}
