//! A job: what it asks for, and how many of its members have come how far.

use alloc::collections::BTreeSet;
use core::fmt;
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::amount::MilliGpus;
use super::limits::MOST_JOBS_OF_A_USER;
use super::name::{JobName, ProjectName};
use super::project::Shape;
use crate::compute::Priority;
use crate::request::{Fraction, Share};

/// A job, in the order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u64);

/// One of a job's members: a job is as many runs of a command as it has completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId {
    /// The job.
    pub job: JobId,
    /// Which of its members, from 0.
    pub index: u32,
}

/// What a job is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It runs by itself, and can be begun again.
    Training,
    /// Somebody sits before it.
    Interactive,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Training => "training",
            Self::Interactive => "interactive",
        })
    }
}

/// How much of which GPUs a member takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// A part of one GPU.
    Part(Fraction),
    /// Whole GPUs, all on one island.
    Whole(NonZeroU32),
}

impl Size {
    /// On how many GPUs it is.
    pub const fn gpus(self) -> u32 {
        match self {
            Self::Part(_) => 1,
            Self::Whole(count) => count.get(),
        }
    }

    /// What it takes of each.
    pub const fn of_each(self) -> MilliGpus {
        match self {
            Self::Part(fraction) => MilliGpus::new(fraction.permille().get()),
            Self::Whole(_) => MilliGpus::ONE,
        }
    }

    /// What it takes altogether.
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

/// What somebody wants to have run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Whose quota it is under.
    pub project: ProjectName,
    /// Its name there.
    pub name: JobName,
    /// What each member takes.
    pub size: Size,
    /// What it is for.
    pub kind: Kind,
    /// Whether it may be stopped for others and begun again. Training always may.
    pub preemptible: bool,
    /// Where it stands in its project's queue.
    pub priority: Priority,
    /// How many members may run at once.
    pub parallelism: NonZeroU32,
    /// How many have to come to their end.
    pub completions: NonZeroU32,
}

impl JobSpec {
    /// No job has more members: with the start and the end of each, what is known of all of them is written to the disk.
    pub const MOST_MEMBERS: u32 = 2000;

    /// Whether it stays until it ends by itself, and so has to stay within the quota.
    pub fn is_lasting(&self) -> bool {
        self.kind == Kind::Interactive && !self.preemptible
    }

    pub(super) fn shape(&self) -> Shape {
        Shape { size: self.size, kind: self.kind, lasting: self.is_lasting() }
    }
}

/// A job, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// What was asked for.
    pub spec: JobSpec,
    /// Members that have come to their end.
    pub done: u32,
    /// Members that have a place, or had one and are on their way out.
    pub placed: u32,
    /// Whether none may start for now.
    pub suspended: bool,
    /// Whether it is to be forgotten when the last member is gone.
    pub deleted: bool,
    /// The first member that never had a place.
    pub(super) fresh: u32,
    /// Members that had one and want another.
    pub(super) again: BTreeSet<u32>,
}

impl Job {
    pub(super) const fn new(spec: JobSpec) -> Self {
        Self { spec, done: 0, placed: 0, suspended: false, deleted: false, fresh: 0, again: BTreeSet::new() }
    }

    /// The member that starts next, if one may.
    pub fn next(&self) -> Option<u32> {
        let may = !self.suspended && !self.deleted && self.placed < self.spec.parallelism.get();
        may.then(|| self.pending())?
    }

    /// The first member that waits for a place.
    pub(super) fn pending(&self) -> Option<u32> {
        let fresh = (self.fresh < self.spec.completions.get()).then_some(self.fresh);
        self.again.first().copied().or(fresh)
    }

    /// Whether nothing is left to do.
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

/// Why a job is not taken on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobRefusal {
    /// No project has that name.
    NoProject(ProjectName),
    /// The name is taken in the project.
    Exists(JobName),
    /// No job has that name in the project.
    Unknown(ProjectName, JobName),
    /// It has more members, or would have more at once, than a job may.
    TooManyMembers(NonZeroU32),
    /// Whoever submits it has as many that have not ended as one user may.
    TooManyOfUser(usize),
    /// It could not run even on an empty node.
    NeverFits {
        /// What a member takes.
        size: Size,
        /// The most GPUs of one island that its project may use for it.
        most: u32,
    },
    /// It lasts, and is larger than its project's quota.
    AboveQuota {
        /// What a member takes.
        size: Size,
        /// The quota.
        quota: MilliGpus,
    },
}

impl fmt::Display for JobRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProject(name) => write!(
                f,
                "there is no project {name}; `tranche project list` shows those there are, `tranche project \
                 create` makes one"
            ),
            Self::Exists(name) => {
                write!(
                    f,
                    "a job named {name} exists in this project: choose another name, or delete that one"
                )
            }
            Self::Unknown(project, name) => {
                write!(
                    f,
                    "there is no job {name} in project {project}; `tranche list -p {project}` shows them"
                )
            }
            Self::TooManyMembers(count) => write!(
                f,
                "it asks for {count} members, and a job has at most {}: submit several jobs, or let each member do more",
                JobSpec::MOST_MEMBERS
            ),
            Self::TooManyOfUser(has) => write!(
                f,
                "you have {has} jobs that have not ended, and a user has at most {MOST_JOBS_OF_A_USER}: wait for some to \
                 end, delete some (`tranche list -A` shows them), or submit one with many members (--completions)"
            ),
            Self::NeverFits { size, most } => write!(
                f,
                "a member takes {size} GPUs of one island, and there are at most {most} that it may use: it \
                 could never start; ask for less, or for more members of fewer GPUs each"
            ),
            Self::AboveQuota { size, quota } => write!(
                f,
                "it is interactive and takes {size} GPUs, and its project's quota is {quota}: such a job stays \
                 within the quota; ask for less, or let it be stopped for others with --preemptible"
            ),
        }
    }
}

impl core::error::Error for JobRefusal {}
