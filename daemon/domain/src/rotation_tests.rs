use alloc::format;

use proptest::prelude::*;

use super::*;
use crate::node::tests::{name, node, request};
use crate::node::{Node, Origin};
use crate::request::SliceRequest;

const ORIGIN: Origin = Origin { uid: 1000, now_unix_ms: 5, job: None };
const LOOK: Duration = Duration::from_millis(20);

/// A node whose rotating slices always have work, with the stays that they had.
struct Rotating {
    node: Node,
    rotation: Rotation,
    now: Duration,
    held: Bytes,
    cost: Duration,
    idle: BTreeSet<SliceName>,
    here: BTreeMap<SliceName, Duration>,
    begun: BTreeMap<SliceName, Duration>,
}

impl Rotating {
    fn of(gpus: u32, overcommit: f64, shares: &[&str]) -> Self {
        let mut node = node(gpus);
        node.set_overcommit(overcommit.try_into().unwrap());
        for (index, share) in shares.iter().enumerate() {
            let named = Some(name(&format!("s{index}")));
            node.create(&SliceRequest { name: named, rotates: true, ..request(share) }, ORIGIN).unwrap();
        }
        Self {
            node,
            rotation: Rotation::default(),
            now: Duration::ZERO,
            held: Bytes::mib(100),
            cost: Duration::from_millis(50),
            idle: BTreeSet::new(),
            here: BTreeMap::new(),
            begun: BTreeMap::new(),
        }
    }

    fn observe(&self) -> Vec<RotatingSlice> {
        let rotating = self.node.slices().values().filter(|slice| slice.rotates);
        let seen = rotating.map(|slice| RotatingSlice {
            name: slice.name.clone(),
            gpus: slice.parts.iter().map(|part| part.gpu).collect(),
            presence: match slice.is_away() {
                false => Presence::Here,
                true if self.idle.contains(&slice.name) => Presence::Away,
                true => Presence::Wanted,
            },
            held: self.held,
        });
        seen.collect()
    }

    /// Lets time pass, and carries out what is due. Each switch takes its cost, in which none is there.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            let slices = self.observe();
            for slice in slices.iter().filter(|slice| slice.presence == Presence::Here) {
                *self.here.entry(slice.name.clone()).or_default() += LOOK;
            }
            for switch in self.rotation.due(&self.node, self.now, &slices) {
                for leaver in &switch.leave {
                    let begun = self.begun.get(leaver).copied().unwrap_or_default();
                    assert!(self.now - begun >= LEAST_STAY, "{leaver} left too early");
                    self.node.suppose(leaver, true);
                }
                assert!(self.node.may_return(&switch.comes), "{switch:?}");
                self.node.begin_unparking(&switch.comes).unwrap();
                self.node.finish_unparking(&switch.comes).unwrap();
                self.rotation.came(&switch.comes, self.now, self.cost);
                self.begun.insert(switch.comes, self.now);
            }
            for gpu in self.node.gpus() {
                assert!(self.node.committed(gpu.uuid).0 <= gpu.capacity);
            }
            self.now += LOOK;
        }
    }

    fn time_of(&self, index: usize) -> f64 {
        self.here.get(&name(&format!("s{index}"))).copied().unwrap_or_default().as_secs_f64()
    }
}

#[test]
fn four_slices_of_60_percent_have_equal_times() {
    let mut rotating = Rotating::of(1, 2.4, &["0.6"; 4]);
    rotating.pass(Duration::from_secs(60));
    for index in 0..4 {
        let share = rotating.time_of(index) / 60.0;
        assert!((share - 0.25).abs() <= 0.03, "s{index} has {share}");
    }
}

#[test]
fn return_is_expected_after_the_stays_before_it() {
    let mut rotating = Rotating::of(1, 1.8, &["0.6"; 3]);
    rotating.pass(Duration::from_secs(12));
    let expected = rotating.rotation.returns(rotating.now, &rotating.observe());
    assert_eq!(expected.len(), 2, "one is there: {expected:?}");
    let (next, first) = expected.iter().min_by_key(|(_, time)| **time).unwrap();
    let last = *expected.values().max().unwrap();
    assert!(*first <= LEAST_STAY && last >= *first + LEAST_STAY, "{expected:?}");
    rotating.pass(*first + LOOK * 2);
    assert!(!rotating.node.slice(next).unwrap().is_away(), "{next} came as expected");
}

