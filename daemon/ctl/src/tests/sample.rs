//! A sample node for tests: two V100s and three slices, with every field in use.

use std::num::NonZeroU32;

use tranche_domain::compute::Priority;
use tranche_domain::id::{GpuUuid, HostPid, InnerPid};
use tranche_domain::jobs::{JobKind, JobSpec, JobState, JobView, MemberView, Size};
use tranche_domain::park::{Park, ParkStage};
use tranche_domain::pod::PodContainer;
use tranche_domain::request::Share;
use tranche_domain::units::{Bytes, Permille};
use tranche_domain::view::{
    ComputeState, ForeignProcessView, GpuView, NodeView, ProcessView, SliceDeviceView, SliceView, WaitingView,
};
use tranche_rpc::v1;

use crate::owners::Owners;
use crate::terminal::Canvas;

/// Owners of the sample's slices, the job of one among them.
pub(crate) fn owners() -> Owners {
    let member = MemberView {
        slice: "frac05".parse().ok(),
        pid: Some(HostPid::new(4200)),
        started_unix_ms: Some(1_767_323_045_000),
        ..member(0, vec![0])
    };
    let job = JobView { members: vec![member], ..job("vision", "train") };
    Owners::new([(1000, "ann".to_owned()), (1001, "bob".to_owned())].into_iter().collect(), &[job])
}

/// A running member with these GPUs.
pub(crate) fn member(index: u32, gpus: Vec<u32>) -> MemberView {
    MemberView { index, state: JobState::Running, gpus, starts: 1, ..MemberView::default() }
}

/// A pending training job of this project.
pub(crate) fn job(project: &str, name: &str) -> JobView {
    JobView::of(&JobSpec {
        project: project.parse().unwrap(),
        name: name.parse().unwrap(),
        size: Size::Part(500.try_into().unwrap()),
        part: None,
        kind: JobKind::Training,
        preemptible: true,
        priority: Priority::DEFAULT,
        parallelism: NonZeroU32::MIN,
        completions: NonZeroU32::MIN,
        latency: None,
        gang: false,
        service: None,
    })
}

/// Jobs in several states: one runs, one is idle, one waits, one has failed.
pub(crate) fn jobs() -> Vec<JobView> {
    let member = |index, idle_ms| MemberView { idle_ms, ..member(index, vec![2 * index, 2 * index + 1]) };
    let submitted_unix_ms = 1_767_000_000_000;
    let running = JobState::Running;
    let (parallelism, uid) = (4, 1001);
    let members = (0..4).map(|index| member(index, Some(754_000))).collect();
    let waits = "1 of 2 GPUs of its project's quota are free, and none is idle to borrow: most is held by job vision/train \
                 of uid 1000";
    vec![
        JobView {
            state: running,
            uid: 1000,
            submitted_unix_ms,
            members: vec![member(0, None)],
            ..job("vision", "train")
        },
        JobView {
            state: running,
            uid,
            parallelism,
            members,
            submitted_unix_ms,
            ..job("speech", "sweep-over-learning-rates")
        },
        JobView { reason: waits.into(), uid, submitted_unix_ms, ..job("speech-recognition", "evaluate") },
        JobView {
            state: JobState::Failed,
            reason: "exited with 1".into(),
            uid: 1000,
            submitted_unix_ms,
            ..job("vision", "prepare")
        },
    ]
}

/// A slice that is parked.
pub(crate) fn parked() -> SliceView {
    let host = Bytes::mib(8500);
    let park = Park { stage: ParkStage::Parked, host, since_unix_ms: 1_767_323_045_000, wakes: false };
    SliceView { parked: Some(park), ..slice("night", 500, &[(0, 16255, 0)]) }
}

/// A rotating slice that is away by its turn.
pub(crate) fn away() -> SliceView {
    let parked = parked().parked.map(|park| Park { wakes: true, ..park });
    SliceView { parked, rotates: true, returns_in_ms: Some(11_400), ..parked_named("turns") }
}

fn parked_named(name: &str) -> SliceView {
    SliceView { name: name.parse().unwrap(), ..parked() }
}

/// A node with sixteen GPUs that are full, and a request that waits.
pub(crate) fn full() -> NodeView {
    let gpus: Vec<_> = (0..16).map(|index| GpuView { committed: Bytes::mib(32510), ..gpu(index) }).collect();
    let slices = gpus.iter().map(|gpu| SliceView {
        owner_uid: 1000 + gpu.index % 2,
        idle_ms: (gpu.index % 3 == 0).then_some(754_000),
        ..slice(&format!("worker-{}", gpu.index), 0, &[(gpu.index, 32510, 8500)])
    });
    let reason = "no room for 26008 MiB and 80 % of compute on one GPU: GPU 0 has 0 MiB of 32510 MiB and 0 % of compute free, \
                  the other 15 have no more; it fits once others have ended (wait with `--wait`, or delete or shrink a slice)";
    let waiting = WaitingView { reason: reason.into(), ..node().waiting.remove(0) };
    NodeView { slices: slices.collect(), gpus, waiting: vec![waiting], ..node() }
}

