use super::*;
use crate::testing::{USUAL, bundle, device, idle, offer, uuid};

mod world;

fn half() -> ProfileName {
    "gpu-50".parse().unwrap()
}

fn asked(devices: &[&[&str]]) -> Result<Vec<Bundle>, Refusal> {
    let texts: Vec<Vec<String>> =
        devices.iter().map(|devices| devices.iter().map(|text| (*text).to_owned()).collect()).collect();
    read(&offer(USUAL, 2), &half(), &texts)
}

fn id(gpu: u8) -> String {
    device(gpu, "gpu-50", 0).to_string()
}

#[test]
fn two_devices_become_one_slice_on_two_gpus() {
    let both = bundle([device(0, "gpu-50", 0), device(1, "gpu-50", 0)]);
    assert_eq!(asked(&[&[&id(1), &id(0)]]), Ok(vec![both]));
}

#[test]
fn unoffered_device_is_rejected() {
    assert_eq!(asked(&[&[]]), Err(BadBundle::Nothing.into()));
    assert_eq!(asked(&[&["gpu"]]), Err(BadDevice("gpu".into()).into()));
    for strange in [device(7, "gpu-50", 0), device(0, "gpu-50", 1), device(0, "gpu-30", 0), device(0, "x", 0)]
    {
        let refused = asked(&[&[&strange.to_string()]]).unwrap_err();
        assert_eq!(refused, Refusal::NotOffered { device: strange, profile: half() });
    }
}

#[test]
fn device_requested_twice_is_rejected() {
    assert_eq!(asked(&[&[&id(0), &id(0)]]), Err(Refusal::Twice(device(0, "gpu-50", 0))));
    assert_eq!(asked(&[&[&id(0)], &[&id(0)]]), Err(Refusal::Twice(device(0, "gpu-50", 0))));
}

#[test]
fn two_parts_of_one_gpu_are_rejected() {
    let text = "[[profile]]\nname = 'h'\nfraction = 0.5\n[[layout]]\nprofiles = ['h', 'h']";
    let texts = |devices: [DeviceId; 2]| devices.map(|device| device.to_string());
    let [a, b] = texts([device(0, "h", 0), device(0, "h", 1)]);
    let read = |containers: &[Vec<String>]| read(&offer(text, 1), &"h".parse().unwrap(), containers);
    let refused = read(&[vec![a.clone(), b.clone()]]).unwrap_err();
    assert_eq!(refused, BadBundle::SameGpu { a: device(0, "h", 0), b: device(0, "h", 1) }.into());
    assert!(read(&[vec![a], vec![b]]).is_ok(), "two containers may share a GPU");
}

#[test]
fn foreign_processes_prevent_new_slices_only() {
    let mut headroom = idle(2);
    headroom.gpus.get_mut(&uuid(0)).unwrap().strangers = 2;
    let (here, there) = (bundle([device(0, "p", 0)]), bundle([device(1, "p", 0)]));
    let both = bundle([device(0, "p", 0), device(1, "p", 0)]);
    assert_eq!(undisturbed(&headroom, std::slice::from_ref(&there)), Ok(()));
    for wanted in [&here, &both] {
        let refused = undisturbed(&headroom, &[there.clone(), wanted.clone()]).unwrap_err();
        assert_eq!(refused, Refusal::Strangers { device: device(0, "p", 0), count: 2 });
    }
    headroom.slices.insert(here.clone(), Occupied::No);
    assert_eq!(undisturbed(&headroom, std::slice::from_ref(&here)), Ok(()), "it was there before them");
}

fn ours() -> Bundle {
    bundle([device(0, "p", 0)])
}

#[test]
fn init_container_with_other_devices_is_ended() {
    let both = bundle([device(0, "p", 0), device(1, "p", 0)]);
    let listed = [device(0, "p", 0), device(1, "p", 0)].into();
    for (had, wants) in [(both.clone(), ours()), (ours(), both)] {
        let held = NodeHeadroom { slices: [(had.clone(), Occupied::No)].into(), ..idle(2) };
        let mut absences = Absences::default();
        absences.observe(&held, &listed, std::time::Duration::ZERO);
        let mut plan = Transaction::plan(&held, &absences, std::slice::from_ref(&wants)).unwrap();
        assert_eq!(plan.next(), Some(&Step::End(had.clone())));
        plan.done(true);
        assert_eq!(plan.next(), Some(&Step::Make(wants.clone())));
        let running = NodeHeadroom { slices: [(had.clone(), Occupied::Yes)].into(), ..idle(2) };
        assert_eq!(Transaction::plan(&running, &absences, &[wants]), Err(Refusal::InUse(had)));
    }
}

#[test]
fn init_container_slice_is_reused() {
    let held = NodeHeadroom { slices: [(ours(), Occupied::No)].into(), ..idle(1) };
    let plan = Transaction::plan(&held, &Absences::default(), &[ours()]).unwrap();
    assert_eq!((plan.next(), plan.outcome()), (None, Some(Outcome::Done)));
}

#[test]
fn vanished_pods_slice_is_ended_first() {
    let held = NodeHeadroom { slices: [(ours(), Occupied::No)].into(), ..idle(1) };
    let mut absences = Absences::default();
    absences.observe(&held, &[device(0, "p", 0)].into(), std::time::Duration::ZERO);
    absences.observe(&held, &BTreeSet::new(), std::time::Duration::from_secs(1));
    let mut plan = Transaction::plan(&held, &absences, &[ours()]).unwrap();
    assert_eq!(plan.next(), Some(&Step::End(ours())));
    plan.done(true);
    assert_eq!(plan.next(), Some(&Step::Make(ours())));
    plan.done(true);
    assert_eq!(plan.outcome(), Some(Outcome::Done));
}

#[test]
fn device_of_running_pod_is_rejected() {
    let held = NodeHeadroom { slices: [(ours(), Occupied::Yes)].into(), ..idle(1) };
    let mut absences = Absences::default();
    absences.observe(&held, &[device(0, "p", 0)].into(), std::time::Duration::ZERO);
    let refused = Transaction::plan(&held, &absences, &[ours()]);
    assert_eq!(refused, Err(Refusal::InUse(ours())));
}

#[test]
fn failure_rolls_back_earlier_containers() {
    let wanted = [0, 1, 2].map(|gpu| bundle([device(gpu, "p", 0)]));
    let mut plan = Transaction::plan(&idle(3), &Absences::default(), &wanted).unwrap();
    let mut steps = Vec::new();
    while let Some(step) = plan.next().cloned() {
        plan.done(step != Step::Make(wanted[2].clone()));
        steps.push(step);
    }
    let undone = [Step::End(wanted[1].clone()), Step::End(wanted[0].clone())];
    assert_eq!(steps[3..], undone);
    assert_eq!(plan.outcome(), Some(Outcome::Failed { bundle: wanted[2].clone() }));
}
