//! Reasons for rejecting operations on jobs, and the limit of jobs per user.

use core::num::NonZeroU32;

use super::amount::MilliGpus;
use super::job::JobSpec;
use super::name::{JobName, ProjectName};
use super::size::Size;
use crate::units::Bytes;

/// Maximum number of jobs of one user that have not ended; does not apply to administrators. Bounds the work
/// of listing jobs and the memory for their commands and environments.
pub const MOST_JOBS_OF_A_USER: usize = 2000;

/// Checks whether a user with `has` jobs that have not ended may submit another.
///
/// # Errors
/// If the user has [`MOST_JOBS_OF_A_USER`] of them and is no administrator.
pub const fn permit_another(has: usize, administers: bool) -> Result<(), JobRefusal> {
    if has < MOST_JOBS_OF_A_USER || administers { Ok(()) } else { Err(JobRefusal::TooManyOfUser(has)) }
}

/// Reasons for rejecting an operation on a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobRefusal {
    /// The project does not exist.
    #[error(
        "there is no project {0}; `tranche project list` shows those there are, `tranche project create` \
         makes one"
    )]
    NoProject(ProjectName),
    /// A job with this name exists in the project.
    #[error("a job named {0} exists in this project: choose another name, or delete that one")]
    Exists(JobName),
    /// No job with this name exists in the project.
    #[error("there is no job {1} in project {0}; `tranche list -p {0}` shows them")]
    Unknown(ProjectName, JobName),
    /// A job that it is to come after does not exist.
    #[error(
        "it is to start after {1}, and there is no job {1} in project {0}; `tranche list -p {0}` shows them"
    )]
    AfterUnknown(ProjectName, JobName),
    /// A job that it is to come after has failed.
    #[error(
        "it is to start after {0}, and {0} has failed: submit that one again first, or leave --after out"
    )]
    AfterFailed(JobName),
    /// A job that it is to come after is a service.
    #[error("it is to start after {0}, and {0} is a service, which has no end: leave --after out")]
    AfterService(JobName),
    /// More jobs to come after than [`JobSpec::MOST_BEFORE`]; contains their number.
    #[error("it is to start after {0} jobs, and {most} are possible", most = JobSpec::MOST_BEFORE)]
    AfterTooMany(usize),
    /// More members, or members at once, than [`JobSpec::MOST_MEMBERS`].
    #[error(
        "it asks for {0} members, and a job has at most {most}: submit several jobs, or let each member do more",
        most = JobSpec::MOST_MEMBERS
    )]
    TooManyMembers(NonZeroU32),
    /// Members of a gang would run one after the other, and so wait for each other in vain.
    #[error(
        "its {completions} members are to wait for each other, and only {parallelism} of them run at once: raise \
         --parallelism to --completions, or leave --gang out"
    )]
    ScatteredGang {
        /// Maximum number of members that run at once.
        parallelism: NonZeroU32,
        /// Number of members that have to run to their end.
        completions: NonZeroU32,
    },
    /// The user has [`MOST_JOBS_OF_A_USER`] jobs that have not ended; contains their number.
    #[error(
        "you have {0} jobs that have not ended, and a user has at most {most}: wait for some to end, delete some \
         (`tranche list -A` shows them), or submit one with many members (--completions)",
        most = MOST_JOBS_OF_A_USER
    )]
    TooManyOfUser(usize),
    /// A member would not fit on an empty node.
    #[error(
        "a member takes {size} GPUs of one island, and there are at most {most} that it may use: it could \
         never start; ask for less, or for more members of fewer GPUs each"
    )]
    NeverFits {
        /// GPUs of a member.
        size: Size,
        /// Number of GPUs on the largest island that the project may use.
        most: u32,
    },
    /// No GPU has as much memory as a member.
    #[error(
        "a member takes {memory} of a GPU's memory, and the largest GPU that it may use has {most}: it could never start; \
         ask for less with --memory, or for whole GPUs with -g"
    )]
    TooMuchMemory {
        /// Memory of a member.
        memory: Bytes,
        /// Memory of the largest GPU that the project may use.
        most: Bytes,
    },
    /// The members of a gang would not fit on an empty node together.
    #[error(
        "its {members} members start together, and the GPUs that they may use have room for {most} of {size} GPUs each: it \
         could never start; ask for less with -g, submit fewer members, or leave --gang out"
    )]
    GangNeverFits {
        /// Members of the gang.
        members: NonZeroU32,
        /// GPUs of a member.
        size: Size,
        /// Number of members that fit.
        most: u32,
    },
    /// A member, or all of a gang, of the non-preemptible job exceeds its project's quota.
    #[error(
        "it is interactive and takes {size} GPUs, and its project's quota is {quota}: such a job stays within \
         the quota; ask for less, or let it be stopped for others with --preemptible"
    )]
    AboveQuota {
        /// GPUs of a member, or of all of a gang.
        size: MilliGpus,
        /// Quota of its project.
        quota: MilliGpus,
    },
}
