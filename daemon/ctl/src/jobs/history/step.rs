//! Change in the use of GPUs.

use serde::Serialize;
use tranche_domain::jobs::MilliGpus;

/// A change in the use of one project or job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Step {
    pub(super) time_unix_ms: u64,
    pub(super) who: String,
    pub(super) gpus: MilliGpus,
}
