//! Reasons for which a job waits, in words that its owner can act on.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;

use super::amount::MilliGpus;
use super::job::{Job, JobId, MemberId};
use super::name::{JobName, ProjectName};
use super::part::MemoryWithin;
use super::pool::GpuConstraints;
use super::project::{ProjectAccount, QueueKey};
use super::scheduler::{Phase, QuotaScheduler};
use super::size::Size;
use crate::compute::Latency;
use crate::id::SliceName;
use crate::units::Bytes;

/// Reason for which no further member of a job runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The owner suspended the job.
    Suspended,
    /// Jobs that it comes after have not ended.
    After(Vec<JobName>),
    /// The maximum number of members runs already.
    Parallelism(u32),
    /// Preempted jobs and slices still occupy its GPUs.
    Leaving(Vec<Holder>),
    /// Another job of the project comes first.
    Behind(JobName),
    /// Non-preemptible jobs of the project use up its quota.
    NonPreemptibleQuota {
        /// GPUs of the project's non-preemptible jobs.
        non_preemptible: MilliGpus,
        /// Quota of its project.
        quota: MilliGpus,
    },
    /// The quota is used up, and the project's weight is zero.
    NoWeight {
        /// Quota of its project.
        quota: MilliGpus,
    },
    /// Within the quota; GPUs are reserved for it as they empty.
    Emptying {
        /// NVML indices of the reserved GPUs.
        gpus: Vec<u32>,
    },
    /// Its device memory lies in host memory, and returns to these GPUs alone.
    Parked {
        /// NVML indices of the GPUs.
        gpus: Vec<u32>,
        /// Jobs and slices that have these GPUs, at most three.
        holders: Vec<Holder>,
    },
    /// Within the quota; no GPU or island has enough contiguous room.
    Scattered {
        /// GPUs of a member.
        size: Size,
        /// Jobs and slices that have most of the GPUs, at most three.
        holders: Vec<Holder>,
    },
    /// Too few GPUs can hold its latency target beside those of the slices there.
    Latency(Latency),
    /// No GPU that the project may use now has its memory within its size.
    Memory {
        /// Memory of a member.
        memory: Bytes,
        /// GPUs that count for a member.
        size: Size,
    },
    /// It would borrow, and its claim is no stronger than that of the members that run.
    NothingIdle {
        /// GPUs that the project uses.
        used: MilliGpus,
        /// Quota of its project.
        quota: MilliGpus,
        /// GPUs of a member.
        size: Size,
        /// Idle GPUs that it may use, as many as there are in one piece.
        idle: MilliGpus,
        /// Jobs and slices that have most of the GPUs, at most three.
        holders: Vec<Holder>,
    },
}

/// Largest number of holders in a reason.
const MOST_HOLDERS: usize = 3;

/// A job or a user's slice that has GPUs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// Job of a project.
    Job(ProjectName, JobName),
    /// Slice of the user with this uid.
    Slice(SliceName, u32),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(project, job) => write!(f, "job {project}/{job}"),
            Self::Slice(slice, uid) => write!(f, "slice {slice} of uid {uid}"),
        }
    }
}

