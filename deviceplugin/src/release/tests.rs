use super::*;
use crate::testing::{bundle, device, idle};

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn headroom(occupied: Occupied) -> NodeHeadroom {
    NodeHeadroom { slices: [(ours(), occupied)].into(), ..idle(1) }
}

fn ours() -> Bundle {
    bundle([device(0, "p", 0)])
}

fn listed() -> BTreeSet<DeviceId> {
    [device(0, "p", 0)].into()
}

#[test]
fn slice_is_released_after_two_absences() {
    let (mut absences, headroom, none) = (Absences::default(), headroom(Occupied::No), BTreeSet::new());
    assert_eq!(absences.observe(&headroom, &listed(), at(0)), []);
    assert_eq!(absences.observe(&headroom, &none, at(100)), [], "missing for the first time");
    assert_eq!(absences.observe(&headroom, &none, at(129)), []);
    assert_eq!(absences.observe(&headroom, &none, at(130)), [ours()]);
}

#[test]
fn slice_stays_while_any_device_is_listed() {
    let several = bundle([device(0, "p", 0), device(1, "p", 0)]);
    let headroom = NodeHeadroom { slices: [(several.clone(), Occupied::No)].into(), ..idle(2) };
    let mut absences = Absences::default();
    assert_eq!(absences.observe(&headroom, &[device(1, "p", 0)].into(), at(0)), []);
    assert_eq!(absences.observe(&headroom, &[device(0, "p", 0)].into(), at(60)), []);
    assert_eq!(absences.observe(&headroom, &BTreeSet::new(), at(100)), []);
    assert_eq!(absences.observe(&headroom, &BTreeSet::new(), at(130)), [several]);
}

#[test]
fn reappearing_pod_resets_the_absence() {
    let (mut absences, headroom, none) = (Absences::default(), headroom(Occupied::No), BTreeSet::new());
    absences.observe(&headroom, &none, at(0));
    absences.observe(&headroom, &listed(), at(20));
    assert_eq!(absences.observe(&headroom, &none, at(40)), []);
    assert_eq!(absences.observe(&headroom, &none, at(69)), []);
    assert_eq!(absences.observe(&headroom, &none, at(70)), [ours()]);
}

#[test]
fn occupied_slice_is_not_released() {
    let (mut absences, none) = (Absences::default(), BTreeSet::new());
    absences.observe(&headroom(Occupied::Yes), &none, at(0));
    assert_eq!(absences.observe(&headroom(Occupied::Yes), &none, at(100)), []);
    assert_eq!(absences.observe(&headroom(Occupied::No), &none, at(101)), [ours()]);
}

#[test]
fn restarted_plugin_observes_existing_slices() {
    let (mut absences, headroom) = (Absences::default(), headroom(Occupied::No));
    assert_eq!(absences.observe(&headroom, &BTreeSet::new(), at(1000)), [], "it looks twice itself");
    assert_eq!(absences.observe(&headroom, &BTreeSet::new(), at(1030)), [ours()]);
}

#[test]
fn reallocated_device_has_no_absence() {
    let (mut absences, headroom, none) = (Absences::default(), headroom(Occupied::No), BTreeSet::new());
    absences.observe(&headroom, &listed(), at(0));
    absences.observe(&headroom, &none, at(10));
    assert_eq!(absences.standing(&ours()), Standing::Vanished);
    absences.reset(&ours());
    assert_eq!(absences.standing(&ours()), Standing::Unknown);
    assert_eq!(absences.observe(&headroom, &none, at(45)), []);
}
