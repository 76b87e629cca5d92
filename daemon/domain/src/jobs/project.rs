//! Projects, their quotas and their queues.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::amount::MilliGpus;
use super::job::{JobId, JobKind, JobShape};
use super::name::{JobName, ProjectName};
use crate::compute::Priority;
use crate::word::named;

/// Quota, limits and members of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    /// Name, unique on the node.
    pub name: ProjectName,
    /// GPUs available to the project at any time.
    pub quota: MilliGpus,
    /// Weight in the division of the surplus; `None` means the quota.
    #[serde(default)]
    pub weight: Option<MilliGpus>,
    /// NVML indices of the GPUs for each kind of job; a kind without an entry may use all.
    #[serde(default)]
    pub affinity: BTreeMap<JobKind, Affinity>,
    /// Maximum runtime of an interactive job.
    #[serde(default)]
    pub interactive_limit: Option<Duration>,
    /// Maximum time of an interactive job without use of GPU time.
    #[serde(default)]
    pub idle_limit: Option<Duration>,
    /// Consequence of idleness for its jobs and slices.
    #[serde(default)]
    pub idle_policy: IdlePolicy,
    /// Users who may submit to it and see its jobs, by uid.
    #[serde(default)]
    pub members: BTreeSet<u32>,
}

named! {
    /// Consequence for a project's jobs and slices that count as idle. Each includes the report in lists, metrics and events.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum IdlePolicy {
        /// None beside the report.
        #[default]
        Report = "report",
        /// A note for the operator.
        Alert = "alert",
        /// They are beyond the quota before all others of the project, and are preempted before others.
        PreemptFirst = "preempt-first",
        /// Jobs fail, and slices are ended.
        End = "end",
    }
}

/// NVML indices of GPUs.
pub type Affinity = BTreeSet<u32>;

impl Project {
    /// A project with this quota and defaults otherwise.
    pub fn new(name: ProjectName, quota: MilliGpus) -> Self {
        Self {
            name,
            quota,
            weight: None,
            affinity: BTreeMap::new(),
            interactive_limit: None,
            idle_limit: None,
            idle_policy: IdlePolicy::Report,
            members: BTreeSet::new(),
        }
    }

    /// Weight in the division of the surplus.
    pub fn weight(&self) -> MilliGpus {
        self.weight.unwrap_or(self.quota)
    }

    /// NVML indices of the GPUs permitted for this kind; `None` permits all.
    pub fn affinity(&self, kind: JobKind) -> Option<&Affinity> {
        self.affinity.get(&kind)
    }
}

/// Reasons for rejecting an operation on a project.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProjectRefusal {
    /// The project does not exist.
    #[error("there is no project {0}; `tranche project list` shows those there are")]
    Unknown(ProjectName),
    /// The default project, while no administrator made it.
    #[error(
        "project {0} is there by itself, for slices of users without a project: `tranche project create {0} --quota N` \
         gives it a quota of its own, and jobs"
    )]
    Implicit(ProjectName),
    /// The sum of all quotas would exceed the node's capacity.
    #[error(
        "the quotas would be {sum} GPUs together, and the node has {capacity}: not all of them could be had \
         at once; lower one, or allow it with --beyond-capacity"
    )]
    TooMuch {
        /// Sum of all quotas after the change.
        sum: MilliGpus,
        /// Number of GPUs of the node.
        capacity: MilliGpus,
    },
    /// Its jobs of a kind are to run on GPUs that the node does not have.
    #[error("--{kind}-gpus names GPU {}, and this node has {}", indices(unknown), known_gpus(known))]
    NoSuchGpus {
        /// Kind of its jobs.
        kind: JobKind,
        /// NVML indices that the node does not have, ascending.
        unknown: Vec<u32>,
        /// NVML indices of the node's GPUs, ascending.
        known: Vec<u32>,
    },
    /// The project has jobs.
    #[error(
        "project {name} has {jobs} job(s), ended ones too; delete them first: `tranche list -p {name}` shows them"
    )]
    InUse {
        /// Project that the request names.
        name: ProjectName,
        /// Number of its jobs.
        jobs: usize,
    },
}

fn indices(gpus: &[u32]) -> String {
    gpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn known_gpus(gpus: &[u32]) -> String {
    if gpus.is_empty() { "no GPU now".into() } else { alloc::format!("GPU {}", indices(gpus)) }
}

/// Key of a job in its project's queue: higher priority first, then earlier submission.
pub(super) type QueueKey = (Reverse<Priority>, JobId);

/// A project with its use and its queue.
#[derive(Clone, Debug)]
pub(super) struct ProjectAccount {
    pub(super) project: Project,
    /// True for the default project while no administrator made it.
    pub(super) implicit: bool,
    /// GPUs used by its members, stopping ones not counted.
    pub(super) used: MilliGpus,
    /// Part of `used` that belongs to non-preemptible jobs.
    pub(super) non_preemptible: MilliGpus,
    pub(super) names: BTreeMap<JobName, JobId>,
    /// Jobs with a member that could start, by shape. Only the first of each shape has to be tried.
    pub(super) queue: BTreeMap<JobShape, BTreeSet<QueueKey>>,
}

impl ProjectAccount {
    pub(super) fn new(project: Project) -> Self {
        Self {
            project,
            implicit: false,
            used: MilliGpus::ZERO,
            non_preemptible: MilliGpus::ZERO,
            names: BTreeMap::new(),
            queue: BTreeMap::new(),
        }
    }

    /// Use beyond the quota, relative to the weight.
    pub(super) fn level(&self) -> Level {
        self.level_with(self.used)
    }

    /// The level at a use of `used`.
    pub(super) fn level_with(&self, used: MilliGpus) -> Level {
        Level::of(used, self.project.quota, self.project.weight())
    }

    /// Tests if further members of this shape stay within the guaranteed quota.
    pub(super) fn is_guaranteed(&self, shape: &JobShape) -> bool {
        let size = shape.total();
        self.used.plus(size) <= self.project.quota || shape.non_preemptible && self.fits_non_preemptible(size)
    }

    /// Tests if `size` more of non-preemptible use stays within the quota.
    pub(super) fn fits_non_preemptible(&self, size: MilliGpus) -> bool {
        self.non_preemptible.plus(size) <= self.project.quota
    }

    /// The first job of each shape that satisfies `passes`, in the order in which they are tried.
    pub(super) fn heads(&self, passes: impl Fn(&JobShape) -> bool) -> Vec<(JobShape, QueueKey)> {
        let first = |(shape, keys): (&JobShape, &BTreeSet<QueueKey>)| Some((*shape, *keys.first()?));
        let mut heads: Vec<_> =
            self.queue.iter().filter(|(shape, _)| passes(shape)).filter_map(first).collect();
        heads.sort_by_key(|(shape, key)| (!shape.non_preemptible, *key));
        heads
    }
}

/// Use beyond the quota divided by the weight, compared exactly; negative below the quota.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    over: i64,
    weight: i64,
}

impl Level {
    pub(super) fn of(used: MilliGpus, quota: MilliGpus, weight: MilliGpus) -> Self {
        // A weight of zero borrows nothing; use beyond the quota nevertheless compares as the highest level.
        let weight = i64::from(weight.get()).max(1);
        Self { over: i64::from(used.get()) - i64::from(quota.get()), weight }
    }
}

impl Ord for Level {
    fn cmp(&self, other: &Self) -> Ordering {
        let product = |a: i64, b: i64| i128::from(a) * i128::from(b);
        product(self.over, other.weight).cmp(&product(other.over, self.weight))
    }
}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Level {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Level {}