fn list(holders: &[Holder]) -> String {
    holders.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suspended => f.write_str("suspended; `tranche resume` lets it go on"),
            Self::After(names) => {
                let names: Vec<&str> = names.iter().take(MOST_HOLDERS).map(JobName::as_str).collect();
                write!(f, "it starts after {}, if that succeeds", names.join(", "))
            }
            Self::Parallelism(running) => write!(f, "{running} of its members run, as many as may at once"),
            Self::Leaving(holders) if holders.is_empty() => f.write_str("its GPUs are being left"),
            Self::Leaving(holders) => {
                write!(f, "its GPUs are being left by what was preempted: {}", list(holders))
            }
            Self::Behind(name) => write!(f, "{name} is before it in the project's queue"),
            Self::NonPreemptibleQuota { non_preemptible, quota } => write!(
                f,
                "interactive jobs stay within the quota, and of {quota} GPUs they have {non_preemptible} already"
            ),
            Self::NoWeight { quota } => {
                write!(
                    f,
                    "the quota of {quota} GPUs is used up, and the project has no weight to borrow with"
                )
            }
            Self::Emptying { gpus } => {
                write!(f, "within the quota; GPU {} is kept for it as it empties", numbers(gpus))
            }
            Self::Parked { gpus, holders } => {
                write!(f, "its device memory lies in host memory, and returns to GPU {}", numbers(gpus))?;
                held(f, holders)
            }
            Self::Scattered { size, holders } => {
                write!(
                    f,
                    "within the quota; {size} GPUs are not free in one piece, and no project has to give back"
                )?;
                held(f, holders)
            }
            Self::Latency(target) => write!(
                f,
                "no GPU that it may use can hold a latency of {target} beside the latency targets of the slices there; \
                 `tranche list` and `tranche slice list` show them"
            ),
            Self::Memory { memory, size } => write!(
                f,
                "no GPU that its project may use now has {memory} within {size} of its memory: let the project use larger \
                 ones, or delete the job and submit it again"
            ),
            Self::NothingIdle { used, quota, size, idle, holders } => {
                write!(f, "the project has {used} GPUs of its quota of {quota}, and ")?;
                match *idle {
                    MilliGpus::ZERO => f.write_str("none is idle to borrow")?,
                    idle if idle < size.total() => {
                        write!(f, "it would borrow: {size} GPUs in one piece, of which {idle} are idle")?;
                    }
                    idle => write!(f, "the {idle} GPUs that are idle in one piece are kept for others")?,
                }
                held(f, holders)
            }
        }
    }
}

