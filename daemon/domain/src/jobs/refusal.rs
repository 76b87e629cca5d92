//! Reasons for rejecting operations on jobs, and the limit of jobs per user.

use core::fmt;
use core::num::NonZeroU32;

use super::amount::MilliGpus;
use super::job::{JobSpec, Size};
use super::name::{JobName, ProjectName};

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobRefusal {
    /// The project does not exist.
    NoProject(ProjectName),
    /// A job with this name exists in the project.
    Exists(JobName),
    /// No job with this name exists in the project.
    Unknown(ProjectName, JobName),
    /// More members, or members at once, than [`JobSpec::MOST_MEMBERS`].
    TooManyMembers(NonZeroU32),
    /// The user has [`MOST_JOBS_OF_A_USER`] jobs that have not ended; contains their number.
    TooManyOfUser(usize),
    /// A member would not fit on an empty node.
    NeverFits {
        /// GPUs of a member.
        size: Size,
        /// Number of GPUs on the largest island that the project may use.
        most: u32,
    },
    /// A member of the non-preemptible job exceeds its project's quota.
    AboveQuota {
        /// GPUs of a member.
        size: Size,
        /// Quota of its project.
        quota: MilliGpus,
    },
}

impl fmt::Display for JobRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProject(name) => write!(
                f,
                "there is no project {name}; `tranche project list` shows those there are, `tranche project \
                 create` makes one"
            ),
            Self::Exists(name) => {
                write!(
                    f,
                    "a job named {name} exists in this project: choose another name, or delete that one"
                )
            }
            Self::Unknown(project, name) => {
                write!(
                    f,
                    "there is no job {name} in project {project}; `tranche list -p {project}` shows them"
                )
            }
            Self::TooManyMembers(count) => write!(
                f,
                "it asks for {count} members, and a job has at most {}: submit several jobs, or let each member do more",
                JobSpec::MOST_MEMBERS
            ),
            Self::TooManyOfUser(has) => write!(
                f,
                "you have {has} jobs that have not ended, and a user has at most {MOST_JOBS_OF_A_USER}: wait for some to \
                 end, delete some (`tranche list -A` shows them), or submit one with many members (--completions)"
            ),
            Self::NeverFits { size, most } => write!(
                f,
                "a member takes {size} GPUs of one island, and there are at most {most} that it may use: it \
                 could never start; ask for less, or for more members of fewer GPUs each"
            ),
            Self::AboveQuota { size, quota } => write!(
                f,
                "it is interactive and takes {size} GPUs, and its project's quota is {quota}: such a job stays \
                 within the quota; ask for less, or let it be stopped for others with --preemptible"
            ),
        }
    }
}

impl core::error::Error for JobRefusal {}
