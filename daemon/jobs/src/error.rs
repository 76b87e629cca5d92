//! Errors of the job controller.

use std::io;
use std::path::PathBuf;

use tranche_domain::jobs::{JobName, JobRefusal, ProjectName, ProjectRefusal};

use crate::cgroup::NoLimits;
use crate::store::StoreError;

/// Reason for rejecting an operation.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum JobsError {
    #[error(transparent)]
    Project(#[from] ProjectRefusal),
    #[error(transparent)]
    Job(#[from] JobRefusal),
    #[error("a project named {0} exists already; `tranche project update {0}` changes it")]
    ProjectExists(ProjectName),
    #[error("job {1} of project {0} has ended, and is neither suspended nor resumed: submit it again")]
    Over(ProjectName, JobName),
    #[error("job {1} of project {0} is being deleted, and is neither suspended nor resumed")]
    Leaving(ProjectName, JobName),
    #[error(
        "job {1} of project {0} is not suspended, so there is nothing to resume: `tranche describe -p {0} {1}` shows its state"
    )]
    NotSuspended(ProjectName, JobName),
    #[error(
        "user {uid} is not a member of project {project}: an administrator of the node adds members, with \
         `tranche project update {project} --add-member NAME`"
    )]
    NotAMember { uid: u32, project: ProjectName },
    #[error(
        "job {job} of project {project} is interactive: what it printed may be the way into it, and only its user ({uid}) \
         and administrators of the node may read it"
    )]
    OwnersLog { project: ProjectName, job: JobName, uid: u32 },
    #[error("job {job} of project {project} has no member {index}: it has {count}, from 0")]
    NoSuchMember { project: ProjectName, job: JobName, index: u32, count: u32 },
    #[error(
        "user {uid} sent no ticket of this node's job launcher: the `tranche` that submits has to be of the daemon's \
         release, and tranche-attest.socket has to run (`systemctl enable --now tranche-attest.socket`)"
    )]
    NoTicket { uid: u32 },
    #[error("the ticket is not of user {uid}: a job is submitted by its own user")]
    OthersTicket { uid: u32 },
    #[error(
        "the report would have {rows} rows or more, and a message holds {most}: ask for a shorter time, longer periods, or another \
         grouping"
    )]
    LongReport { rows: usize, most: usize },
    #[error(transparent)]
    NoLimits(#[from] NoLimits),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot read what the job printed, in {path}: {cause}")]
    Log { path: PathBuf, cause: io::Error },
}

/// Reason for which the job controller cannot start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum OpenError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot make {path}: {cause}")]
    Folder { path: PathBuf, cause: io::Error },
}
