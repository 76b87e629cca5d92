//! Views of projects and jobs for clients, as plain data.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Serialize;

use super::amount::MilliGpus;
use super::container::{ContainerMount, ImageName, PublishedPort};
use super::host_limits::Cpus;
use super::job::{JobKind, JobSpec};
use super::name::{JobName, ProjectName};
use super::project::Project;
use super::service::ServiceSpec;
use crate::compute::Latency;
use crate::id::{HostPid, SliceName};
use crate::units::{Bytes, Permille};
use crate::word::named;

named! {
    /// State of a job or of one of its members.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum JobState {
        /// Queued, or waiting for its GPUs to empty.
        #[default]
        Pending = "Pending",
        /// Bound to GPUs; its slice and process are being created.
        Creating = "Creating",
        /// Its program runs, for a job that of a member.
        Running = "Running",
        /// Signalled to terminate, or being parked.
        Stopping = "Stopping",
        /// Its device memory lies in host memory; it continues where it was.
        Parked = "Parked",
        /// Ended with status 0, for a job every member.
        Succeeded = "Succeeded",
        /// Ended otherwise, without a retry left.
        Failed = "Failed",
    }
}

impl JobState {
    /// State of a job with bound members in these states: the most advanced of them.
    pub fn of_members(states: impl Iterator<Item = Self>) -> Self {
        let rank = |state: &Self| match state {
            Self::Running => 4,
            Self::Creating => 3,
            Self::Stopping => 2,
            Self::Parked => 1,
            Self::Pending | Self::Succeeded | Self::Failed => 0,
        };
        let most = states.max_by_key(rank).filter(|state| rank(state) > 0);
        most.unwrap_or_default()
    }

    /// The state in a word, which is `Overdue` for what failed by a limit of time or idleness.
    pub fn word(self, overdue: bool) -> String {
        if overdue { "Overdue".to_string() } else { self.to_string() }
    }

    /// Tests if the state never changes again.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// A job with its progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobView {
    /// Project of the job.
    pub project: ProjectName,
    /// Name, unique in the project.
    pub name: JobName,
    /// State of the job.
    pub state: JobState,
    /// Reason for waiting, or outcome.
    pub reason: String,
    /// Training, or interactive with its own limits of time.
    pub kind: JobKind,
    /// True if the job may be preempted.
    pub preemptible: bool,
    /// True if it failed, and a limit of time or idleness ended each member that did.
    pub overdue: bool,
    /// Present if its member is started again whenever it ends.
    /// Peers without access to the job do not see its check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSpec>,
    /// Position in the project's queue; higher first.
    pub priority: i32,
    /// Longest wait for the GPU that each member should have while it is within its share, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// True if members have their turns on the GPU at the same time.
    pub gang: bool,
    /// Jobs that have to succeed before it may start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<JobName>,
    /// Position of a pending job in its project's queue, from 1; like the three below, not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<u32>,
    /// Number of jobs in that queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_length: Option<u32>,
    /// Time to its next start in milliseconds, if what is in the way ends as early as expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts_after_ms: Option<u64>,
    /// The same if that ends as late as expected; `None` if nothing bounds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts_within_ms: Option<u64>,
    /// GPUs that count for each member, in thousandths.
    pub gpus_of_member: MilliGpus,
    /// GPU memory of each member, if it is given apart from its share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Compute of each member, if it is given apart from its share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute: Option<Permille>,
    /// Limit of each member's processors, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Limit of each member's memory on the host, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_memory: Option<Bytes>,
    /// Maximum number of members that run at once.
    pub parallelism: u32,
    /// Number of members that have to succeed.
    pub completions: u32,
    /// Number of members that succeeded.
    pub succeeded: u32,
    /// Number of members that failed.
    pub failed: u32,
    /// Uid of the submitter.
    pub uid: u32,
    /// Time of submission, in milliseconds since the Unix epoch.
    pub submitted_unix_ms: u64,
    /// Time at which the last member ended, in milliseconds since the Unix epoch.
    pub ended_unix_ms: Option<u64>,
    /// Members that are or were bound, in order.
    pub members: Vec<MemberView>,
    /// Program and arguments; empty for peers without access to the job.
    pub command: Vec<String>,
    /// Working directory; empty for peers without access to the job.
    pub workdir: String,
    /// Address that an interactive job has published; `None` for peers without access to the job.
    pub url: Option<String>,
    /// Image of its containers; `None` for programs of the node and for peers without access to the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageName>,
    /// Ports that the node publishes for it; empty for peers without access to the job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PublishedPort>,
    /// Mounts of its containers; empty for peers without access to the job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<ContainerMount>,
}

