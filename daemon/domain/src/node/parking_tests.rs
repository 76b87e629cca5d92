use alloc::vec::Vec;

use proptest::prelude::*;

use crate::cordon::Cordon;
use crate::id::{GpuSelector, SliceName};
use crate::node::tests::{name, node, request};
use crate::node::{Node, Origin, Refusal};
use crate::request::{Fraction, Resize};
use crate::units::{Bytes, Permille};

const ORIGIN: Origin = Origin { uid: 1000, now_unix_ms: 5, job: None };

const BUDGET: Bytes = Bytes::mib(1 << 20);

fn park(node: &mut Node, slice: &SliceName) {
    node.begin_parking(slice, Bytes::mib(100), BUDGET, 1, false).unwrap();
    node.finish_parking(slice).unwrap();
}

#[test]
fn parked_slice_leaves_its_part_to_others_and_returns_when_it_is_free() {
    let mut node = node(1);
    let gpu = node.gpus()[0].uuid;
    let night = node.create(&request("0.6"), ORIGIN).unwrap().name.clone();
    let committed = node.committed(gpu);
    node.begin_parking(&night, Bytes::mib(100), BUDGET, 1, false).unwrap();
    assert_eq!(node.committed(gpu), committed, "its processes may still hold it");
    node.finish_parking(&night).unwrap();
    assert_eq!(node.committed(gpu), (Bytes::ZERO, Permille::ZERO));
    assert!(node.slice(&night).unwrap().is_held());

    let day = node.create(&request("0.6"), ORIGIN).unwrap().name.clone();
    let refused = node.begin_unparking(&night);
    assert!(matches!(refused, Err(Refusal::NoRoomToReturn { .. })), "{refused:?}");
    let refused = refused.unwrap_err();
    assert!(refused.may_pass() && refused.is_want_of_room());
    assert_eq!(node.holders(&[gpu]).first(), Some(&day));
    node.delete(&day).unwrap();
    node.begin_unparking(&night).unwrap();
    assert_eq!(node.committed(gpu), committed, "before the first process is restored");
    assert!(node.create(&request("0.6"), ORIGIN).is_err());
    node.finish_unparking(&night).unwrap();
    assert_eq!(node.slice(&night).unwrap().parked, None);
    assert_eq!(node.parked_host(), Bytes::ZERO);
}

#[test]
fn parking_has_a_budget_of_host_memory() {
    let mut node = node(2);
    let names: Vec<SliceName> =
        (0..3).map(|_| node.create(&request("0.5"), ORIGIN).unwrap().name.clone()).collect();
    let budget = Bytes::mib(250);
    for name in &names[..2] {
        node.begin_parking(name, Bytes::mib(100), budget, 1, false).unwrap();
    }
    let refused = node.begin_parking(&names[2], Bytes::mib(100), budget, 1, false);
    assert!(matches!(refused, Err(Refusal::NoHostMemory { .. })), "{refused:?}");
    assert!(node.begin_parking(&names[2], Bytes::mib(50), budget, 1, false).is_ok());
    node.finish_unparking(&names[2]).unwrap();
    assert!(node.begin_parking(&names[2], Bytes::new(u64::MAX), budget, 1, false).is_err(), "no overflow");
}

#[test]
fn unknown_slices_are_not_parked() {
    let mut node = node(1);
    let here = node.create(&request("0.5"), ORIGIN).unwrap().name.clone();
    assert_eq!(node.begin_unparking(&here), Err(Refusal::NotParked(here)));
    assert!(node.begin_parking(&name("none"), Bytes::ZERO, BUDGET, 1, false).is_err());
}

#[test]
fn parked_slice_is_not_resized_and_not_placed_on_a_cordoned_gpu() {
    let mut node = node(1);
    let slice = node.create(&request("0.5"), ORIGIN).unwrap().name.clone();
    park(&mut node, &slice);
    let larger = Resize { fraction: Fraction::try_from(600).ok(), ..Resize::default() };
    assert!(matches!(node.resize(&slice, larger), Err(Refusal::Parked { .. })));
    let cordon = Cordon { by_uid: 0, since_unix_ms: 1, reason: None, told: "cordoned".into() };
    node.cordon(&[GpuSelector::Index(0)], &cordon).unwrap();
    let refused = node.begin_unparking(&slice).unwrap_err();
    assert!(matches!(refused, Refusal::CordonedToReturn { index: 0, .. }), "{refused:?}");
    assert!(refused.may_pass() && !refused.is_want_of_room());
    let obstacle = Some("its memory fails".into());
    node.set_obstacle(node.gpus()[0].uuid, obstacle);
    let refused = node.check_return(&slice).unwrap_err();
    assert!(
        matches!(&refused, Refusal::ObstacleToReturn { index: 0, reason, .. } if reason == "its memory fails")
    );
    assert!(!refused.may_pass());
    node.set_obstacle(node.gpus()[0].uuid, None);
    node.uncordon(&[GpuSelector::Index(0)]).unwrap();
    assert!(node.begin_unparking(&slice).is_ok());
}

#[test]
fn parked_slice_of_an_earlier_daemon_needs_no_room() {
    let mut before = node(1);
    let night = before.create(&request("0.6"), ORIGIN).unwrap().name.clone();
    park(&mut before, &night);
    before.create(&request("0.6"), ORIGIN).unwrap();
    let mut after = node(1);
    for slice in before.slices().values() {
        after.adopt(slice.clone()).unwrap();
    }
    assert_eq!(after, before);
}

proptest! {
    /// Slices are created, deleted, parked and brought back: no GPU is promised twice.
    #[test]
    fn no_history_of_parking_promises_a_gpu_twice(
        steps in proptest::collection::vec((0..5u8, 0..6usize, 1..=1000u32), 1..60)
    ) {
        let mut node = node(2);
        for (step, which, share) in steps {
            let names: Vec<SliceName> = node.slices().keys().cloned().collect();
            let named = names.get(which).cloned().unwrap_or_else(|| name("none"));
            let share = alloc::format!("0.{:03}", share.min(999));
            let _ = match step {
                0 => node.create(&request(&share), ORIGIN).map(drop),
                1 => node.begin_parking(&named, Bytes::mib(1), BUDGET, 1, false),
                2 => node.finish_parking(&named),
                3 => node.begin_unparking(&named),
                _ if which % 2 == 0 => node.finish_unparking(&named),
                _ => node.delete(&named).map(drop),
            };
            for gpu in node.gpus() {
                let (memory, compute) = node.committed(gpu.uuid);
                prop_assert!(memory <= gpu.capacity && compute <= Permille::WHOLE);
            }
            let on_gpus = node.slices().values().filter(|slice| !slice.is_away());
            let sum: Bytes = on_gpus.flat_map(|slice| &slice.parts).map(|part| part.cap).sum();
            let committed: Bytes = node.gpus().iter().map(|gpu| node.committed(gpu.uuid).0).sum();
            prop_assert_eq!(sum, committed);
        }
    }
}
