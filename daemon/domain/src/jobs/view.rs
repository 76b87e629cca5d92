//! What there is to see of projects and jobs, as plain data for people and scripts.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::Serialize;

use super::amount::MilliGpus;
use super::job::{JobSpec, Kind};
use super::name::{JobName, ProjectName};
use super::project::Project;
use crate::id::{HostPid, SliceName};

/// How far a job, or one of its members, is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It waits for its turn or its place.
    #[default]
    Pending,
    /// It has a place, and its slice and process are being made.
    Creating,
    /// It runs.
    Running,
    /// It was told to leave.
    Stopping,
    /// It has come to its end.
    Succeeded,
    /// It has ended in another way.
    Failed,
}

impl JobState {
    /// The state of a job some of whose members are in these states.
    pub fn of_members(states: impl Iterator<Item = Self>) -> Self {
        let rank = |state: &Self| match state {
            Self::Running => 3,
            Self::Creating => 2,
            Self::Stopping => 1,
            Self::Pending | Self::Succeeded | Self::Failed => 0,
        };
        let most = states.max_by_key(rank).filter(|state| rank(state) > 0);
        most.unwrap_or_default()
    }

    /// Whether nothing more happens.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pending => "Pending",
            Self::Creating => "Creating",
            Self::Running => "Running",
            Self::Stopping => "Stopping",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        })
    }
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobView {
    /// Its project.
    pub project: ProjectName,
    /// Its name there.
    pub name: JobName,
    /// How far it is.
    pub state: JobState,
    /// Why it is not further, or how it ended.
    pub reason: String,
    /// What it is for.
    pub kind: Kind,
    /// Whether it may be stopped for others.
    pub preemptible: bool,
    /// Where it stands in its project's queue: the higher first.
    pub priority: i32,
    /// What each member takes, in thousandths of a GPU.
    pub gpus_of_member: MilliGpus,
    /// How many members may run at once.
    pub parallelism: u32,
    /// How many have to come to their end.
    pub completions: u32,
    /// How many have.
    pub succeeded: u32,
    /// How many have ended in another way.
    pub failed: u32,
    /// Who submitted it.
    pub uid: u32,
    /// When, in milliseconds since the Unix epoch.
    pub submitted_unix_ms: u64,
    /// When its last member ended.
    pub ended_unix_ms: Option<u64>,
    /// Members that have or had a place, in order.
    pub members: Vec<MemberView>,
    /// What it runs; nothing for those who may only look.
    pub command: Vec<String>,
    /// Where; nothing for those who may only look.
    pub workdir: String,
    /// Where it says that it can be reached, if it is interactive; nothing for those who may only look.
    pub url: Option<String>,
}

impl JobView {
    /// What its members have now.
    pub fn allocated(&self) -> MilliGpus {
        let has = |member: &&MemberView| matches!(member.state, JobState::Creating | JobState::Running);
        self.members.iter().filter(has).map(|_| self.gpus_of_member).sum()
    }

    /// With what was asked for, and nothing yet of how far it is.
    pub fn of(spec: &JobSpec) -> Self {
        Self {
            project: spec.project.clone(),
            name: spec.name.clone(),
            state: JobState::Pending,
            reason: String::new(),
            kind: spec.kind,
            preemptible: !spec.is_lasting(),
            priority: spec.priority.get().into(),
            gpus_of_member: spec.size.total(),
            parallelism: spec.parallelism.get(),
            completions: spec.completions.get(),
            succeeded: 0,
            failed: 0,
            uid: 0,
            submitted_unix_ms: 0,
            ended_unix_ms: None,
            members: Vec::new(),
            command: Vec::new(),
            workdir: String::new(),
            url: None,
        }
    }
}

/// One of a job's members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberView {
    /// Which, from 0.
    pub index: u32,
    /// How far it is.
    pub state: JobState,
    /// Why, where there is something to say.
    pub reason: String,
    /// Indices of its GPUs, while it has some.
    pub gpus: Vec<u32>,
    /// Its slice, while it has one.
    pub slice: Option<SliceName>,
    /// The process that looks after it, while there is one.
    pub pid: Option<HostPid>,
    /// How often it was started.
    pub starts: u32,
    /// When it was started last, in milliseconds since the Unix epoch.
    pub started_unix_ms: Option<u64>,
}

/// A project, with what it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProjectView {
    /// What it was promised.
    #[serde(flatten)]
    pub project: Project,
    /// What its jobs have, those on their way out not counted.
    pub allocated: MilliGpus,
    /// Jobs that run.
    pub running: u32,
    /// Jobs of which no member has a place.
    pub queued: u32,
}
