//! Requests: wire to domain by `TryFrom`, domain to wire by `From`.

use std::num::NonZeroU32;
use std::time::Duration;

use tranche_domain::compute::{BadLatency, Latency, Priority};
use tranche_domain::event::BadSeverity;
use tranche_domain::id::{BadName, BadUuid};
use tranche_domain::jobs::{BadWarning, TerminationPolicy};
use tranche_domain::pod::PodContainer;
use tranche_domain::request::{BadPriority, BadShare, ComputeMode, Fraction, Resize, Share, SliceRequest};
use tranche_domain::units::{AboveWhole, Bytes, Permille};
use tranche_domain::view::ComputeState;
use tranche_domain::word::BadWord;

use crate::v1;

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
    #[error("a member of a job takes a fraction of a GPU, or whole GPUs, and no bytes of memory")]
    SizeInBytes,
    #[error("a job of no command was submitted: say what it is to run after --")]
    NoCommand,
    #[error("{0:?} is no absolute path, and a job's working directory has to be one")]
    Workdir(String),
    #[error("a job's command, environment and paths have no zero bytes, and names of variables no '='")]
    Unprintable,
    #[error("a grace of {} s is too long: at most {} s", .0.as_secs(), TerminationPolicy::LONGEST_GRACE.as_secs())]
    Grace(Duration),
    #[error(
        "a project without a quota was asked for: say how many GPUs it can have whenever it wants, with --quota"
    )]
    NoQuota,
    #[error("the update changes nothing: say what is to be different")]
    NoProjectChange,
    #[error("job state {0} is not known to this version")]
    JobState(i32),
    #[error("compute: {0}")]
    Compute(#[from] AboveWhole),
    #[error(transparent)]
    Priority(#[from] BadPriority),
    #[error(transparent)]
    Latency(#[from] BadLatency),
    #[error("a slice of no memory was asked for; the smallest is 1 MiB")]
    NoMemory,
    #[error("compute mode {0} is not known to this version")]
    Mode(i32),
    #[error("compute state {0} is not known to this version")]
    State(i32),
    #[error(
        "the resize changes nothing: give a fraction, a memory size, a compute share, a limit or a priority"
    )]
    NoChange,
}

impl From<BadMessage> for tonic::Status {
    fn from(bad: BadMessage) -> Self {
        Self::invalid_argument(bad.to_string())
    }
}

impl TryFrom<v1::Share> for Share {
    type Error = BadMessage;

    fn try_from(share: v1::Share) -> Result<Self, BadMessage> {
        use v1::share::Kind;
        match share.kind.ok_or(BadShare::Missing)? {
            Kind::FractionPermille(permille) => Ok(Self::Fraction(Fraction::try_from(permille)?)),
            Kind::WholeGpus(count) => {
                Ok(Self::Whole(NonZeroU32::new(count).ok_or_else(|| BadShare::Nothing("0".into()))?))
            }
            Kind::MemoryBytes(bytes) => memory(bytes).map(Self::Memory),
        }
    }
}

