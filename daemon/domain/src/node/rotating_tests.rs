use alloc::string::ToString;
use alloc::vec::Vec;

use proptest::prelude::*;

use crate::compute::Latency;
use crate::id::SliceName;
use crate::node::tests::{name, node, request};
use crate::node::{KeptGpus, Node, Origin, Refusal};
use crate::overcommit::Overcommit;
use crate::request::{Fraction, Resize, SliceRequest};
use crate::units::Bytes;

const ORIGIN: Origin = Origin { uid: 1000, now_unix_ms: 5, job: None };
const BUDGET: Bytes = Bytes::mib(1 << 20);

fn rotating(share: &str) -> SliceRequest {
    SliceRequest { rotates: true, ..request(share) }
}

fn overcommitted(multiple: f64) -> Node {
    let mut node = node(1);
    node.set_overcommit(Overcommit::try_from(multiple).unwrap());
    node
}

#[test]
fn rotating_slices_are_made_up_to_the_overcommit_and_wait_parked() {
    let mut node = overcommitted(1.8);
    let first = node.create(&rotating("0.6"), ORIGIN).unwrap().clone();
    assert_eq!(first.parked, None);
    for _ in 0..2 {
        let next = node.create(&rotating("0.6"), ORIGIN).unwrap().clone();
        assert!(next.is_away() && next.parked.is_some_and(|park| park.wakes && park.host == Bytes::ZERO));
        assert!(!node.may_return(&next.name));
    }
    let refused = node.create(&rotating("0.6"), ORIGIN).unwrap_err();
    assert!(refused.to_string().contains("1.8 times") && refused.may_pass(), "{refused}");
    assert!(matches!(node.create(&request("0.6"), ORIGIN), Err(Refusal::Unplaceable(_))), "it needs room");
}

#[test]
fn none_rotates_without_overcommit_nor_with_what_needs_presence() {
    assert_eq!(node(1).create(&rotating("0.6"), ORIGIN), Err(Refusal::NoRotation));
    let mut node = overcommitted(2.0);
    for request in [
        SliceRequest { latency: Latency::try_from(5_000).ok(), ..rotating("0.1") },
        SliceRequest { gang: "ranks".parse().ok(), ..rotating("0.1") },
        SliceRequest { project: "team".parse().ok(), ..rotating("0.1") },
    ] {
        assert!(matches!(node.create(&request, ORIGIN), Err(Refusal::Contradiction(_))), "{request:?}");
    }
}

#[test]
fn room_for_the_largest_is_kept_while_none_is_there() {
    let mut node = overcommitted(2.0);
    let gpu = node.gpus()[0].uuid;
    let large = node.create(&rotating("0.7"), ORIGIN).unwrap().name.clone();
    node.begin_parking(&large, Bytes::mib(1), BUDGET, 1, true).unwrap();
    node.finish_parking(&large).unwrap();
    assert!(node.create(&request("0.4"), ORIGIN).is_err());
    node.create(&request("0.3"), ORIGIN).unwrap();
    assert_eq!(node.for_jobs(&[].into())[0].outside.get(), 700, "the quota scheduler keeps it as well");
    assert!(node.user_slices().iter().all(|slice| slice.name != large));
    assert!(node.may_return(&large));
    let small = node.create(&rotating("0.5"), ORIGIN).unwrap().clone();
    assert!(!small.is_away() && !node.may_return(&large));
    assert_eq!(node.committed(gpu).0, Bytes::mib(22757 + 9753), "not 0.7 and 0.5");
    let grown = Resize { fraction: Fraction::try_from(800).ok(), ..Resize::default() };
    assert!(matches!(node.resize(&small.name, grown), Err(Refusal::CannotGrow { .. })));
}

#[test]
fn part_kept_for_a_job_is_no_room_for_a_return_or_growth() {
    let mut node = overcommitted(2.0);
    let gpu = node.gpus()[0].uuid;
    let first = node.create(&rotating("0.3"), ORIGIN).unwrap().name.clone();
    let second = node.create(&rotating("0.3"), ORIGIN).unwrap().name.clone();
    node.begin_parking(&second, Bytes::mib(1), BUDGET, 1, true).unwrap();
    node.finish_parking(&second).unwrap();
    let kept = [(gpu, 600.try_into().unwrap())].into();
    node.set_kept(KeptGpus { parts: kept, ..KeptGpus::default() });
    assert!(!node.may_return(&second));
    let grown = Resize { fraction: Fraction::try_from(450).ok(), ..Resize::default() };
    assert!(matches!(node.resize(&first, grown), Err(Refusal::CannotGrow { .. })));
    node.begin_parking(&first, Bytes::mib(1), BUDGET, 1, true).unwrap();
    node.finish_parking(&first).unwrap();
    assert!(node.may_return(&second), "its stay is beside the job's part");
}

#[test]
fn resize_stays_within_the_overcommit() {
    let mut node = overcommitted(1.2);
    let first = node.create(&rotating("0.6"), ORIGIN).unwrap().name.clone();
    node.create(&rotating("0.6"), ORIGIN).unwrap();
    let to = |permille| Resize { fraction: Fraction::try_from(permille).ok(), ..Resize::default() };
    assert!(matches!(node.resize(&first, to(700)), Err(Refusal::CannotGrow { .. })));
    node.resize(&first, to(400)).unwrap();
    node.resize(&first, to(600)).unwrap();
}

#[test]
fn rotating_slices_of_an_earlier_daemon_are_restored() {
    let mut before = overcommitted(3.0);
    before.create(&request("0.3"), ORIGIN).unwrap();
    for share in ["0.7", "0.6", "0.5"] {
        before.create(&rotating(share), ORIGIN).unwrap();
    }
    // The overcommit may have been lowered since.
    let mut after = node(1);
    for slice in before.slices().values() {
        after.adopt(slice.clone()).unwrap();
    }
    assert_eq!(after.slices(), before.slices());
}

proptest! {
    /// No history promises a GPU twice, and each rotating slice fits beside what does not rotate.
    #[test]
    fn every_rotating_slice_could_have_its_stay(
        steps in proptest::collection::vec((0..7u8, 0..8usize, 1..=999u32), 1..60)
    ) {
        let mut node = node(2);
        node.set_overcommit(Overcommit::try_from(2.5).unwrap());
        for (step, which, permille) in steps {
            let names: Vec<SliceName> = node.slices().keys().cloned().collect();
            let named = names.get(which).cloned().unwrap_or_else(|| name("none"));
            let share = alloc::format!("0.{permille:03}");
            let _ = match step {
                0 => node.create(&request(&share), ORIGIN).map(drop),
                1 | 2 => node.create(&rotating(&share), ORIGIN).map(drop),
                3 => node.begin_parking(&named, Bytes::mib(1), BUDGET, 1, true).and_then(|()| node.finish_parking(&named)),
                4 => node.begin_unparking(&named).and_then(|()| node.finish_unparking(&named)),
                5 => {
                    let resize = Resize { fraction: Fraction::try_from(permille).ok(), ..Resize::default() };
                    node.resize(&named, resize).map(drop)
                }
                _ => node.delete(&named).map(drop),
            };
            for gpu in node.gpus() {
                let (memory, compute) = node.committed(gpu.uuid);
                prop_assert!(memory <= gpu.capacity && compute.get() <= 1000);
            }
            for slice in node.slices().values().filter(|slice| slice.rotates) {
                let mut alone = node.clone();
                for other in node.slices().values().filter(|other| other.rotates) {
                    alone.suppose(&other.name, true);
                }
                prop_assert!(alone.may_return(&slice.name), "{} never has a stay", slice.name);
            }
        }
    }
}
