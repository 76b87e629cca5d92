//! Errors of requests, with their gRPC status codes.

use std::io;
use std::time::Duration;

use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tranche_domain::access::Denied;
use tranche_domain::id::{HostPid, SliceName};
use tranche_domain::jobs::{JobRefusal, ProjectRefusal};
use tranche_domain::node::Refusal;
use tranche_domain::placement::Unplaceable;
use tranche_domain::view::RemainingView;
use tranche_jobs::JobsError;
use tranche_telemetry::counters::RequestOutcome;

use crate::parking::{ParkFailure, list};
use crate::sockets::FilesError;
use crate::state_store::SaveError;

/// Outcome of a request, or of a step of one.
pub(crate) type Requested<T> = Result<T, RequestFailure>;

/// Reason for which a request is answered with an error, and its gRPC status.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestFailure {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("{refusal}; waited {waited_ms} ms")]
    TimedOut { refusal: Refusal, waited_ms: u64 },
    #[error("slice {name} is in use by {}: end them, or delete with --force to kill them", list(.pids))]
    InUse { name: SliceName, pids: Vec<HostPid> },
    #[error(
        "slice {name} is ending, but {} were killed and are still there, or the driver still holds their memory; \
         it goes when they do",
        list(.pids)
    )]
    Unkillable { name: SliceName, pids: Vec<HostPid> },
    #[error(
        "slice {name} was made by another version of the daemon, whose regions (ABI {abi}) this one cannot read, and {} \
         go on in it under the limits that they had: end them, delete it with --force, or start that version again",
        list(.pids)
    )]
    OtherVersion { name: SliceName, abi: u64, pids: Vec<HostPid> },
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(
        "uid {uid} has {most} {what}, and no user but root may have more (the daemon's configuration says so): {remedy}"
    )]
    TooMany { uid: u32, most: usize, what: &'static str, remedy: &'static str },
    #[error(
        "users who may only look have {most} {what} together, and that is the most: try again, or have root let you into \
         the configuration's `socket_group`"
    )]
    TooManyTogether { most: usize, what: &'static str },
    #[error("slice {0} is ending and takes no more processes; create another one")]
    Ending(SliceName),
    #[error(
        "slice {0} cannot be entered, as GPUs cannot be opened to the process: {1}; see `journalctl -u tranched`"
    )]
    NoGpus(SliceName, io::Error),
    #[error("the calling process {0} has ended")]
    CallerGone(HostPid),
    #[error("the kernel did not say who calls: the daemon and its clients need a common pid namespace")]
    CallerUnknown,
    #[error(
        "the library that tenants preload is not at {0}: install it there, or set `shim` in the configuration"
    )]
    NoShim(String),
    #[error("cannot make the regions of slice {name}: {cause}")]
    Regions { name: SliceName, cause: io::Error },
    #[error(transparent)]
    Park(#[from] ParkFailure),
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error(transparent)]
    Save(#[from] SaveError),
    #[error(
        "still there after {} s: {}; no further slice is put there (`tranche gpu uncordon` takes that back): {remedy}",
        .waited.as_secs(), those(.remaining)
    )]
    NotDrained { remaining: Vec<RemainingView>, waited: Duration, remedy: &'static str },
    #[error("GPU {0} was uncordoned while it was drained: slices may be put there again; drain it anew")]
    UncordonedMeanwhile(u32),
    #[error(
        "the driver has not said for {} s who uses the GPUs, so it is not known whether a process is left there: \
         `nvidia-smi` likely hangs as well, see `dmesg`", .0.as_secs()
    )]
    DriverSilent(Duration),
    #[error("cannot read what privileges the daemon holds: {0}")]
    OwnPrivileges(procfs::ProcError),
    #[error("{0}\nnothing was changed; `tranched --check` looks at the file without touching anything")]
    Misconfigured(String),
    #[error("this daemon was started without a configuration")]
    NotConfigured,
    #[error(transparent)]
    Jobs(#[from] JobsError),
    #[error("this node takes no jobs: {0}")]
    NoJobs(String),
    #[error("a task of the daemon failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl RequestFailure {
    pub(crate) fn regions(name: &SliceName, cause: io::Error) -> Self {
        Self::Regions { name: name.clone(), cause }
    }

    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Refused(refusal) => refusal_code(refusal),
            Self::TimedOut { .. } | Self::TooMany { .. } | Self::TooManyTogether { .. } => {
                Code::ResourceExhausted
            }
            Self::NotDrained { .. }
            | Self::UncordonedMeanwhile(_)
            | Self::DriverSilent(_)
            | Self::InUse { .. }
            | Self::Unkillable { .. }
            | Self::OtherVersion { .. }
            | Self::Ending(_)
            | Self::NoShim(_) => Code::FailedPrecondition,
            Self::Denied(_) => Code::PermissionDenied,
            Self::Park(ParkFailure::NoHostMemory { .. } | ParkFailure::Occupied { .. }) => {
                Code::ResourceExhausted
            }
            Self::Park(ParkFailure::NoWorker(_)) => Code::Internal,
            Self::Park(_) => Code::FailedPrecondition,
            Self::Jobs(error) => desk_code(error),
            Self::Files(FilesError::TooLong { .. }) | Self::Misconfigured(_) => Code::InvalidArgument,
            Self::CallerGone(_) | Self::CallerUnknown | Self::NotConfigured | Self::NoJobs(_) => {
                Code::FailedPrecondition
            }
            Self::Regions { .. }
            | Self::NoGpus(..)
            | Self::Files(_)
            | Self::Save(_)
            | Self::OwnPrivileges(_)
            | Self::Task(_) => Code::Internal,
        }
    }
}

