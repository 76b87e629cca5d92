use proptest::prelude::*;

use super::*;
use crate::health::Occupied;
use crate::testing::{bundle, device, idle};

fn devices(gpus: std::ops::Range<u8>) -> Vec<DeviceId> {
    gpus.flat_map(|gpu| [0, 1].map(|ordinal| device(gpu, "p", ordinal))).collect()
}

#[test]
fn partly_used_gpu_is_filled_first() {
    let mut headroom = idle(3);
    headroom.slices.insert(bundle([device(1, "q", 0)]), Occupied::No);
    assert_eq!(preferred(&headroom, &devices(0..3), &[], 1), [device(1, "p", 0)]);
}

#[test]
fn devices_are_spread_over_gpus() {
    let chosen = preferred(&idle(3), &devices(0..3), &[device(1, "p", 1)], 3);
    assert_eq!(chosen, [device(1, "p", 1), device(0, "p", 0), device(2, "p", 0)]);
    assert_eq!(preferred(&idle(1), &devices(0..1), &[], 2).len(), 1, "there is one GPU");
}

proptest! {
    #[test]
    fn preference_is_available_spread_and_order_independent(
        available in Just(devices(0..4)).prop_shuffle(), count in 0usize..6,
    ) {
        let chosen = preferred(&idle(4), &available, &[], count);
        prop_assert_eq!(chosen.len(), count.min(4));
        prop_assert_eq!(chosen.iter().map(|device| device.gpu).collect::<BTreeSet<_>>().len(), chosen.len());
        prop_assert!(chosen.iter().all(|device| available.contains(device)));
        prop_assert_eq!(chosen, preferred(&idle(4), &devices(0..4), &[], count));
    }
}