#[test]
fn stay_is_twelve_times_the_copies_of_its_switch() {
    let mut rotating = Rotating::of(1, 1.2, &["0.6"; 2]);
    (rotating.held, rotating.cost) = (Bytes::mib(6 << 10), Duration::from_secs(1));
    rotating.pass(Duration::from_secs(11));
    assert!(rotating.time_of(1) < 0.1, "its memory takes one second to leave");
    rotating.pass(Duration::from_secs(2));
    assert!(rotating.time_of(1) > 0.9);
    // 12 GiB/s were measured: half a second to leave, and one second to come.
    rotating.rotation.left(Bytes::mib(12 << 10), Duration::from_secs(1));
    rotating.pass(Duration::from_secs(16));
    assert!((rotating.time_of(0) - 12.0).abs() < 0.1, "{}", rotating.time_of(0));
    rotating.pass(Duration::from_secs(2));
    assert!(rotating.time_of(0) > 12.5, "{}", rotating.time_of(0));
}

#[test]
fn slice_without_work_is_not_brought_back_and_has_no_claim_for_it() {
    let mut rotating = Rotating::of(1, 1.8, &["0.6"; 3]);
    rotating.idle.insert(name("s2"));
    rotating.pass(Duration::from_secs(40));
    assert!((rotating.time_of(0) - rotating.time_of(1)).abs() <= 2.1);
    assert!(rotating.time_of(2) < 0.1);
    rotating.idle.clear();
    rotating.here.clear();
    rotating.pass(Duration::from_secs(24));
    assert!((rotating.time_of(2) - 8.0).abs() <= 2.1, "{}", rotating.time_of(2));
}

#[test]
fn slices_that_fit_are_there_together() {
    let mut rotating = Rotating::of(1, 1.5, &["0.5"; 3]);
    rotating.pass(Duration::from_secs(60));
    let times: f64 = (0..3).map(|index| rotating.time_of(index)).sum();
    assert!(times > 118.0, "two of three are there at any time: {times}");
    assert!((0..3).all(|index| (rotating.time_of(index) - 40.0).abs() < 4.5));
}

#[test]
fn large_slice_is_not_starved_by_small_ones() {
    let mut rotating = Rotating::of(1, 2.0, &["0.9", "0.3", "0.3", "0.3", "0.2"]);
    rotating.pass(Duration::from_secs(120));
    assert!(rotating.time_of(0) > 30.0, "{}", rotating.time_of(0));
    assert!((1..5).all(|index| rotating.time_of(index) > 30.0));
}

#[test]
fn what_cannot_leave_is_left_alone_for_a_while() {
    let mut rotating = Rotating::of(1, 1.2, &["0.6"; 2]);
    rotating.rotation.leave_alone(&name("s0"), Duration::from_secs(30));
    rotating.pass(Duration::from_secs(29));
    assert!(rotating.time_of(1) < 0.1);
    rotating.pass(Duration::from_secs(5));
    assert!(rotating.time_of(1) > 0.0);
}

#[test]
fn gpu_of_a_slice_on_its_way_is_left_alone() {
    let mut rotating = Rotating::of(1, 1.8, &["0.6"; 3]);
    rotating.pass(Duration::from_secs(1));
    let mut slices = rotating.observe();
    slices[1].presence = Presence::Moving;
    let later = Duration::from_secs(100);
    assert!(rotating.rotation.due(&rotating.node, later, &slices).is_empty());
}

proptest! {
    /// Each slice that always has work is on its GPU again and again.
    #[test]
    fn every_slice_has_its_stays(shares in prop::collection::vec(100..=999u32, 2..7), gpus in 1..3u32) {
        let shares: Vec<_> = shares.iter().map(|share| format!("0.{share:03}")).collect();
        let shares: Vec<&str> = shares.iter().map(|share| share.as_str()).collect();
        let mut rotating = Rotating::of(gpus, 16.0, &shares);
        rotating.pass(Duration::from_secs(30));
        rotating.here.clear();
        rotating.pass(Duration::from_secs(30));
        for index in 0..shares.len() {
            prop_assert!(rotating.time_of(index) >= 1.9, "s{index} of {shares:?} had {}", rotating.time_of(index));
        }
    }
}
