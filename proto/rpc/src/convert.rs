//! Requests: wire to domain by `TryFrom`, domain to wire by `From`.

use std::num::NonZeroU32;

use tranche_domain::compute::{BadLatency, Latency, Priority};
use tranche_domain::id::GpuSelector;
use tranche_domain::park::ParkStage;
use tranche_domain::pod::PodContainer;
use tranche_domain::request::{BadShare, ComputeMode, Fraction, Resize, Share, SliceRequest};
use tranche_domain::units::{Bytes, Permille};
use tranche_domain::view::ComputeState;

use crate::bad_message::BadMessage;
use crate::mirror::{enumeration, field, mirror};
use crate::v1;

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

enumeration! { ComputeMode = v1::ComputeMode, Mode: Fair, Strict, BestEffort }

enumeration! {
    ComputeState = v1::ComputeState, State: NoWork, Running, OverShare, LimitReached, Frozen, BehindPriority
}

enumeration! { ParkStage = v1::ParkStage, Stage: Parking, Parked, Unparking }

field! {
    GpuSelector = String: |gpu| gpu.to_string(), gpu.parse()?;
}

mirror! {
    PodContainer = v1::PodContainer { namespace, name, container, uid }

    SliceRequest = v1::CreateSliceRequest {
        name, share, priority, gang, project, gpus, ephemeral, rotates, several_containers, pod;
        memory: memory_bytes, compute: compute_permille, limit: limit_permille, mode: compute_mode, latency: latency_us,
        park_idle: park_idle_s => else wait_ms => if has_memory
    }
}

fn has_memory(request: &SliceRequest) -> Result<(), BadMessage> {
    request.memory.map_or(Ok(()), |bytes| memory(bytes.get()).map(drop))
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
            latency: wire.latency_us.map(latency).transpose()?,
            frozen: wire.frozen,
        };
        if resize == Self::default() { Err(BadMessage::NoChange) } else { Ok(resize) }
    }
}

/// A new latency target in microseconds; zero takes it away.
fn latency(micros: u32) -> Result<Option<Latency>, BadLatency> {
    (micros != 0).then(|| Latency::try_from(micros)).transpose()
}

fn memory(bytes: u64) -> Result<Bytes, BadMessage> {
    if Bytes::new(bytes).whole_mib() == 0 { Err(BadMessage::NoMemory) } else { Ok(Bytes::new(bytes)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_domain::park::IdleTime;
    use tranche_domain::request::BadPriority;

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
            project: Some("vision".parse().unwrap()),
            mode: ComputeMode::Strict,
            gpus: ["1", "2"].map(|gpu| gpu.parse().unwrap()).into(),
            ephemeral: true,
            park_idle: IdleTime::try_from(900).ok(),
            rotates: true,
            several_containers: true,
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
        let resized = |micros| {
            let wire = v1::ResizeSliceRequest { latency_us: Some(micros), ..Default::default() };
            Resize::try_from(wire).map(|resize| resize.latency)
        };
        assert_eq!((resized(0), resized(2_000)), (Ok(Some(None)), Ok(Some(Some(Latency::LEAST)))));
        assert_eq!(resized(1), Err(BadLatency(1).into()));
        let nowhere = Some(v1::PodContainer { namespace: String::new(), ..wire().pod.unwrap() });
        assert!(matches!(refused(v1::CreateSliceRequest { pod: nowhere, ..wire() }), BadMessage::Word(_)));
    }
}
