//! Reasons for which a job waits, in words that its owner can act on.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::amount::MilliGpus;
use super::name::{JobName, ProjectName};
use super::size::Size;
use crate::compute::Latency;
use crate::cordon::Cordon;
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
    /// Members of the gang are leaving their GPUs, and all start together after that; their number.
    Regrouping(usize),
    /// It would have its GPUs, if these took new members.
    Cordoned(Vec<CordonedGpu>),
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
        /// Room that its members need.
        room: WantedRoom,
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
        /// Room that its members need.
        room: WantedRoom,
        /// Idle GPUs that it may use, as many as there are in one piece, or have room for members of the gang.
        idle: MilliGpus,
        /// Jobs and slices that have most of the GPUs, at most three.
        holders: Vec<Holder>,
    },
}

/// Largest number of holders or GPUs in a reason.
pub(super) const MOST_NAMED: usize = 3;

/// A GPU that takes no new members by order of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CordonedGpu {
    /// Index as NVML counts GPUs.
    pub index: u32,
    /// Order with user, time and reason.
    pub cordon: Cordon,
}

impl fmt::Display for CordonedGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {} is {}", self.index, self.cordon)
    }
}

/// Room for one member, or for all members of a gang at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedRoom {
    /// GPUs of a member.
    pub size: Size,
    /// Members that need room at once.
    pub members: u32,
}

impl WantedRoom {
    fn total(self) -> MilliGpus {
        self.size.total().times(self.members)
    }
}

impl fmt::Display for WantedRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.members {
            1 => write!(f, "{} GPUs in one piece", self.size),
            members => write!(f, "{} GPUs for each of {members} members at once", self.size),
        }
    }
}

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

fn list<T: ToString>(named: &[T]) -> String {
    named.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suspended => f.write_str("suspended; `tranche resume` lets it go on"),
            Self::After(names) => {
                let names: Vec<&str> = names.iter().take(MOST_NAMED).map(JobName::as_str).collect();
                write!(f, "it starts after {}, if that succeeds", names.join(", "))
            }
            Self::Parallelism(running) => write!(f, "{running} of its members run, as many as may at once"),
            Self::Leaving(holders) if holders.is_empty() => f.write_str("its GPUs are being left"),
            Self::Leaving(holders) => {
                write!(f, "its GPUs are being left by what was preempted: {}", list(holders))
            }
            Self::Regrouping(leaving) => {
                write!(f, "all of its members start together, once {leaving} of them have left their GPUs")
            }
            Self::Cordoned(gpus) => cordoned(f, gpus),
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
            Self::Scattered { room, holders } => {
                write!(f, "within the quota; {room} are not free, and no project has to give back")?;
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
            Self::NothingIdle { used, quota, room, idle, holders } => {
                write!(f, "the project has {used} GPUs of its quota of {quota}, and ")?;
                idle_of(f, *room, *idle)?;
                held(f, holders)
            }
        }
    }
}

fn numbers(gpus: &[u32]) -> String {
    gpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn idle_of(f: &mut fmt::Formatter<'_>, room: WantedRoom, idle: MilliGpus) -> fmt::Result {
    match idle {
        MilliGpus::ZERO => f.write_str("none is idle to borrow"),
        idle if idle < room.total() => write!(f, "it would borrow: {room}, of which {idle} are idle"),
        idle => write!(f, "the {idle} GPUs that are idle in one piece are kept for others"),
    }
}

fn cordoned(f: &mut fmt::Formatter<'_>, gpus: &[CordonedGpu]) -> fmt::Result {
    f.write_str(&list(gpus.get(..MOST_NAMED).unwrap_or(gpus)))?;
    match gpus.len().saturating_sub(MOST_NAMED) {
        0 => Ok(()),
        more => write!(f, ", and {more} more are cordoned"),
    }
}

fn held(f: &mut fmt::Formatter<'_>, holders: &[Holder]) -> fmt::Result {
    if holders.is_empty() { Ok(()) } else { write!(f, "; most is held by {}", list(holders)) }
}
