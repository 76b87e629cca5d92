//! A project: who shares the node, and what of it is each one's.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::amount::MilliGpus;
use super::job::{JobId, Kind, Size};
use super::name::{JobName, ProjectName};
use crate::compute::Priority;

/// What a project is promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    /// Its name.
    pub name: ProjectName,
    /// What it can have whenever it wants it.
    pub quota: MilliGpus,
    /// How much of the surplus is its, beside others' weights. Nothing: as much as its quota.
    #[serde(default)]
    pub weight: Option<MilliGpus>,
    /// Which GPUs its jobs of a kind may be on, by index. Nothing: any.
    #[serde(default)]
    pub affinity: BTreeMap<Kind, Affinity>,
    /// How long an interactive job may run.
    #[serde(default)]
    pub interactive_limit: Option<Duration>,
    /// How long an interactive job may use no GPU time.
    #[serde(default)]
    pub idle_limit: Option<Duration>,
    /// Users who may submit to it and see its jobs, by uid.
    #[serde(default)]
    pub members: BTreeSet<u32>,
}

/// Indices of GPUs.
pub type Affinity = BTreeSet<u32>;

impl Project {
    /// A project with a quota, and the default of everything else.
    pub fn new(name: ProjectName, quota: MilliGpus) -> Self {
        Self {
            name,
            quota,
            weight: None,
            affinity: BTreeMap::new(),
            interactive_limit: None,
            idle_limit: None,
            members: BTreeSet::new(),
        }
    }

    /// Its weight in the division of the surplus.
    pub fn weight(&self) -> MilliGpus {
        self.weight.unwrap_or(self.quota)
    }

    /// The GPUs that its jobs of that kind may be on, if not all.
    pub fn affinity(&self, kind: Kind) -> Option<&Affinity> {
        self.affinity.get(&kind)
    }
}

/// Why projects stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectRefusal {
    /// No project has that name.
    Unknown(ProjectName),
    /// The quotas together would be more than the node has.
    TooMuch {
        /// What they would be.
        sum: MilliGpus,
        /// What the node has.
        capacity: MilliGpus,
    },
    /// It has jobs.
    InUse {
        /// The project.
        name: ProjectName,
        /// How many.
        jobs: usize,
    },
}

impl fmt::Display for ProjectRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                write!(f, "there is no project {name}; `tranche project list` shows those there are")
            }
            Self::TooMuch { sum, capacity } => write!(
                f,
                "the quotas would be {sum} GPUs together, and the node has {capacity}: not all of them could be \
                 had at once; lower one, or allow it with --beyond-capacity"
            ),
            Self::InUse { name, jobs } => {
                write!(
                    f,
                    "project {name} has {jobs} job(s), ended ones too; delete them first: `tranche list -p {name}` shows them"
                )
            }
        }
    }
}

impl core::error::Error for ProjectRefusal {}

/// Where a job stands among those of its project: the higher priority first, then who came first.
pub(super) type Turn = (Reverse<Priority>, JobId);

/// What jobs have in common that fit or do not fit alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Shape {
    pub(super) size: Size,
    pub(super) kind: Kind,
    pub(super) lasting: bool,
}

/// A project with what it has and what it waits for.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) project: Project,
    /// What its members have that are not on their way out.
    pub(super) used: MilliGpus,
    /// What of it is never taken.
    pub(super) lasting: MilliGpus,
    pub(super) names: BTreeMap<JobName, JobId>,
    /// Jobs with a member that could start; of those alike only the first needs to be looked at.
    pub(super) queue: BTreeMap<Shape, BTreeSet<Turn>>,
}

impl Account {
    pub(super) fn new(project: Project) -> Self {
        Self {
            project,
            used: MilliGpus::ZERO,
            lasting: MilliGpus::ZERO,
            names: BTreeMap::new(),
            queue: BTreeMap::new(),
        }
    }

    /// How far it is beyond its quota for its weight.
    pub(super) fn level(&self) -> Level {
        self.level_with(self.used)
    }

    /// How far it would be, if it had that much.
    pub(super) fn level_with(&self, used: MilliGpus) -> Level {
        Level::of(used, self.project.quota, self.project.weight())
    }

    /// Whether one more of a shape would be within what it is promised.
    pub(super) fn is_guaranteed(&self, shape: &Shape) -> bool {
        let size = shape.size.total();
        self.used.plus(size) <= self.project.quota || shape.lasting && self.may_last(size)
    }

    /// Whether that much more of lasting jobs would be within its quota.
    pub(super) fn may_last(&self, size: MilliGpus) -> bool {
        self.lasting.plus(size) <= self.project.quota
    }

    /// The first job of each shape, in the order in which they are tried.
    pub(super) fn heads(&self) -> Vec<(Shape, Turn)> {
        let first = |(shape, turns): (&Shape, &BTreeSet<Turn>)| Some((*shape, *turns.first()?));
        let mut heads: Vec<_> = self.queue.iter().filter_map(first).collect();
        heads.sort_by_key(|(shape, turn)| (!shape.lasting, *turn));
        heads
    }
}

/// A project's use beyond its quota, divided by its weight. Projects below their quotas are below zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    over: i64,
    weight: i64,
}

impl Level {
    pub(super) fn of(used: MilliGpus, quota: MilliGpus, weight: MilliGpus) -> Self {
        // Without a weight nothing is borrowed; what is beyond the quota all the same is as far as can be.
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
