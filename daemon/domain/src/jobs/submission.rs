//! What somebody hands in: a job, what it runs, and how it is treated; or a change to a project.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::amount::MilliGpus;
use super::job::{JobSpec, Kind};
use super::project::{Affinity, Project};
use super::ticket::TicketId;

/// A job as it is handed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// What is asked for.
    pub spec: JobSpec,
    /// What is run.
    pub launch: Launch,
    /// How it is treated.
    pub terms: Terms,
    /// The submitter's word to the job launcher; older clients have none, and a user's own daemon needs none.
    pub ticket: Option<TicketId>,
}

/// What a job's members run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// All of its environment.
    pub environment: Vec<(String, String)>,
    /// Where it starts: an absolute path.
    pub workdir: String,
}

/// How a job's members are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// How long one may run.
    pub max_runtime: Option<Duration>,
    /// How often one that fails is started again.
    pub retries: u32,
    /// How one is told to leave.
    pub farewell: Farewell,
}

/// How a member is told to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Farewell {
    /// A signal that comes `grace` before SIGTERM, so that it can save where it is.
    pub warning: Option<Warning>,
    /// How long from SIGTERM to SIGKILL.
    pub grace: Duration,
}

impl Farewell {
    /// What is given to those who ask for nothing else.
    pub const DEFAULT: Self = Self { warning: None, grace: Duration::from_secs(10) };
    /// Nobody gets more.
    pub const LONGEST_GRACE: Duration = Duration::from_secs(3600);
}

/// Signals that warn a program and that it can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Warning {
    /// SIGHUP.
    Hup,
    /// SIGINT.
    Int,
    /// SIGUSR1.
    Usr1,
    /// SIGUSR2.
    Usr2,
}

/// A text that names no such signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadWarning(pub String);

impl fmt::Display for BadWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no signal that a job can be warned by: use USR1, USR2, HUP or INT", self.0)
    }
}

impl core::error::Error for BadWarning {}

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

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hup => "SIGHUP",
            Self::Int => "SIGINT",
            Self::Usr1 => "SIGUSR1",
            Self::Usr2 => "SIGUSR2",
        })
    }
}

/// What is to be different of a project. What is nothing stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectChange {
    /// What it can have whenever it wants it.
    pub quota: Option<MilliGpus>,
    /// How much of the surplus is its.
    pub weight: Option<MilliGpus>,
    /// Which GPUs its training may be on; none: any.
    pub training_gpus: Option<Affinity>,
    /// Which GPUs its interactive jobs may be on; none: any.
    pub interactive_gpus: Option<Affinity>,
    /// How long an interactive job may run; zero: for ever.
    pub interactive_limit: Option<Duration>,
    /// How long one may use no GPU time; zero: for ever.
    pub idle_limit: Option<Duration>,
    /// Users who are members from now on.
    pub add: BTreeSet<u32>,
    /// Users who are not any more.
    pub remove: BTreeSet<u32>,
}

impl ProjectChange {
    /// Whether it changes nothing.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Makes it so.
    pub fn apply(self, project: &mut Project) {
        let limit = |limit: Duration| (!limit.is_zero()).then_some(limit);
        project.quota = self.quota.unwrap_or(project.quota);
        project.weight = self.weight.or(project.weight);
        project.interactive_limit = self.interactive_limit.map_or(project.interactive_limit, limit);
        project.idle_limit = self.idle_limit.map_or(project.idle_limit, limit);
        project.members.extend(self.add);
        project.members.retain(|uid| !self.remove.contains(uid));
        let gpus = [(Kind::Training, self.training_gpus), (Kind::Interactive, self.interactive_gpus)];
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
    fn a_warning_reads_back_with_and_without_its_prefix() {
        for (text, warning) in [("USR1", Warning::Usr1), ("SIGUSR2", Warning::Usr2), ("hup", Warning::Hup)] {
            assert_eq!(text.parse(), Ok(warning));
            assert_eq!(warning.to_string().parse(), Ok(warning));
        }
        for text in ["KILL", "SIGSTOP", "9", ""] {
            assert!(text.parse::<Warning>().unwrap_err().to_string().contains("USR1"), "{text}");
        }
    }

    #[test]
    fn a_change_leaves_alone_what_it_does_not_name() {
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