impl JobView {
    /// Purpose in a word: training, interactive or service.
    pub fn purpose(&self) -> String {
        if self.service.is_some() { "service".to_string() } else { self.kind.to_string() }
    }

    /// GPUs of all members that are being created or run.
    pub fn allocated(&self) -> MilliGpus {
        let has = |member: &&MemberView| matches!(member.state, JobState::Creating | JobState::Running);
        self.members.iter().filter(has).map(|_| self.gpus_of_member).sum()
    }

    /// Time for which all running members have been idle, in milliseconds; `None` if one is not.
    pub fn idle_ms(&self) -> Option<u64> {
        let mut running = self.members.iter().filter(|member| member.state == JobState::Running);
        let first = running.next()?.idle_ms?;
        running.try_fold(first, |least, member| Some(least.min(member.idle_ms?)))
    }

    /// A view of a pending job with this specification; its progress is zero.
    pub fn of(spec: &JobSpec) -> Self {
        Self {
            project: spec.project.clone(),
            name: spec.name.clone(),
            state: JobState::Pending,
            reason: String::new(),
            kind: spec.kind,
            overdue: false,
            service: spec.service.as_ref().map(|_| ServiceSpec::default()),
            preemptible: !spec.is_non_preemptible(),
            priority: spec.priority.get().into(),
            latency: spec.latency,
            gang: spec.gang,
            after: Vec::new(),
            queue_position: None,
            queue_length: None,
            starts_after_ms: None,
            starts_within_ms: None,
            gpus_of_member: spec.size.total(),
            memory: spec.part.and_then(|part| part.memory()),
            compute: spec.part.and_then(|part| part.compute()),
            cpus: None,
            host_memory: None,
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
            image: None,
            ports: Vec::new(),
            mounts: Vec::new(),
        }
    }
}

/// One member of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemberView {
    /// Number of the member, from 0.
    pub index: u32,
    /// State of the member.
    pub state: JobState,
    /// Reason for the state; may be empty.
    pub reason: String,
    /// NVML indices of its GPUs, while bound.
    pub gpus: Vec<u32>,
    /// Name of its slice, while it exists.
    pub slice: Option<SliceName>,
    /// Pid of its job runner, while it exists.
    pub pid: Option<HostPid>,
    /// Starts of the member so far.
    pub starts: u32,
    /// Time of the latest start, in milliseconds since the Unix epoch.
    pub started_unix_ms: Option<u64>,
    /// Time without use of its GPUs, in milliseconds; `None` if it is too short to count as idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// True if the service has passed its check of health since its start. `None` without a check, or
    /// while it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthy: Option<bool>,
    /// True if it failed, as a limit of time or idleness ended it.
    pub overdue: bool,
    /// Latest end of its command; `None` for peers without access to the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_end: Option<String>,
}

/// A project with its use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProjectView {
    /// Quota, limits and members.
    #[serde(flatten)]
    pub project: Project,
    /// True for the default project while no administrator made it; it takes no jobs.
    pub implicit: bool,
    /// GPUs used by its jobs and by slices without a job, stopping ones not counted.
    pub allocated: MilliGpus,
    /// GPUs of those held by what counts as idle.
    pub idle: MilliGpus,
    /// Number of running jobs.
    pub running: u32,
    /// Number of jobs without a bound member.
    pub queued: u32,
}
