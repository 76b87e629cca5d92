//! Projects and jobs: domain to wire and back.

mod project;
mod submission;
mod view;

pub use project::ProjectWish;

use tranche_domain::jobs::{JobName, ProjectName};

use crate::convert::BadMessage;
use crate::v1;

/// Selection of jobs to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobListing {
    /// Jobs of this project; all projects if absent.
    pub project: Option<ProjectName>,
    /// With a project: the job of this name.
    pub name: Option<JobName>,
}

impl TryFrom<v1::ListJobsRequest> for JobListing {
    type Error = BadMessage;

    fn try_from(wire: v1::ListJobsRequest) -> Result<Self, BadMessage> {
        Ok(Self {
            project: wire.project.map(|name| name.parse()).transpose()?,
            name: wire.name.map(|name| name.parse()).transpose()?,
        })
    }
}

impl From<JobListing> for v1::ListJobsRequest {
    fn from(listing: JobListing) -> Self {
        Self { project: listing.project.map(Into::into), name: listing.name.map(Into::into) }
    }
}