fn refusal_code(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::Unplaceable(why) | Refusal::NoRoomToRotate { why, .. } => match why {
            Unplaceable::UnknownGpu { .. } => Code::NotFound,
            Unplaceable::Twice { .. } => Code::InvalidArgument,
            Unplaceable::NoGpus | Unplaceable::NotSliceable { .. } | Unplaceable::Cordoned { .. } => {
                Code::FailedPrecondition
            }
            Unplaceable::NoRoom { .. } => Code::ResourceExhausted,
        },
        Refusal::CannotGrow { .. } | Refusal::Latency { .. } => Code::ResourceExhausted,
        Refusal::NoHostMemory { .. } | Refusal::NoRoomToReturn { .. } => Code::ResourceExhausted,
        Refusal::NoRotation | Refusal::CordonedToReturn { .. } | Refusal::ObstacleToReturn { .. } => {
            Code::FailedPrecondition
        }
        Refusal::Parked { .. } | Refusal::NotParked(_) | Refusal::ParkOfJob(_) => Code::FailedPrecondition,
        Refusal::Exists(_) => Code::AlreadyExists,
        Refusal::Unknown(_) => Code::NotFound,
        Refusal::Contradiction(_) | Refusal::LimitBelowRequest { .. } => Code::InvalidArgument,
        Refusal::WholeGpus(_) | Refusal::OfJob(_) | Refusal::Stranded { .. } => Code::FailedPrecondition,
    }
}

const fn desk_code(error: &JobsError) -> Code {
    match error {
        JobsError::Project(ProjectRefusal::Unknown(_))
        | JobsError::Job(JobRefusal::NoProject(_) | JobRefusal::Unknown(..) | JobRefusal::AfterUnknown(..))
        | JobsError::NoSuchMember { .. } => Code::NotFound,
        JobsError::Project(
            ProjectRefusal::TooMuch { .. } | ProjectRefusal::InUse { .. } | ProjectRefusal::Implicit(_),
        )
        | JobsError::Job(JobRefusal::AfterFailed(_) | JobRefusal::AfterService(_))
        | JobsError::Over(..)
        | JobsError::Leaving(..)
        | JobsError::NotSuspended(..)
        | JobsError::NoLimits(_)
        | JobsError::NoTicket { .. } => Code::FailedPrecondition,
        JobsError::Job(JobRefusal::Exists(_)) | JobsError::ProjectExists(_) => Code::AlreadyExists,
        JobsError::Job(JobRefusal::TooManyOfUser(_)) => Code::ResourceExhausted,
        JobsError::Project(ProjectRefusal::NoSuchGpus { .. })
        | JobsError::Job(
            JobRefusal::NeverFits { .. }
            | JobRefusal::GangNeverFits { .. }
            | JobRefusal::TooMuchMemory { .. }
            | JobRefusal::AboveQuota { .. }
            | JobRefusal::TooManyMembers(_)
            | JobRefusal::AfterTooMany(_)
            | JobRefusal::ScatteredGang { .. },
        ) => Code::InvalidArgument,
        JobsError::NotAMember { .. } | JobsError::OthersTicket { .. } | JobsError::OwnersLog { .. } => {
            Code::PermissionDenied
        }
        JobsError::LongReport { .. } => Code::OutOfRange,
        JobsError::Store(_) | JobsError::Log { .. } => Code::Internal,
    }
}

impl From<RequestFailure> for Status {
    fn from(failure: RequestFailure) -> Self {
        let mut status = Self::new(failure.code(), failure.to_string());
        if matches!(&failure, RequestFailure::Refused(refusal) if refusal.may_pass()) {
            status.metadata_mut().insert(tranche_rpc::MAY_PASS, MetadataValue::from_static("1"));
        }
        status
    }
}

/// Classifies the result of a request for a slice.
pub(crate) fn outcome<T>(answer: &Requested<T>) -> RequestOutcome {
    match answer.as_ref().map_err(RequestFailure::code) {
        Ok(_) => RequestOutcome::Created,
        Err(Code::ResourceExhausted) => RequestOutcome::NoRoom,
        Err(Code::Internal) => RequestOutcome::Failed,
        Err(_) => RequestOutcome::Refused,
    }
}

fn those(remaining: &[RemainingView]) -> String {
    remaining.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slice_in_use_names_its_processes() {
        let pids = vec![HostPid::new(7), HostPid::new(8)];
        let status = Status::from(RequestFailure::InUse { name: "a".parse().unwrap(), pids });
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("processes 7, 8") && status.message().contains("--force"));
    }
}