impl From<Share> for v1::Share {
    fn from(share: Share) -> Self {
        use v1::share::Kind;
        let kind = match share {
            Share::Fraction(fraction) => Kind::FractionPermille(fraction.into()),
            Share::Whole(count) => Kind::WholeGpus(count.get()),
            Share::Memory(bytes) => Kind::MemoryBytes(bytes.get()),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::ComputeMode> for ComputeMode {
    type Error = BadMessage;

    fn try_from(mode: v1::ComputeMode) -> Result<Self, BadMessage> {
        Ok(match mode {
            v1::ComputeMode::Unspecified | v1::ComputeMode::Fair => Self::Fair,
            v1::ComputeMode::Strict => Self::Strict,
            v1::ComputeMode::BestEffort => Self::BestEffort,
        })
    }
}

impl From<ComputeMode> for v1::ComputeMode {
    fn from(mode: ComputeMode) -> Self {
        match mode {
            ComputeMode::Fair => Self::Fair,
            ComputeMode::Strict => Self::Strict,
            ComputeMode::BestEffort => Self::BestEffort,
        }
    }
}

impl TryFrom<v1::CreateSliceRequest> for SliceRequest {
    type Error = BadMessage;

    fn try_from(wire: v1::CreateSliceRequest) -> Result<Self, BadMessage> {
        Ok(Self {
            mode: mode(wire.compute_mode)?,
            name: wire.name.map(|name| name.parse()).transpose()?,
            share: wire.share.ok_or(BadShare::Missing)?.try_into()?,
            memory: wire.memory_bytes.map(memory).transpose()?,
            compute: wire.compute_permille.map(Permille::try_from).transpose()?,
            limit: wire.limit_permille.map(Permille::try_from).transpose()?,
            priority: wire.priority.try_into()?,
            latency: wire.latency_us.map(TryInto::try_into).transpose()?,
            gang: wire.gang.map(|name| name.parse()).transpose()?,
            gpus: wire.gpus.iter().map(|gpu| gpu.parse()).collect::<Result<_, _>>()?,
            ephemeral: wire.ephemeral,
            pod: wire.pod.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<SliceRequest> for v1::CreateSliceRequest {
    /// With no wait; the caller adds one.
    fn from(request: SliceRequest) -> Self {
        Self {
            name: request.name.map(String::from),
            share: Some(request.share.into()),
            memory_bytes: request.memory.map(Bytes::get),
            compute_permille: request.compute.map(Permille::get),
            compute_mode: v1::ComputeMode::from(request.mode).into(),
            gpus: request.gpus.iter().map(ToString::to_string).collect(),
            wait_ms: 0,
            ephemeral: request.ephemeral,
            limit_permille: request.limit.map(Permille::get),
            priority: request.priority.get().into(),
            latency_us: request.latency.map(Latency::micros),
            gang: request.gang.map(String::from),
            pod: request.pod.map(Into::into),
        }
    }
}

impl TryFrom<v1::PodContainer> for PodContainer {
    type Error = BadMessage;

    fn try_from(wire: v1::PodContainer) -> Result<Self, BadMessage> {
        Ok(Self {
            namespace: wire.namespace.parse()?,
            name: wire.name.parse()?,
            container: wire.container.parse()?,
            uid: wire.uid.map(|uid| uid.parse()).transpose()?,
        })
    }
}

impl From<PodContainer> for v1::PodContainer {
    fn from(pod: PodContainer) -> Self {
        Self {
            namespace: pod.namespace.into(),
            name: pod.name.into(),
            container: pod.container.into(),
            uid: pod.uid.map(String::from),
        }
    }
}

impl TryFrom<v1::ResizeSliceRequest> for Resize {
    type Error = BadMessage;

    /// The name is checked by the caller, who has to look it up anyway.
    fn try_from(wire: v1::ResizeSliceRequest) -> Result<Self, BadMessage> {
        let resize = Self {
            fraction: wire.fraction_permille.map(Fraction::try_from).transpose()?,
            memory: wire.memory_bytes.map(memory).transpose()?,
            compute: wire.compute_permille.map(Permille::try_from).transpose()?,
            limit: wire.limit_permille.map(Permille::try_from).transpose()?,
            priority: wire.priority.map(Priority::try_from).transpose()?,
            frozen: wire.frozen,
        };
        if resize == Self::default() { Err(BadMessage::NoChange) } else { Ok(resize) }
    }
}

impl From<v1::ComputeState> for ComputeState {
    fn from(state: v1::ComputeState) -> Self {
        match state {
            v1::ComputeState::Running => Self::Running,
            v1::ComputeState::Unspecified | v1::ComputeState::NoWork => Self::NoWork,
            v1::ComputeState::OverShare => Self::OverShare,
            v1::ComputeState::LimitReached => Self::LimitReached,
            v1::ComputeState::Frozen => Self::Frozen,
            v1::ComputeState::BehindPriority => Self::BehindPriority,
        }
    }
}

impl From<ComputeState> for v1::ComputeState {
    fn from(state: ComputeState) -> Self {
        match state {
            ComputeState::Running => Self::Running,
            ComputeState::NoWork => Self::NoWork,
            ComputeState::OverShare => Self::OverShare,
            ComputeState::LimitReached => Self::LimitReached,
            ComputeState::Frozen => Self::Frozen,
            ComputeState::BehindPriority => Self::BehindPriority,
        }
    }
}

pub(crate) fn state(number: i32) -> Result<ComputeState, BadMessage> {
    v1::ComputeState::try_from(number).map(Into::into).map_err(|_| BadMessage::State(number))
}

pub(crate) fn mode(number: i32) -> Result<ComputeMode, BadMessage> {
    v1::ComputeMode::try_from(number).map_err(|_| BadMessage::Mode(number))?.try_into()
}

fn memory(bytes: u64) -> Result<Bytes, BadMessage> {
    if Bytes::new(bytes).whole_mib() == 0 { Err(BadMessage::NoMemory) } else { Ok(Bytes::new(bytes)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> SliceRequest {
        SliceRequest {
            name: Some("a".parse().unwrap()),
            share: "0.5".parse().unwrap(),
            memory: Some(Bytes::mib(100)),
            compute: Some(Permille::try_from(300).unwrap()),
            limit: Some(Permille::try_from(300).unwrap()),
            priority: Priority::new(-7),
            latency: Some(Latency::LEAST),
            gang: Some("ranks".parse().unwrap()),
            mode: ComputeMode::Strict,
            gpus: ["1", "2"].map(|gpu| gpu.parse().unwrap()).into(),
            ephemeral: true,
            pod: Some(PodContainer { uid: Some("7-a".parse().unwrap()), .."n/p.q/c".parse().unwrap() }),
        }
    }

    #[test]
    fn a_request_survives_the_wire() {
        let wire = v1::CreateSliceRequest::from(request());
        assert_eq!(SliceRequest::try_from(wire), Ok(request()));
    }

    #[test]
    fn nonsense_from_the_wire_is_refused() {
        let wire = || v1::CreateSliceRequest::from(request());
        let refused = |wire: v1::CreateSliceRequest| SliceRequest::try_from(wire).unwrap_err();
        assert_eq!(refused(v1::CreateSliceRequest { share: None, ..wire() }), BadShare::Missing.into());
        assert_eq!(refused(v1::CreateSliceRequest { memory_bytes: Some(9), ..wire() }), BadMessage::NoMemory);
        let instant = v1::CreateSliceRequest { latency_us: Some(1), ..wire() };
        assert_eq!(refused(instant), BadLatency(1).into());
        assert_eq!(refused(v1::CreateSliceRequest { compute_mode: 9, ..wire() }), BadMessage::Mode(9));
        assert!(matches!(
            refused(v1::CreateSliceRequest { compute_permille: Some(1001), ..wire() }),
            BadMessage::Compute(_)
        ));
        assert!(matches!(
            refused(v1::CreateSliceRequest { priority: 128, ..wire() }),
            BadMessage::Priority(BadPriority(128))
        ));
        assert_eq!(Resize::try_from(v1::ResizeSliceRequest::default()), Err(BadMessage::NoChange));
        let nowhere = Some(v1::PodContainer { namespace: String::new(), ..wire().pod.unwrap() });
        assert!(matches!(refused(v1::CreateSliceRequest { pod: nowhere, ..wire() }), BadMessage::Word(_)));
    }
}