fn numbers(gpus: &[u32]) -> String {
    gpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn held(f: &mut fmt::Formatter<'_>, holders: &[Holder]) -> fmt::Result {
    if holders.is_empty() { Ok(()) } else { write!(f, "; most is held by {}", list(holders)) }
}

impl QuotaScheduler {
    /// The reason for which no further member runs; `None` if none waits.
    pub fn wait(&self, id: JobId) -> Option<Wait> {
        let job = self.jobs.get(&id).filter(|job| !job.deleted)?;
        if let Some((claimed, _)) = self.members(id).find(|(_, binding)| binding.phase == Phase::Claimed) {
            return Some(Wait::Leaving(self.leaving_for(claimed)));
        }
        let parked = self.returning_or_held(id).next();
        if parked.is_none() {
            job.pending()?;
        }
        if job.suspended {
            return Some(Wait::Suspended);
        }
        if !job.after.is_empty() {
            let before = job.after.iter().filter_map(|id| self.jobs.get(id));
            return Some(Wait::After(before.map(|job| job.spec.name.clone()).collect()));
        }
        if let Some(parked) = parked {
            return Some(self.wait_of_parked(parked));
        }
        if job.next().is_none() {
            return Some(Wait::Parallelism(job.placed));
        }
        let account = self.accounts.get(&job.spec.project)?;
        let before = self.before(account, job, id);
        Some(before.map(Wait::Behind).unwrap_or_else(|| self.wait_of_head(account, job, id)))
    }

    /// Preempted jobs and slices on the GPUs of a claimed member.
    fn leaving_for(&self, member: MemberId) -> Vec<Holder> {
        let Some(place) = self.bindings.get(&member) else { return Vec::new() };
        let leaving = self.bindings.iter().filter(|(_, binding)| binding.phase == Phase::Stopping);
        let here =
            leaving.filter(|(_, binding)| binding.indices.iter().any(|index| place.indices.contains(index)));
        let holders: BTreeSet<Holder> = here.filter_map(|(member, _)| self.holder(*member)).collect();
        holders.into_iter().collect()
    }

    fn wait_of_parked(&self, member: MemberId) -> Wait {
        let home = self.home(member).unwrap_or_default();
        let indices: Vec<_> = home.iter().filter_map(|gpu| self.pool.index_of(*gpu)).collect();
        let there =
            self.bindings.iter().filter(|(_, binding)| binding.indices.iter().any(|at| indices.contains(at)));
        let holders: BTreeSet<Holder> = there.filter_map(|(member, _)| self.holder(*member)).collect();
        Wait::Parked {
            gpus: indices.iter().map(|index| self.pool.entry(*index).gpu.index).collect(),
            holders: holders.into_iter().take(MOST_HOLDERS).collect(),
        }
    }

    fn holder(&self, member: MemberId) -> Option<Holder> {
        match self.user_slice(member) {
            Some(slice) => Some(Holder::Slice(slice.name.clone(), slice.owner_uid)),
            None => {
                let spec = &self.jobs.get(&member.job)?.spec;
                Some(Holder::Job(spec.project.clone(), spec.name.clone()))
            }
        }
    }

    /// Jobs and slices of other projects that have most of the GPUs.
    fn largest_holders(&self, project: &ProjectName) -> Vec<Holder> {
        let mut sums: BTreeMap<JobId, (MilliGpus, MemberId)> = BTreeMap::new();
        for (member, _) in self.bindings.iter().filter(|(_, binding)| binding.phase == Phase::Running) {
            let Some(spec) = self.jobs.get(&member.job).map(|job| &job.spec) else { continue };
            if spec.project != *project {
                let sum = sums.entry(member.job).or_insert((MilliGpus::ZERO, *member));
                sum.0 = sum.0.plus(spec.size.total());
            }
        }
        let mut sums: Vec<_> = sums.into_values().collect();
        sums.sort_by_key(|(sum, member)| (Reverse(*sum), *member));
        sums.into_iter().take(MOST_HOLDERS).filter_map(|(_, member)| self.holder(member)).collect()
    }

    /// Name of the job of equal shape that comes first, if it is another.
    fn before(&self, account: &ProjectAccount, job: &Job, id: JobId) -> Option<JobName> {
        let first: &QueueKey = account.queue.get(&job.spec.shape())?.first()?;
        let other = (first.1 != id).then(|| self.jobs.get(&first.1))?;
        other.map(|job| job.spec.name.clone())
    }

    fn wait_of_head(&self, account: &ProjectAccount, job: &Job, id: JobId) -> Wait {
        let (shape, quota) = (job.spec.shape(), account.project.quota);
        if let Some(reserved) = self.reserved.as_ref().filter(|reserved| reserved.job == id) {
            let gpus = reserved.indices.iter().map(|index| self.pool.entry(*index).gpu.index).collect();
            return Wait::Emptying { gpus };
        }
        let affinity = account.project.affinity(shape.kind);
        let (latency, memory) = (shape.latency, shape.memory);
        let reach = GpuConstraints { affinity, reserved: &[], latency, memory, only: None };
        let count = shape.size.gpus() as usize;
        let held =
            |reach: &GpuConstraints<'_>| self.pool.islands(reach).values().any(|gpus| gpus.len() >= count);
        let is_held = held(&reach);
        if let Some(MemoryWithin { memory, .. }) =
            shape.memory.filter(|_| !is_held && !held(&GpuConstraints { latency: None, ..reach }))
        {
            return Wait::Memory { memory, size: shape.size };
        }
        if let Some(target) = shape.latency.filter(|_| !is_held) {
            return Wait::Latency(target);
        }
        match () {
            () if account.is_guaranteed(&shape) => {
                Wait::Scattered { size: job.spec.size, holders: self.largest_holders(&account.project.name) }
            }
            () if shape.non_preemptible => {
                Wait::NonPreemptibleQuota { non_preemptible: account.non_preemptible, quota }
            }
            () if account.project.weight() == MilliGpus::ZERO => Wait::NoWeight { quota },
            () => Wait::NothingIdle {
                used: account.used,
                quota,
                size: shape.size,
                idle: self.pool.largest_room(shape.size, &reach),
                holders: self.largest_holders(&account.project.name),
            },
        }
    }
}
