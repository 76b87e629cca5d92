use super::*;
use crate::testing::{bundle, device, idle};

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn scene(occupied: Occupied) -> Scene {
    Scene { slices: [(ours(), occupied)].into(), ..idle(1) }
}

fn ours() -> Bundle {
    bundle([device(0, "p", 0)])
}

fn listed() -> BTreeSet<DeviceId> {
    [device(0, "p", 0)].into()
}

#[test]
fn a_slice_comes_back_when_its_pod_was_missing_twice_half_a_minute_apart() {
    let (mut absences, scene, none) = (Absences::default(), scene(Occupied::No), BTreeSet::new());
    assert_eq!(absences.observe(&scene, &listed(), at(0)), []);
    assert_eq!(absences.observe(&scene, &none, at(100)), [], "missing for the first time");
    assert_eq!(absences.observe(&scene, &none, at(129)), []);
    assert_eq!(absences.observe(&scene, &none, at(130)), [ours()]);
}

#[test]
fn a_slice_of_several_devices_stays_as_long_as_a_pod_has_one_of_them() {
    let several = bundle([device(0, "p", 0), device(1, "p", 0)]);
    let scene = Scene { slices: [(several.clone(), Occupied::No)].into(), ..idle(2) };
    let mut absences = Absences::default();
    assert_eq!(absences.observe(&scene, &[device(1, "p", 0)].into(), at(0)), []);
    assert_eq!(absences.observe(&scene, &[device(0, "p", 0)].into(), at(60)), []);
    assert_eq!(absences.observe(&scene, &BTreeSet::new(), at(100)), []);
    assert_eq!(absences.observe(&scene, &BTreeSet::new(), at(130)), [several]);
}

#[test]
fn a_pod_that_comes_back_starts_over() {
    let (mut absences, scene, none) = (Absences::default(), scene(Occupied::No), BTreeSet::new());
    absences.observe(&scene, &none, at(0));
    absences.observe(&scene, &listed(), at(20));
    assert_eq!(absences.observe(&scene, &none, at(40)), []);
    assert_eq!(absences.observe(&scene, &none, at(69)), []);
    assert_eq!(absences.observe(&scene, &none, at(70)), [ours()]);
}

#[test]
fn a_slice_with_somebody_in_it_stays() {
    let (mut absences, none) = (Absences::default(), BTreeSet::new());
    absences.observe(&scene(Occupied::Yes), &none, at(0));
    assert_eq!(absences.observe(&scene(Occupied::Yes), &none, at(100)), []);
    assert_eq!(absences.observe(&scene(Occupied::No), &none, at(101)), [ours()]);
}

#[test]
fn a_plugin_that_was_away_watches_what_it_finds() {
    let (mut absences, scene) = (Absences::default(), scene(Occupied::No));
    assert_eq!(absences.observe(&scene, &BTreeSet::new(), at(1000)), [], "it looks twice itself");
    assert_eq!(absences.observe(&scene, &BTreeSet::new(), at(1030)), [ours()]);
}

#[test]
fn a_device_that_is_given_again_is_not_remembered_as_missing() {
    let (mut absences, scene, none) = (Absences::default(), scene(Occupied::No), BTreeSet::new());
    absences.observe(&scene, &listed(), at(0));
    absences.observe(&scene, &none, at(10));
    assert_eq!(absences.standing(&ours()), Standing::Vanished);
    absences.begin_anew(&ours());
    assert_eq!(absences.standing(&ours()), Standing::Unknown);
    assert_eq!(absences.observe(&scene, &none, at(45)), []);
}
