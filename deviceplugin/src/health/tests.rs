use super::*;
use crate::testing::{USUAL, bundle, device, idle, offer, uuid};

fn room(headroom: &mut NodeHeadroom) -> &mut GpuHeadroom {
    headroom.gpus.get_mut(&uuid(0)).unwrap()
}

fn unhealthy(headroom: &NodeHeadroom, offer: &Offer) -> Vec<(String, String)> {
    let ill = headroom.health(offer).into_iter().filter(|(_, health)| !health.is_healthy());
    ill.map(|(device, health)| (device.profile.to_string(), health.to_string())).collect()
}

#[test]
fn idle_gpu_offers_its_whole_layout() {
    assert_eq!(unhealthy(&idle(2), &offer(USUAL, 2)), []);
}

#[test]
fn broken_gpu_breaks_devices_in_use() {
    let (mut headroom, offer) = (idle(1), offer(USUAL, 1));
    headroom.slices.insert(bundle([device(0, "gpu-50", 0)]), Occupied::Yes);
    room(&mut headroom).obstacle = Some("it does not answer".into());
    assert_eq!(unhealthy(&headroom, &offer).len(), 3);
    assert!(unhealthy(&headroom, &offer).iter().all(|(_, why)| why == "broken: it does not answer"));
    assert!(
        unhealthy(&NodeHeadroom::default(), &offer)
            .iter()
            .all(|(_, why)| why.starts_with("broken: tranched"))
    );
}

#[test]
fn fault_breaks_only_its_gpu() {
    let (mut headroom, offer) = (idle(2), offer(USUAL, 2));
    headroom.slices.insert(bundle([device(0, "gpu-50", 0)]), Occupied::Yes);
    room(&mut headroom).fault = Some(Xid::new(48));
    let ill = unhealthy(&headroom, &offer);
    assert!(
        ill.len() == 3 && ill.iter().all(|(_, why)| why == "broken: the driver reports Xid 48"),
        "{ill:?}"
    );
}

#[test]
fn foreign_processes_take_free_devices_only() {
    let (mut headroom, offer) = (idle(1), offer(USUAL, 1));
    headroom.slices.insert(bundle([device(0, "gpu-50", 0)]), Occupied::No);
    room(&mut headroom).strangers = 2;
    let ill = unhealthy(&headroom, &offer);
    assert_eq!(ill.iter().map(|(profile, _)| profile.as_str()).collect::<Vec<_>>(), ["gpu-20", "gpu-30"]);
    assert!(ill[0].1.starts_with("taken: 2 process(es)"), "{ill:?}");
}

#[test]
fn cordon_takes_free_devices_only() {
    let (mut headroom, offer) = (idle(2), offer(USUAL, 2));
    headroom.slices.insert(bundle([device(0, "gpu-50", 0)]), Occupied::Yes);
    room(&mut headroom).cordon = Some("cordoned by root".into());
    let ill = unhealthy(&headroom, &offer);
    let told = "taken: its GPU is cordoned by root";
    assert_eq!(ill, [("gpu-20".into(), told.into()), ("gpu-30".into(), told.to_string())]);
}

#[test]
fn foreign_slice_takes_its_room_once() {
    // A foreign slice of 0.2 leaves room for two devices of the layout.
    let (mut headroom, offer) = (idle(1), offer(USUAL, 1));
    room(&mut headroom).free = Bytes::mib(32510 - 6502);
    room(&mut headroom).free_compute = Permille::try_from(800).unwrap();
    let ill = unhealthy(&headroom, &offer);
    assert_eq!(ill, [("gpu-50".into(), "taken: other slices have the room that it needs".into())]);
}

#[test]
fn dynamic_device_is_taken_when_it_cannot_fit() {
    let offer = Offer { dynamic: true, ..offer(USUAL, 1) };
    let mut headroom = idle(1);
    headroom.slices.insert(bundle([device(0, "gpu-50", 0)]), Occupied::No);
    room(&mut headroom).free = Bytes::mib(9753);
    room(&mut headroom).free_compute = Permille::try_from(300).unwrap();
    assert_eq!(unhealthy(&headroom, &offer), []);
    room(&mut headroom).free_compute = Permille::try_from(299).unwrap();
    assert_eq!(unhealthy(&headroom, &offer).len(), 1, "0.2 still fits, and what is in use is never taken");
}

#[test]
fn target_that_others_leave_no_room_for_takes_its_free_devices() {
    let text = "
        [[profile]]
        name = 'svc'
        fraction = 0.2
        latency_ms = 4
        [[profile]]
        name = 'big'
        fraction = 0.5
        [[layout]]
        profiles = ['svc', 'svc', 'big']
    ";
    let (mut headroom, offer) = (idle(1), offer(text, 1));
    assert_eq!(unhealthy(&headroom, &offer), []);
    room(&mut headroom).targets = vec![Latency::MOST];
    let ill = unhealthy(&headroom, &offer);
    assert!(ill.len() == 1 && ill[0].1.contains("a latency of 4 ms"), "one of two is left: {ill:?}");
    room(&mut headroom).targets = vec![Latency::LEAST];
    assert_eq!(unhealthy(&headroom, &offer).len(), 2);
    headroom.slices.insert(bundle([device(0, "svc", 0)]), Occupied::Yes);
    assert_eq!(unhealthy(&headroom, &offer).len(), 1, "what is in use is never taken");
}
