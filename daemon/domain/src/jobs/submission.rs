//! Submissions of jobs, and changes to projects.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::str::FromStr;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::amount::MilliGpus;
use super::container::ContainerSpec;
use super::host_limits::HostLimits;
use super::job::{JobKind, JobSpec};
use super::name::JobName;
use super::project::{Affinity, IdlePolicy, Project};
use super::ticket::id::TicketId;
use crate::word::named;

/// Job of one user, with all that its start needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Size, purpose, priority and limits, for the scheduler.
    pub spec: JobSpec,
    /// Command, environment and working directory.
    pub launch: LaunchSpec,
    /// Limits, retries and termination.
    pub terms: JobTerms,
    /// Jobs of the same project that have to succeed before it may start.
    pub after: BTreeSet<JobName>,
    /// Ticket from the job launcher. Older clients send none, and a user's own daemon needs none.
    pub ticket: Option<TicketId>,
}

/// Command, environment and working directory of a job's members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// Program, then its arguments; in a container, empty for the image's own.
    pub command: Vec<String>,
    /// Environment of the program: names and values. In a container the image's own variables precede them.
    pub environment: Vec<(String, String)>,
    /// Absolute path of the working directory; `/` for a job in a container.
    pub workdir: String,
    /// Container of the members; `None` for programs of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerSpec>,
}

/// Limits, retries and termination of a job's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTerms {
    /// Maximum runtime of a member.
    pub max_runtime: Option<Duration>,
    /// Number of restarts of a member that fails.
    pub retries: u32,
    /// Signals and times of termination.
    pub farewell: TerminationPolicy,
    /// Limits of each member on the host.
    #[serde(default, skip_serializing_if = "HostLimits::is_none")]
    pub host: HostLimits,
}

/// Signals and times with which a member is terminated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminationPolicy {
    /// Signal sent `grace` before SIGTERM, so that the program can save a checkpoint.
    pub warning: Option<Warning>,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
}

impl TerminationPolicy {
    /// Policy of jobs that request none: SIGTERM, 10 s of grace, SIGKILL.
    pub const DEFAULT: Self = Self { warning: None, grace: Duration::from_secs(10) };
    /// Maximum `grace`.
    pub const LONGEST_GRACE: Duration = Duration::from_secs(3600);
}

named! {
    /// Signal that announces termination to a program.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Warning {
        /// Hang-up, 1.
        Hup = "SIGHUP",
        /// Interrupt, 2.
        Int = "SIGINT",
        /// SIGUSR1.
        Usr1 = "SIGUSR1",
        /// SIGUSR2.
        Usr2 = "SIGUSR2",
    }
}

/// Error for a text that names no such signal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no signal that a job can be warned by: use USR1, USR2, HUP or INT")]
pub struct BadWarning(pub String);

impl FromStr for Warning {
    type Err = BadWarning;

    fn from_str(text: &str) -> Result<Self, BadWarning> {
        let upper = text.to_ascii_uppercase();
        Ok(match upper.strip_prefix("SIG").unwrap_or(&upper) {
            "HUP" => Self::Hup,
            "INT" => Self::Int,
            "USR1" => Self::Usr1,
            "USR2" => Self::Usr2,
            _ => return Err(BadWarning(text.to_string())),
        })
    }
}

/// Partial update of a project; `None` leaves a field unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectChange {
    /// New quota, if it changes.
    pub quota: Option<MilliGpus>,
    /// Weight in the division of the surplus.
    pub weight: Option<MilliGpus>,
    /// NVML indices of the GPUs for training; empty permits all.
    pub training_gpus: Option<Affinity>,
    /// NVML indices of the GPUs for interactive jobs; empty permits all.
    pub interactive_gpus: Option<Affinity>,
    /// Maximum runtime of an interactive job; zero removes the limit.
    pub interactive_limit: Option<Duration>,
    /// Maximum idle time of an interactive job; zero removes the limit.
    pub idle_limit: Option<Duration>,
    /// Consequence for what counts as idle.
    pub idle_policy: Option<IdlePolicy>,
    /// Uids of users to add as members.
    pub add: BTreeSet<u32>,
    /// Uids of users to remove.
    pub remove: BTreeSet<u32>,
}

impl ProjectChange {
    /// Tests if no field would change.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Changes the project by the fields that are set.
    pub fn apply(self, project: &mut Project) {
        let limit = |limit: Duration| (!limit.is_zero()).then_some(limit);
        project.quota = self.quota.unwrap_or(project.quota);
        project.weight = self.weight.or(project.weight);
        project.interactive_limit = self.interactive_limit.map_or(project.interactive_limit, limit);
        project.idle_limit = self.idle_limit.map_or(project.idle_limit, limit);
        project.idle_policy = self.idle_policy.unwrap_or(project.idle_policy);
        project.members.extend(self.add);
        project.members.retain(|uid| !self.remove.contains(uid));
        let gpus = [(JobKind::Training, self.training_gpus), (JobKind::Interactive, self.interactive_gpus)];
        for (kind, gpus) in gpus.into_iter().filter_map(|(kind, gpus)| Some((kind, gpus?))) {
            project.affinity.remove(&kind);
            project.affinity.extend((!gpus.is_empty()).then_some((kind, gpus)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_signal_parses_with_and_without_prefix() {
        for (text, warning) in [("USR1", Warning::Usr1), ("SIGUSR2", Warning::Usr2), ("hup", Warning::Hup)] {
            assert_eq!(text.parse(), Ok(warning));
            assert_eq!(warning.to_string().parse(), Ok(warning));
        }
        for text in ["KILL", "SIGSTOP", "9", ""] {
            assert!(text.parse::<Warning>().unwrap_err().to_string().contains("USR1"), "{text}");
        }
    }

    #[test]
    fn unset_fields_of_a_change_stay() {
        let mut project = Project::new("a".parse().unwrap(), MilliGpus::whole(2));
        let set = ProjectChange {
            interactive_limit: Some(Duration::from_secs(5)),
            training_gpus: Some([1].into()),
            add: [7, 8].into(),
            ..ProjectChange::default()
        };
        set.apply(&mut project);
        let before = project.clone();
        ProjectChange::default().apply(&mut project);
        assert_eq!(project, before);
        let back = ProjectChange {
            interactive_limit: Some(Duration::ZERO),
            training_gpus: Some(Affinity::new()),
            remove: [7].into(),
            ..ProjectChange::default()
        };
        back.apply(&mut project);
        assert_eq!((project.interactive_limit, project.affinity.len()), (None, 0));
        assert_eq!(project.members, [8].into());
    }
}
