//! Conversions of projects and jobs.

mod container;
mod project;
mod report;
mod service;
mod submission;
mod view;

pub use project::ProjectWish;

use tranche_domain::jobs::{JobName, ProjectName};

use crate::mirror::mirror;
use crate::v1;

/// Selection of jobs to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobListing {
    /// Jobs of this project; all projects if absent.
    pub project: Option<ProjectName>,
    /// With a project: the job of this name.
    pub name: Option<JobName>,
}

mirror! {
    JobListing = v1::ListJobsRequest { project, name }
}
