//! How long jobs may run and be idle, and how many a user may have.

use core::fmt;
use core::time::Duration;

use super::job::{JobRefusal, Kind};
use super::project::Project;

/// A user has no more jobs that have not ended, unless they administer the node: each is looked at whenever somebody lists
/// jobs, and is kept with its command and its environment.
pub const MOST_JOBS_OF_A_USER: usize = 2000;

/// Whether a user with so many jobs that have not ended may submit another.
///
/// # Errors
/// If they have as many as one may.
pub const fn permit_another(has: usize, administers: bool) -> Result<(), JobRefusal> {
    if has < MOST_JOBS_OF_A_USER || administers { Ok(()) } else { Err(JobRefusal::TooManyOfUser(has)) }
}

/// What a member has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// For how long it has been running, since it started last.
    pub running: Duration,
    /// For how long it has used no GPU time.
    pub idle: Duration,
}

/// Why a member has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// It has run as long as whoever submitted it allowed.
    MaxRuntime(Duration),
    /// It has run as long as its project allows interactive jobs to.
    InteractiveLimit(Duration),
    /// It has used no GPU time for as long as its project allows interactive jobs to.
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
    /// Whether a member of that kind has to end, and why.
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
