//! Time limits of running jobs, and the limit of jobs per user.

use core::fmt;
use core::time::Duration;

use super::job::{JobRefusal, Kind};
use super::project::Project;

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

/// Running and idle time of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Time since the latest start.
    pub running: Duration,
    /// Time since GPU time was last used.
    pub idle: Duration,
}

/// Limit that a member has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// The `--max-runtime` of the job.
    MaxRuntime(Duration),
    /// The project's runtime limit for interactive jobs.
    InteractiveLimit(Duration),
    /// The project's idle limit for interactive jobs.
    IdleLimit(Duration),
}

impl fmt::Display for Overdue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxRuntime(limit) => {
                write!(f, "it ran for {} s, which its --max-runtime is", limit.as_secs())
            }
            Self::InteractiveLimit(limit) => {
                write!(f, "it ran for {} s, the most for interactive jobs of its project", limit.as_secs())
            }
            Self::IdleLimit(limit) => {
                write!(f, "it used no GPU time for {} s, the most for its project", limit.as_secs())
            }
        }
    }
}

impl Project {
    /// The limit that a member of this kind has exceeded, if any.
    pub fn overdue(&self, kind: Kind, max_runtime: Option<Duration>, did: Activity) -> Option<Overdue> {
        let interactive = |limit: Option<Duration>| limit.filter(|_| kind == Kind::Interactive);
        let passed = |limit: Option<Duration>, time: Duration| limit.filter(|limit| time >= *limit);
        let by_owner = passed(max_runtime, did.running).map(Overdue::MaxRuntime);
        let by_project =
            || passed(interactive(self.interactive_limit), did.running).map(Overdue::InteractiveLimit);
        let by_idleness = || passed(interactive(self.idle_limit), did.idle).map(Overdue::IdleLimit);
        by_owner.or_else(by_project).or_else(by_idleness)
    }
}
