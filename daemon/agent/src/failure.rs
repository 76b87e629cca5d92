//! Everything a caller can be told, and under which code.

use std::io;

use tonic::{Code, Status};
use tranche_domain::access::Denied;
use tranche_domain::id::{HostPid, SliceName};
use tranche_domain::node::Refusal;
use tranche_domain::placement::Unplaceable;

use crate::sockets::FilesError;
use crate::state::SaveError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
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
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(
        "uid {uid} has {most} {what}, and no user but root may have more (the daemon's configuration says so): {remedy}"
    )]
    TooMany { uid: u32, most: usize, what: &'static str, remedy: &'static str },
    #[error("slice {0} is ending and lets nobody in; make another one")]
    Ending(SliceName),
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
    Files(#[from] FilesError),
    #[error(transparent)]
    Save(#[from] SaveError),
    #[error("cannot read what privileges the daemon holds: {0}")]
    OwnPrivileges(procfs::ProcError),
    #[error("{0}\nnothing was changed; `tranched --check` looks at the file without touching anything")]
    Misconfigured(String),
    #[error("this daemon was started without a configuration")]
    NotConfigured,
    #[error("a task of the daemon failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl Failure {
    pub(crate) fn regions(name: &SliceName, cause: io::Error) -> Self {
        Self::Regions { name: name.clone(), cause }
    }

    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Refused(refusal) => refusal_code(refusal),
            Self::TimedOut { .. } | Self::TooMany { .. } => Code::ResourceExhausted,
            Self::InUse { .. } | Self::Unkillable { .. } | Self::Ending(_) | Self::NoShim(_) => {
                Code::FailedPrecondition
            }
            Self::Denied(_) => Code::PermissionDenied,
            Self::Files(FilesError::TooLong { .. }) | Self::Misconfigured(_) => Code::InvalidArgument,
            Self::CallerGone(_) | Self::CallerUnknown | Self::NotConfigured => Code::FailedPrecondition,
            Self::Regions { .. }
            | Self::Files(_)
            | Self::Save(_)
            | Self::OwnPrivileges(_)
            | Self::Task(_) => Code::Internal,
        }
    }
}

fn refusal_code(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::Unplaceable(why) => match why {
            Unplaceable::UnknownGpu { .. } => Code::NotFound,
            Unplaceable::Twice { .. } => Code::InvalidArgument,
            Unplaceable::NoGpus | Unplaceable::NotSliceable { .. } => Code::FailedPrecondition,
            Unplaceable::NoRoom { .. } => Code::ResourceExhausted,
        },
        Refusal::CannotGrow { .. } => Code::ResourceExhausted,
        Refusal::Exists(_) => Code::AlreadyExists,
        Refusal::Unknown(_) => Code::NotFound,
        Refusal::Contradiction(_) | Refusal::LimitBelowRequest { .. } => Code::InvalidArgument,
        Refusal::WholeGpus(_) | Refusal::Stranded { .. } => Code::FailedPrecondition,
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        Self::new(failure.code(), failure.to_string())
    }
}

fn list(pids: &[HostPid]) -> String {
    let each: Vec<String> = pids.iter().map(ToString::to_string).collect();
    format!("{} {}", if pids.len() == 1 { "process" } else { "processes" }, each.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_in_use_names_its_processes() {
        let pids = vec![HostPid::new(7), HostPid::new(8)];
        let status = Status::from(Failure::InUse { name: "a".parse().unwrap(), pids });
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("processes 7, 8") && status.message().contains("--force"));
    }
}
