//! Time limits of running jobs.

use core::fmt;
use core::time::Duration;

use super::job::{JobKind, JobSpec};
use super::project::{IdlePolicy, Project};

/// Running and idle time of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberActivity {
    /// Time since the latest start.
    pub running: Duration,
    /// Time since GPU time was last used.
    pub idle: Duration,
    /// True if that counts as idle on this node.
    pub counts_as_idle: bool,
}

/// Least and largest limit of a member's runtime or idleness; limits are checked every second.
const TIME_LIMITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_hours(24 * 3650)];

/// Error for a limit of time that would end each member at once, or none ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a limit of {0:?} is not possible: give one from 1s to 3650 days, or none")]
pub struct BadTimeLimit(pub Duration);

/// A limit of a member's runtime or idleness, if it is within its bounds.
///
/// # Errors
/// If it is shorter than a second, or longer than 3650 days.
pub fn time_limit(limit: Duration) -> Result<Duration, BadTimeLimit> {
    let [least, most] = TIME_LIMITS;
    if (least..=most).contains(&limit) { Ok(limit) } else { Err(BadTimeLimit(limit)) }
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
    /// The project ends what counts as idle; after this time.
    Idle(Duration),
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
            Self::Idle(time) => {
                write!(f, "it used no GPU time for {} s, and its project ends what is idle", time.as_secs())
            }
            Self::IdleLimit(limit) => {
                write!(f, "it used no GPU time for {} s, the most for its project", limit.as_secs())
            }
        }
    }
}

impl Project {
    /// The limit that a member of this job has exceeded, if any. The limits for interactive jobs are not for services.
    pub fn overdue(
        &self,
        spec: &JobSpec,
        max_runtime: Option<Duration>,
        did: MemberActivity,
    ) -> Option<Overdue> {
        let is_limited = spec.kind == JobKind::Interactive && spec.service.is_none();
        let interactive = |limit: Option<Duration>| limit.filter(|_| is_limited);
        let passed = |limit: Option<Duration>, time: Duration| limit.filter(|limit| time >= *limit);
        let by_owner = passed(max_runtime, did.running).map(Overdue::MaxRuntime);
        let by_project =
            || passed(interactive(self.interactive_limit), did.running).map(Overdue::InteractiveLimit);
        let by_idleness = || passed(interactive(self.idle_limit), did.idle).map(Overdue::IdleLimit);
        let ends = did.counts_as_idle && self.idle_policy == IdlePolicy::End;
        let by_policy = || ends.then_some(Overdue::Idle(did.idle));
        by_owner.or_else(by_project).or_else(by_idleness).or_else(by_policy)
    }
}
