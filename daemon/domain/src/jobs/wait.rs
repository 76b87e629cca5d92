//! What a job waits for, in words that its owner can act on.

use alloc::vec::Vec;
use core::fmt;

use super::amount::MilliGpus;
use super::board::{Board, Phase};
use super::job::{Job, JobId, MemberId, Size};
use super::name::JobName;
use super::project::{Account, Turn};

/// Why no more of a job's members run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Its owner suspended it.
    Suspended,
    /// As many run as may at once.
    Parallelism(u32),
    /// Its place is being left by others.
    Leaving(Vec<MemberId>),
    /// Another job of the project is first.
    Behind(JobName),
    /// It would stay, and the project's share for those that stay is taken.
    LastingQuota {
        /// What they have.
        lasting: MilliGpus,
        /// The quota.
        quota: MilliGpus,
    },
    /// The quota is used up, and the project has no weight to borrow with.
    NoWeight {
        /// The quota.
        quota: MilliGpus,
    },
    /// It is within its quota, and GPUs are kept free for it as they empty.
    Emptying {
        /// Indices of the GPUs.
        gpus: Vec<u32>,
    },
    /// It is within its quota, and no GPU, or island, has enough in one piece.
    Scattered(Size),
    /// It would borrow, and nothing is idle that it has a better claim to than those who have it.
    NothingIdle {
        /// What the project has.
        used: MilliGpus,
        /// Its quota.
        quota: MilliGpus,
    },
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suspended => f.write_str("suspended; `tranche resume` lets it go on"),
            Self::Parallelism(running) => write!(f, "{running} of its members run, as many as may at once"),
            Self::Leaving(members) => {
                write!(f, "its GPUs are being left by {} preempted member(s)", members.len())
            }
            Self::Behind(name) => write!(f, "{name} is before it in the project's queue"),
            Self::LastingQuota { lasting, quota } => write!(
                f,
                "interactive jobs stay within the quota, and of {quota} GPUs they have {lasting} already"
            ),
            Self::NoWeight { quota } => {
                write!(
                    f,
                    "the quota of {quota} GPUs is used up, and the project has no weight to borrow with"
                )
            }
            Self::Emptying { gpus } => {
                let gpus: Vec<_> = gpus.iter().map(|gpu| alloc::format!("{gpu}")).collect();
                write!(f, "within the quota; GPU {} is kept for it as it empties", gpus.join(", "))
            }
            Self::Scattered(size) => {
                write!(
                    f,
                    "within the quota; {size} GPUs are not free in one piece, and nobody has to give back"
                )
            }
            Self::NothingIdle { used, quota } => {
                write!(f, "the project has {used} GPUs of its quota of {quota}, and none is idle to borrow")
            }
        }
    }
}

impl Board {
    /// Why no more members of a job run; nothing if none waits.
    pub fn wait(&self, id: JobId) -> Option<Wait> {
        let job = self.jobs.get(&id).filter(|job| !job.deleted)?;
        if let Some((claimed, _)) = self.members(id).find(|(_, seat)| seat.phase == Phase::Claimed) {
            return Some(Wait::Leaving(self.leaving_for(claimed)));
        }
        job.pending()?;
        if job.suspended {
            return Some(Wait::Suspended);
        }
        if job.next().is_none() {
            return Some(Wait::Parallelism(job.placed));
        }
        let account = self.accounts.get(&job.spec.project)?;
        let before = self.before(account, job, id);
        Some(before.map(Wait::Behind).unwrap_or_else(|| self.wait_of_head(account, job, id)))
    }

    /// Those on whose GPUs it has to wait.
    fn leaving_for(&self, member: MemberId) -> Vec<MemberId> {
        let Some(place) = self.seats.get(&member) else { return Vec::new() };
        let leaving = self.seats.iter().filter(|(_, seat)| seat.phase == Phase::Stopping);
        let here = leaving.filter(|(_, seat)| seat.spots.iter().any(|spot| place.spots.contains(spot)));
        here.map(|(member, _)| *member).collect()
    }

    /// The first of the jobs like it, if that is another.
    fn before(&self, account: &Account, job: &Job, id: JobId) -> Option<JobName> {
        let first: &Turn = account.queue.get(&job.spec.shape())?.first()?;
        let other = (first.1 != id).then(|| self.jobs.get(&first.1))?;
        other.map(|job| job.spec.name.clone())
    }

    fn wait_of_head(&self, account: &Account, job: &Job, id: JobId) -> Wait {
        let (shape, quota) = (job.spec.shape(), account.project.quota);
        if let Some(hold) = self.hold.as_ref().filter(|hold| hold.job == id) {
            let gpus = hold.spots.iter().map(|spot| self.floor.tile(*spot).gpu.index).collect();
            return Wait::Emptying { gpus };
        }
        match () {
            () if account.is_guaranteed(&shape) => Wait::Scattered(job.spec.size),
            () if shape.lasting => Wait::LastingQuota { lasting: account.lasting, quota },
            () if account.project.weight() == MilliGpus::ZERO => Wait::NoWeight { quota },
            () => Wait::NothingIdle { used: account.used, quota },
        }
    }
}
