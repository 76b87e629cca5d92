use super::*;
use crate::testing::{USUAL, config, device, gpu_devices, offer};

fn sizes(offer: &Offer) -> Vec<(String, u64)> {
    offer
        .devices
        .iter()
        .map(|(device, claim)| (device.profile.to_string(), claim.memory.whole_mib()))
        .collect()
}

fn of_profile(offer: &Offer, name: &str) -> usize {
    let name = name.parse().unwrap();
    offer.devices.keys().filter(|device| device.profile == name).count()
}

#[test]
fn gpus_are_divided_by_their_layouts() {
    let offer = offer(USUAL, 2);
    let first: Vec<_> = sizes(&offer).into_iter().take(3).collect();
    assert_eq!(first, [("gpu-20".into(), 6502), ("gpu-30".into(), 9753), ("gpu-50".into(), 16255)]);
    assert_eq!(offer.devices.len(), 6);
    assert_eq!(of_profile(&offer, "gpu-50"), 2);
}

#[test]
fn equal_devices_have_ordinals() {
    let text = "[[profile]]\nname = 'q'\nfraction = 0.25\n[[layout]]\nprofiles = ['q', 'q', 'q', 'q']";
    let devices: Vec<_> = offer(text, 1).devices.into_keys().collect();
    assert_eq!(devices, [0, 1, 2, 3].map(|ordinal| device(0, "q", ordinal)));
}

#[test]
fn oversized_layout_error_names_the_gpu() {
    let text = "[[profile]]\nname = 'big'\nmemory_mib = 40000\n[[layout]]\nprofiles = ['big']";
    let refused = Offer::of(&config(text), &gpu_devices(1)).unwrap_err().to_string();
    assert!(refused.starts_with("GPU 0 (Tesla V100-SXM2-32GB, 32510 MiB) cannot be divided"), "{refused}");
}

#[test]
fn dynamic_profiles_fill_an_empty_gpu() {
    let text = format!("dynamic = true\n{}", USUAL.split("[[layout]]").next().unwrap());
    let offer = offer(&text, 1);
    let count = |name: &str| of_profile(&offer, name);
    assert_eq!((count("gpu-50"), count("gpu-30"), count("gpu-20")), (2, 3, 5));
}

#[test]
fn dynamic_profile_with_a_target_has_as_many_devices_as_can_hold_it() {
    let text = "dynamic = true\n[[profile]]\nname = 'svc'\nfraction = 0.1\nlatency_ms = 7";
    assert_eq!(offer(text, 1).devices.len(), 3, "four need 8 ms each");
}

#[test]
fn oversized_dynamic_profile_has_no_devices() {
    let text = "dynamic = true\n[[profile]]\nname = 'big'\nmemory_mib = 40000\n[[profile]]\nname = 'w'\nfraction = 1";
    let config = config(text);
    let offer = Offer::of(&config, &gpu_devices(1)).unwrap();
    assert_eq!(offer.devices.into_keys().collect::<Vec<_>>(), [device(0, "w", 0)]);
}

#[test]
fn unconfigured_gpus_are_not_divided() {
    let offer = offer(&format!("gpus = [1]\n{USUAL}"), 3);
    assert!(
        offer.devices.keys().all(|device| device.gpu == gpu_devices(3)[1].uuid) && offer.devices.len() == 3
    );
}
