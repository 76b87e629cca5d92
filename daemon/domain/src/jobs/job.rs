//! Jobs: specification and progress.

use alloc::collections::BTreeSet;
use core::fmt;
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::amount::MilliGpus;
use super::name::{JobName, ProjectName};
use crate::compute::{GangName, Latency, Priority};
use crate::request::{Fraction, Share};

/// Id of a job; ids ascend in the order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u64);

/// Id of a member. A job has as many members, each one run of its command, as it has completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId {
    /// Job of the member.
    pub job: JobId,
    /// Number of the member in its job, from 0.
    pub index: u32,
}

/// Purpose of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Batch work, which can be stopped and restarted.
    Training,
    /// Work with a user in front of it, such as a notebook.
    Interactive,
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Training => "training",
            Self::Interactive => "interactive",
        })
    }
}

/// GPUs that each member takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// A fraction of one GPU.
    Part(Fraction),
    /// Whole GPUs, all on one island.
    Whole(NonZeroU32),
}

impl Size {
    /// Number of GPUs that a member is on.
    pub const fn gpus(self) -> u32 {
        match self {
            Self::Part(_) => 1,
            Self::Whole(count) => count.get(),
        }
    }

    /// Part taken of each GPU.
    pub const fn of_each(self) -> MilliGpus {
        match self {
            Self::Part(fraction) => MilliGpus::new(fraction.permille().get()),
            Self::Whole(_) => MilliGpus::ONE,
        }
    }

    /// Sum over all GPUs.
    pub const fn total(self) -> MilliGpus {
        self.of_each().times(self.gpus())
    }
}

impl From<Size> for Share {
    fn from(size: Size) -> Self {
        match size {
            Size::Part(fraction) => Self::Fraction(fraction),
            Size::Whole(count) => Self::Whole(count),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.total().fmt(f)
    }
}

/// Scheduling properties of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Project whose quota the job uses.
    pub project: ProjectName,
    /// Name, unique in the project.
    pub name: JobName,
    /// GPUs of each member.
    pub size: Size,
    /// Training, or interactive with its own limits of time.
    pub kind: JobKind,
    /// True if the job may be preempted and restarted. Always true for training.
    pub preemptible: bool,
    /// Position in the project's queue; higher first.
    pub priority: Priority,
    /// Maximum number of members that run at once.
    pub parallelism: NonZeroU32,
    /// Number of members that have to run to their end.
    pub completions: NonZeroU32,
    /// Longest wait for the GPU that each member should have while it is within its share, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// True if members wait for each other: their slices have their turns on the GPU at the same time.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub gang: bool,
}

impl JobSpec {
    /// Maximum number of members. Each start and end of a member writes the state of all of them to disk.
    pub const MOST_MEMBERS: u32 = 2000;

    /// Maximum number of jobs that one comes after.
    pub const MOST_BEFORE: usize = 100;

    /// Tests if the job is never preempted, and so has to stay within its project's quota.
    pub fn is_non_preemptible(&self) -> bool {
        self.kind == JobKind::Interactive && !self.preemptible
    }

    /// Gang of the members' slices, if they wait for each other.
    pub fn gang_of(&self, id: JobId) -> Option<GangName> {
        self.gang.then(|| alloc::format!("job-{}", id.0).parse().ok())?
    }

    /// Tests if some members may start only after others have ended, so that no member may wait for all.
    pub(super) fn is_one_after_another(&self) -> bool {
        self.completions > self.parallelism
    }

    pub(super) fn shape(&self) -> JobShape {
        JobShape {
            size: self.size,
            kind: self.kind,
            non_preemptible: self.is_non_preemptible(),
            latency: self.latency,
            request: false,
        }
    }
}

/// Properties that decide where a job fits; jobs of equal shape fit or fail alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct JobShape {
    pub(super) size: Size,
    pub(super) kind: JobKind,
    pub(super) non_preemptible: bool,
    pub(super) latency: Option<Latency>,
    /// True for users' requests, which never borrow.
    pub(super) request: bool,
}

/// A job and the progress of its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Size, purpose, priority and limits.
    pub spec: JobSpec,
    /// Number of members that ran to their end.
    pub done: u32,
    /// Number of bound members, stopping ones included.
    pub placed: u32,
    /// True if no member may start for now.
    pub suspended: bool,
    /// Jobs that have to succeed before a member may start.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub after: BTreeSet<JobId>,
    /// True if the job is removed once its last member has exited.
    pub deleted: bool,
    /// Index of the first member that was never bound.
    pub(super) fresh: u32,
    /// Indices of the members that were requeued.
    pub(super) again: BTreeSet<u32>,
}

impl Job {
    pub(super) const fn new(spec: JobSpec) -> Self {
        Self {
            spec,
            done: 0,
            placed: 0,
            suspended: false,
            after: BTreeSet::new(),
            deleted: false,
            fresh: 0,
            again: BTreeSet::new(),
        }
    }

    /// Index of the member to start next, if one may start.
    pub fn next(&self) -> Option<u32> {
        let held = self.suspended || self.deleted || !self.after.is_empty();
        let may = !held && self.placed < self.spec.parallelism.get();
        may.then(|| self.pending())?
    }

    /// Index of the first member that is not bound and has to run.
    pub(super) fn pending(&self) -> Option<u32> {
        let fresh = (self.fresh < self.spec.completions.get()).then_some(self.fresh);
        self.again.first().copied().or(fresh)
    }

    /// Tests if no member is bound or has to run.
    pub const fn is_over(&self) -> bool {
        self.placed == 0 && (self.deleted || self.done >= self.spec.completions.get())
    }

    pub(super) fn take(&mut self, index: u32) {
        if !self.again.remove(&index) {
            self.fresh = self.fresh.max(index.saturating_add(1));
        }
        self.placed += 1;
    }
}
