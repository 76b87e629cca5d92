//! Conversions of cordons and drains.

use tranche_domain::cordon::{Cordon, Cordoned};
use tranche_domain::view::RemainingView;

use crate::mirror::mirror;
use crate::v1;

mirror! {
    Cordon = v1::CordonView { by_uid, since_unix_ms, reason, told }

    Cordoned = v1::CordonedGpu { index, uuid, cordon, changed }

    RemainingView = v1::Remaining { gpu_index, gpu_uuid, slice, pids }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_domain::id::{GpuUuid, HostPid};

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
