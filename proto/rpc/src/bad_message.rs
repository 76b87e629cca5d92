//! The refusal of messages without a corresponding domain value.

use std::time::Duration;

use tranche_domain::compute::BadLatency;
use tranche_domain::event::BadSeverity;
use tranche_domain::id::{BadName, BadUuid};
use tranche_domain::jobs::{
    BadContainer, BadCpus, BadHealthCheck, BadMemberPart, BadTimeLimit, BadWarning, TerminationPolicy,
};
use tranche_domain::park::BadIdleTime;
use tranche_domain::request::{BadPriority, BadShare};
use tranche_domain::units::AboveWhole;
use tranche_domain::word::BadWord;

/// Error of a message without a corresponding domain value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the error texts document them
pub enum BadMessage {
    #[error(transparent)]
    Name(#[from] BadName),
    #[error(transparent)]
    Uuid(#[from] BadUuid),
    #[error(transparent)]
    Share(#[from] BadShare),
    #[error(transparent)]
    Word(#[from] BadWord),
    #[error(transparent)]
    Severity(#[from] BadSeverity),
    #[error(transparent)]
    Warning(#[from] BadWarning),
    #[error(transparent)]
    Cpus(#[from] BadCpus),
    #[error(transparent)]
    HealthCheck(#[from] BadHealthCheck),
    #[error("a service has one member, and {0} were asked for: submit a service for each")]
    ServiceMembers(u32),
    #[error("{0} MiB is more memory than any machine has: give a member less")]
    TooMuchMemory(u64),
    #[error("a member of no memory on the host was submitted: give it at least 1 MiB with --mem")]
    NoHostMemory,
    #[error(transparent)]
    MemberPart(#[from] BadMemberPart),
    #[error(
        "a share of a job's member is a fraction of a GPU, or whole GPUs, and no bytes of memory: those are its memory"
    )]
    SizeInBytes,
    #[error(transparent)]
    Container(#[from] BadContainer),
    #[error(
        "a job of no command was submitted: say what it is to run after --, or give an --image that has one"
    )]
    NoCommand,
    #[error("{0:?} is no absolute path, and a job's working directory has to be one")]
    Workdir(String),
    #[error("a job's command, environment and paths have no zero bytes, and names of variables no '='")]
    Unprintable,
    #[error("a grace of {} s is too long: at most {} s", .0.as_secs(), TerminationPolicy::LONGEST_GRACE.as_secs())]
    Grace(Duration),
    #[error("--max-runtime: {0}")]
    MaxRuntime(BadTimeLimit),
    #[error("--interactive-limit: {0}")]
    InteractiveLimit(BadTimeLimit),
    #[error("--idle-limit: {0}")]
    IdleLimit(BadTimeLimit),
    #[error(
        "a project without a quota was asked for: say how many GPUs it can have whenever it wants, with --quota"
    )]
    NoQuota,
    #[error("the update changes nothing: say what is to be different")]
    NoProjectChange,
    #[error("job state {0} is not known to this version")]
    JobState(i32),
    #[error("grouping {0} of a report is not known to this version")]
    ReportKey(i32),
    #[error("idle policy {0} is not known to this version")]
    IdlePolicy(i32),
    #[error("compute: {0}")]
    Compute(#[from] AboveWhole),
    #[error(transparent)]
    Priority(#[from] BadPriority),
    #[error(transparent)]
    Latency(#[from] BadLatency),
    #[error(transparent)]
    IdleTime(#[from] BadIdleTime),
    #[error("a slice of no memory was asked for; the smallest is 1 MiB")]
    NoMemory,
    #[error("compute mode {0} is not known to this version")]
    Mode(i32),
    #[error("compute state {0} is not known to this version")]
    State(i32),
    #[error("{0} is no stage of a parked slice that this version knows")]
    Stage(i32),
    #[error(
        "the resize changes nothing: give a fraction, a memory size, a compute share, a limit, a priority or a latency"
    )]
    NoChange,
}

impl From<BadMessage> for tonic::Status {
    fn from(bad: BadMessage) -> Self {
        Self::invalid_argument(bad.to_string())
    }
}
