//! Cordons and drains: domain to wire by `From`, wire to domain by `TryFrom`.

use tranche_domain::cordon::{Cordon, Cordoned};
use tranche_domain::id::HostPid;
use tranche_domain::view::RemainingView;

use crate::convert::BadMessage;
use crate::v1;

impl From<Cordon> for v1::CordonView {
    fn from(cordon: Cordon) -> Self {
        Self {
            by_uid: cordon.by_uid,
            since_unix_ms: cordon.since_unix_ms,
            reason: cordon.reason.map(String::from),
            told: cordon.told,
        }
    }
}

impl TryFrom<v1::CordonView> for Cordon {
    type Error = BadMessage;

    fn try_from(wire: v1::CordonView) -> Result<Self, BadMessage> {
        Ok(Self {
            by_uid: wire.by_uid,
            since_unix_ms: wire.since_unix_ms,
            reason: wire.reason.map(|reason| reason.parse()).transpose()?,
            told: wire.told,
        })
    }
}

impl From<Cordoned> for v1::CordonedGpu {
    fn from(gpu: Cordoned) -> Self {
        Self {
            index: gpu.index,
            uuid: gpu.uuid.to_string(),
            cordon: gpu.cordon.map(Into::into),
            changed: gpu.changed,
        }
    }
}

impl TryFrom<v1::CordonedGpu> for Cordoned {
    type Error = BadMessage;

    fn try_from(wire: v1::CordonedGpu) -> Result<Self, BadMessage> {
        Ok(Self {
            index: wire.index,
            uuid: wire.uuid.parse()?,
            cordon: wire.cordon.map(TryInto::try_into).transpose()?,
            changed: wire.changed,
        })
    }
}

impl From<RemainingView> for v1::Remaining {
    fn from(remaining: RemainingView) -> Self {
        Self {
            gpu_index: remaining.gpu_index,
            gpu_uuid: remaining.gpu_uuid.to_string(),
            slice: remaining.slice.map(String::from),
            pids: remaining.pids.into_iter().map(HostPid::get).collect(),
        }
    }
}

impl TryFrom<v1::Remaining> for RemainingView {
    type Error = BadMessage;

    fn try_from(wire: v1::Remaining) -> Result<Self, BadMessage> {
        Ok(Self {
            gpu_index: wire.gpu_index,
            gpu_uuid: wire.gpu_uuid.parse()?,
            slice: wire.slice.map(|name| name.parse()).transpose()?,
            pids: wire.pids.into_iter().map(HostPid::new).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_domain::id::GpuUuid;

    #[test]
    fn cordons_and_remaining_slices_survive_the_wire() {
        let reason = Some("fan".parse().unwrap());
        let cordon = Cordon { by_uid: 7, since_unix_ms: 5, reason, told: "cordoned by a".into() };
        let uuid = GpuUuid::from_bytes([3; 16]);
        let gpu = Cordoned { index: 2, uuid, cordon: Some(cordon), changed: true };
        assert_eq!(Cordoned::try_from(v1::CordonedGpu::from(gpu.clone())), Ok(gpu));
        let slice = Some("a".parse().unwrap());
        let remaining = RemainingView { gpu_index: 2, gpu_uuid: uuid, slice, pids: vec![HostPid::new(7)] };
        assert_eq!(RemainingView::try_from(v1::Remaining::from(remaining.clone())), Ok(remaining));
        let bad = v1::CordonView { reason: Some("\n".into()), ..Default::default() };
        assert!(Cordon::try_from(bad).is_err());
    }
}
