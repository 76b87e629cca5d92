//! A sample for tests: sixteen GPUs with slices of several users, a queue, and every kind of remark.

use std::collections::BTreeMap;

use tranche_domain::cordon::Cordon;
use tranche_domain::id::{GpuUuid, HostPid};
use tranche_domain::jobs::{JobName, JobState, JobView, MemberView, MilliGpus};
use tranche_domain::units::{Bytes, Permille};
use tranche_domain::view::{ComputeState, ForeignProcessView, GpuView, NodeView, SliceDeviceView, SliceView};

use crate::sample;
use crate::top::frame::Moment;
use crate::top::scene::Scene;
use crate::top::state::ScreenState;

/// The instant of the sample.
pub(super) const NOW: u64 = 1_767_323_090_000;

pub(super) fn moment() -> Moment {
    Moment { unix_ms: NOW, clock: "14:03:22".into() }
}

pub(super) fn state() -> ScreenState {
    let mut state = ScreenState {
        host: "dgx2".into(),
        own_uid: 1001,
        socket: "/run/tranche/tranched.sock".into(),
        ..ScreenState::default()
    };
    for second in 0..40 {
        let mut scene = scene();
        for gpu in &mut scene.node.gpus {
            gpu.utilization_percent = gpu.utilization_percent.map(|most| most * (second % 10 + 1) / 10);
        }
        state.show(scene);
    }
    state.show(scene());
    state
}

pub(super) fn scene() -> Scene {
    scene_of(|uid| ["anna", "benedikt", "clara-von-der-hoehe"][uid as usize % 3].to_owned())
}

/// The sample with these names of its users.
pub(super) fn scene_of(users: impl FnMut(u32) -> String) -> Scene {
    let node = sample::node();
    let gpus: Vec<GpuView> = (0..16).map(|index| gpu(&node, index)).collect();
    let slices = gpus.iter().flat_map(|gpu| slices(&node, gpu)).collect();
    let mut waiting = node.waiting.clone();
    waiting[0].reason = "no GPU has 26008 MiB free; GPU 15 has most, 6502 MiB".into();
    let node = NodeView { gpus, slices, waiting, ..node };
    let mut jobs = vec![
        job("vision", "resnet", 1001, 4000, "quota of vision (4 GPUs) is used up: resnet-a and bert hold it"),
        job("nlp", "学習-large-日本語", 999, 8000, "8 GPUs are not free at once; 5 are"),
        job("nlp", "bert", 999, 1000, ""),
    ];
    (jobs[2].state, jobs[2].members) = (JobState::Running, vec![member("g02-bert"), member("g03-bert")]);
    Scene::new(node, jobs, BTreeMap::from([(HostPid::new(555), 1001)]), users)
}

fn gpu(node: &NodeView, index: u32) -> GpuView {
    let mut bytes = [7; 16];
    bytes[15] = u8::try_from(index).unwrap();
    let mut gpu = GpuView {
        index,
        uuid: GpuUuid::from_bytes(bytes),
        utilization_percent: Some(index * 100 / 15),
        used: Bytes::mib(u64::from(index) * 2100),
        temperature_celsius: Some(33 + index * 2),
        ..node.gpus[0].clone()
    };
    let told = "cordoned by root (uid 0) since noon: fan".to_owned();
    match index {
        1 => {
            let one = ForeignProcessView { pid: HostPid::new(77), command: "Xorg".into(), used: None };
            gpu.foreign = vec![one];
        }
        13 => {
            gpu.not_sliceable = Some(told.clone());
            gpu.cordon = Some(Cordon { by_uid: 0, since_unix_ms: 5, reason: None, told });
        }
        14 => gpu.not_sliceable = Some("MIG is enabled".into()),
        15 => gpu.utilization_percent = None,
        _ => {}
    }
    gpu
}

/// Four slices on each GPU that takes some.
fn slices(node: &NodeView, gpu: &GpuView) -> Vec<SliceView> {
    if gpu.index >= 13 {
        return Vec::new();
    }
    let names = ["bert", "jupyter", "resnet", "a-rather-long-name-of-a-slice"];
    let slice = |(at, name): (usize, &str)| {
        let number = gpu.index * 4 + u32::try_from(at).unwrap();
        let device = SliceDeviceView {
            gpu_index: gpu.index,
            gpu_uuid: gpu.uuid,
            cap: Bytes::mib(8127),
            used: Bytes::mib(u64::from(number) * 150),
            compute_used_1s: Permille::try_from(200 - number * 3).unwrap(),
            ..node.slices[1].devices[0].clone()
        };
        let mut slice = SliceView {
            name: format!("g{:02}-{name}", gpu.index).parse().unwrap(),
            share: "0.25".parse().unwrap(),
            devices: vec![device],
            owner_uid: 999 + u32::try_from(at).unwrap() % 3,
            pod: None,
            waits_for: None,
            compute_state: ComputeState::Running,
            ..node.slices[1].clone()
        };
        match number {
            1 => {
                (slice.frozen, slice.compute_state) = (true, ComputeState::Frozen);
                slice.processes[0].command = "\x1b]0;owned\x07 学習.py".into();
            }
            2 => (slice.compute_state, slice.idle_ms) = (ComputeState::NoWork, Some(725_000)),
            3 => slice.compute_state = ComputeState::BehindPriority,
            7 => slice.devices[0].over_cap = Bytes::mib(47),
            10 => slice.pod = node.slices[1].pod.clone(),
            _ => {}
        }
        slice
    };
    names.into_iter().enumerate().map(slice).collect()
}

fn job(project: &str, name: &str, uid: u32, milligpus: u32, reason: &str) -> JobView {
    let name = if name.parse::<JobName>().is_ok() { name } else { "ja" };
    JobView {
        uid,
        reason: reason.into(),
        submitted_unix_ms: NOW - 725_000,
        gpus_of_member: MilliGpus::new(milligpus),
        ..sample::job(project, name)
    }
}

fn member(slice: &str) -> MemberView {
    MemberView { slice: slice.parse().ok(), ..sample::member(0, vec![2]) }
}