pub(crate) fn node() -> NodeView {
    let foreign =
        ForeignProcessView { pid: HostPid::new(77), command: "Xorg".into(), used: Some(Bytes::mib(12)) };
    NodeView {
        daemon_version: env!("CARGO_PKG_VERSION").into(),
        daemon_pid: HostPid::new(99),
        runtime_dir: "/run/user/1000/tranche".into(),
        driver_version: "550.90.07".into(),
        cuda_version: 12040,
        simulated: true,
        privileged: false,
        compute_enforcement: "not enforced".into(),
        gpus: vec![gpu(0), GpuView { foreign: vec![foreign], ..gpu(1) }, gpu(2), unsliceable(3)],
        slices: vec![
            slice("frac03", 300, &[(0, 9753, 0)]),
            SliceView {
                ephemeral: true,
                processes: vec![trainer()],
                compute_state: ComputeState::OverShare,
                waits_for: Some("frac03".parse().unwrap()),
                launches_passed: 3,
                pod: Some(PodContainer {
                    uid: Some("7-a".parse().unwrap()),
                    .."default/train-0/main".parse().unwrap()
                }),
                ..slice("frac05", 500, &[(0, 16255, 8500)])
            },
            SliceView {
                project: "speech".parse().ok(),
                owner_uid: 1001,
                idle_ms: Some(754_000),
                ..slice("pair", 0, &[(1, 32510, 0), (2, 32510, 64)])
            },
        ],
        waiting: vec![WaitingView {
            name: None,
            share: "0.8".parse().unwrap(),
            reason: "no GPU has 26008 MiB free; GPU 0 has 6502 MiB".into(),
            since_unix_ms: 1_767_323_045_000,
            pid: HostPid::new(555),
            uid: Some(1000),
            returns: false,
            holders: Vec::new(),
        }],
        notes: vec!["the state file was corrupt and is kept as state.json.bad".into()],
    }
}

fn gpu(index: u32) -> GpuView {
    GpuView {
        index,
        uuid: uuid(index),
        name: "Tesla V100-SXM2-32GB".into(),
        pci_bus_id: format!("00000000:{:02X}:00.0", index + 6),
        compute_capability: "7.0".into(),
        numa_node: None,
        total: Bytes::mib(32768),
        reserved: Bytes::mib(258),
        capacity: Bytes::mib(32510),
        used: Bytes::mib(8758),
        committed: Bytes::mib(26008),
        committed_compute: Permille::try_from(800).unwrap(),
        context_reserve: Bytes::mib(308),
        context_measured_unix_ms: Some(1_700_000_000_000),
        utilization_percent: Some(45),
        memory_utilization_percent: Some(12),
        temperature_celsius: Some(35),
        power_milliwatts: Some(54_321),
        power_limit_milliwatts: Some(300_000),
        not_sliceable: None,
        cordon: None,
        faults: Vec::new(),
        foreign: Vec::new(),
    }
}

fn unsliceable(index: u32) -> GpuView {
    GpuView {
        name: "NVIDIA A30".into(),
        not_sliceable: Some("MIG is enabled: its instances are slices already".into()),
        utilization_percent: None,
        memory_utilization_percent: None,
        temperature_celsius: None,
        power_milliwatts: None,
        power_limit_milliwatts: None,
        committed: Bytes::ZERO,
        committed_compute: Permille::ZERO,
        used: Bytes::ZERO,
        ..gpu(index)
    }
}

fn uuid(index: u32) -> GpuUuid {
    let mut bytes = [0; 16];
    bytes[15] = u8::try_from(index).unwrap();
    GpuUuid::from_bytes(bytes)
}

fn slice(name: &str, permille: u32, devices: &[(u32, u64, u64)]) -> SliceView {
    let share = if permille == 0 { "2".into() } else { format!("0.{permille:03}") };
    let device = |&(index, cap, used): &(u32, u64, u64)| SliceDeviceView {
        gpu_index: index,
        gpu_uuid: uuid(index),
        cap: Bytes::mib(cap),
        used: Bytes::mib(used),
        shared: Bytes::ZERO,
        over_cap: Bytes::mib(used.saturating_sub(cap)),
        utilization_percent: (used > 64).then_some(40),
        compute_used_1s: Permille::try_from(if used > 64 { 412 } else { 0 }).unwrap(),
        compute_used_60s: Permille::try_from(if used > 64 { 390 } else { 0 }).unwrap(),
    };
    let slice = v1::SliceView {
        name: name.into(),
        share: Some(share.parse::<Share>().unwrap().into()),
        compute_permille: if permille == 0 { 1000 } else { permille },
        limit_permille: 1000,
        tier: "preload".into(),
        tier_reason: "the daemon serves one user".into(),
        owner_uid: 1000,
        created_unix_ms: 1_767_323_045_000,
        root_pids: vec![4200],
        ..Default::default()
    };
    SliceView { devices: devices.iter().map(device).collect(), ..slice.try_into().unwrap() }
}

fn trainer() -> ProcessView {
    ProcessView {
        pid: HostPid::new(4242),
        inner_pid: Some(InnerPid::new(7)),
        command: "python3 train.py".into(),
        used: vec![Bytes::mib(8500)],
    }
}

/// Compares a drawing with its golden text, in `path` below the sources.
/// `TRANCHE_GOLDEN=write` writes the text instead, so that `git diff` shows the difference.
pub(crate) fn assert_golden(drawn: &str, golden: &str, path: &str) {
    if std::env::var_os("TRANCHE_GOLDEN").is_some_and(|what| what == "write") {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(path);
        std::fs::write(file, drawn).unwrap();
    } else {
        assert_eq!(drawn, golden, "{path} differs from\n{drawn}");
    }
}

impl Canvas {
    /// A canvas of this width without colours.
    pub(crate) const fn of_width(width: usize) -> Self {
        Self { width: Some(width), colours: false }
    }
}
