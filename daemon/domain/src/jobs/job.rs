//! Jobs: specification and progress.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::amount::MilliGpus;
use super::name::{JobName, ProjectName};
use super::part::{MemberPart, MemoryWithin};
use super::service::ServiceSpec;
use super::size::Size;
use crate::compute::{GangName, Latency, Priority};
use crate::id::GpuUuid;
use crate::request::Share;
use crate::units::{Bytes, Permille};
use crate::word::named;

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

named! {
    /// Purpose of a job.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum JobKind {
        /// Batch work, which can be stopped and restarted.
        Training = "training",
        /// Work with a user in front of it, such as a notebook.
        Interactive = "interactive",
    }
}

/// Scheduling properties of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Project whose quota the job uses.
    pub project: ProjectName,
    /// Name, unique in the project.
    pub name: JobName,
    /// GPUs that count for each member. [`QuotaScheduler::submit`](super::QuotaScheduler::submit) raises it to what the
    /// memory of `part` is of the GPUs.
    pub size: Size,
    /// Memory and compute of each member, where they are given apart from its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<MemberPart>,
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
    /// Present if its member is started again whenever it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSpec>,
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

    /// Rank of the members' slices on a GPU: requests to a service do not wait for training.
    pub fn slice_priority(&self) -> Priority {
        if self.service.is_some() { Priority::new(1) } else { Priority::DEFAULT }
    }

    /// Gang of the members' slices, if they wait for each other.
    pub fn gang_of(&self, id: JobId) -> Option<GangName> {
        self.gang.then(|| alloc::format!("job-{}", id.0).parse().ok())?
    }

    /// Share of each member's slice, with the memory and compute that replace those of the share.
    pub fn amounts(&self) -> (Share, Option<Bytes>, Option<Permille>) {
        self.part.map_or((self.size.into(), None, None), |part| part.amounts())
    }

    /// Tests if its members start, return and leave together.
    pub fn is_gang(&self) -> bool {
        self.gang && self.completions > NonZeroU32::MIN
    }

    /// Tests if some members may start only after others have ended, so that no member may wait for all.
    pub(super) fn is_one_after_another(&self) -> bool {
        self.completions > self.parallelism
    }

    pub(super) fn shape(&self) -> JobShape {
        JobShape {
            size: self.size,
            members: if self.is_gang() { self.completions.get() } else { 1 },
            kind: self.kind,
            non_preemptible: self.is_non_preemptible(),
            latency: self.latency,
            memory: self.part.and_then(|part| part.memory_within(self.size)),
            request: false,
            parked: None,
        }
    }
}

/// Properties that decide where a job fits; jobs of equal shape fit or fail alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct JobShape {
    pub(super) size: Size,
    /// Number of members that are placed together: those of a gang, else one.
    pub(super) members: u32,
    pub(super) kind: JobKind,
    pub(super) non_preemptible: bool,
    pub(super) latency: Option<Latency>,
    /// Memory that each GPU has to have within the size, if it is given.
    pub(super) memory: Option<MemoryWithin>,
    /// True for users' requests, which never borrow.
    pub(super) request: bool,
    /// The parked member that is to return to its own GPUs, or the first of a gang; it fits like no other.
    pub(super) parked: Option<MemberId>,
}

impl JobShape {
    /// Sum over all GPUs of the members that are placed together.
    pub(super) const fn total(&self) -> MilliGpus {
        self.size.total().times(self.members)
    }
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
    /// Parked members by index, each with the GPUs that it returns to, until it runs there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) parked: BTreeMap<u32, Vec<GpuUuid>>,
    /// Indices of parked members that have to exit, as a mate of their gang starts over.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) recalled: BTreeSet<u32>,
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
            parked: BTreeMap::new(),
            recalled: BTreeSet::new(),
        }
    }

    /// Index of the member to start next, if one may start.
    pub fn next(&self) -> Option<u32> {
        // A parked member keeps its place among those that run at once.
        let begun =
            u32::try_from(self.parked.len()).map_or(u32::MAX, |parked| self.placed.saturating_add(parked));
        let may = !self.is_held() && begun < self.spec.parallelism.get();
        may.then(|| self.pending())?
    }

    /// Tests if no member may start or return for now.
    pub(super) fn is_held(&self) -> bool {
        self.suspended || self.deleted || !self.after.is_empty()
    }

    /// Index of the first member that is not bound and has to run.
    pub(super) fn pending(&self) -> Option<u32> {
        let fresh = (self.fresh < self.spec.completions.get()).then_some(self.fresh);
        self.again.first().copied().or(fresh)
    }

    /// Indices of all members that are not bound or parked and have to run.
    pub(super) fn all_pending(&self) -> impl Iterator<Item = u32> {
        self.again.iter().copied().chain(self.fresh..self.spec.completions.get())
    }

    /// Tests if no member is bound, parked or has to run.
    pub fn is_over(&self) -> bool {
        self.placed == 0
            && self.parked.is_empty()
            && (self.deleted || self.done >= self.spec.completions.get())
    }

    pub(super) fn take(&mut self, index: u32) {
        if !self.again.remove(&index) && !self.parked.contains_key(&index) {
            self.fresh = self.fresh.max(index.saturating_add(1));
        }
        self.placed += 1;
    }
}
