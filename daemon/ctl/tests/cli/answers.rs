//! A node with one GPU and one slice, `frac05`, in which one program runs.

use tranche_domain::units::Bytes;
use tranche_rpc::v1;

use crate::daemon::Answers;
use crate::jobs_service::Fixed;

pub(crate) const UUID: &str = "GPU-00000000-0000-0000-0000-000000000001";

/// A daemon's answers that refuse nothing.
pub(crate) fn willing() -> Answers {
    Answers {
        node: node(),
        first_refusals: Vec::new(),
        slice: Ok(slice()),
        enter: Ok(v1::EnterSliceResponse {
            socket_path: "/run/t/slices/frac05/attach.sock".into(),
            preload_path: harmless_library(),
            gpu_uuids: vec![UUID.into()],
        }),
        delete: Ok(v1::DeleteSliceResponse { killed_pids: Vec::new() }),
        who_am_i: None,
        events: Vec::new(),
    }
}

/// Two jobs, one of which is idle in slice `frac05`, and their projects.
pub(crate) fn jobs() -> Fixed {
    let member = v1::MemberView {
        state: v1::JobState::Running.into(),
        gpus: vec![0],
        slice: Some("frac05".into()),
        starts: 1,
        started_unix_ms: Some(1_767_323_110_000),
        idle_ms: Some(754_000),
        ..Default::default()
    };
    let job = |project: &str, name: &str| v1::JobView {
        project: project.into(),
        name: name.into(),
        state: v1::JobState::Pending.into(),
        milligpus_of_member: 500,
        parallelism: 1,
        completions: 1,
        submitted_unix_ms: 1_767_323_045_000,
        ..Default::default()
    };
    let running = v1::JobView { state: member.state, members: vec![member], ..job("vision", "train") };
    let waiting = v1::JobView { submitted_unix_ms: 1_777_000_000_000, ..job("speech", "evaluate") };
    let project = |name: &str, quota: u32| v1::ProjectView {
        name: name.into(),
        quota_milligpus: quota,
        ..Default::default()
    };
    let vision = v1::ProjectView {
        allocated_milligpus: 500,
        idle_milligpus: 500,
        running_jobs: 1,
        member_uids: vec![0],
        ..project("vision", 4000)
    };
    let speech = v1::ProjectView { queued_jobs: 1, ..project("speech", 2000) };
    Fixed { jobs: vec![running, waiting], projects: vec![vision, speech] }
}

/// A library that every program has loaded already: preloading it changes nothing.
fn harmless_library() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.lines().find(|line| line.contains("/libc.so.6") || line.contains("/libc-")).unwrap();
    libc[libc.find('/').unwrap()..].into()
}

fn node() -> v1::NodeView {
    v1::NodeView {
        daemon_version: env!("CARGO_PKG_VERSION").into(),
        driver_version: "550.90.07".into(),
        cuda_version: 12040,
        simulated: true,
        compute_enforcement: "not enforced".into(),
        gpus: vec![gpu()],
        slices: vec![slice()],
        daemon_pid: 1,
        runtime_dir: "/run/t".into(),
        ..Default::default()
    }
}

fn gpu() -> v1::GpuView {
    v1::GpuView {
        uuid: UUID.into(),
        name: "Tesla V100-SXM2-32GB".into(),
        pci_bus_id: "00000000:06:00.0".into(),
        total_bytes: Bytes::mib(32768).get(),
        reserved_bytes: Bytes::mib(258).get(),
        capacity_bytes: Bytes::mib(32510).get(),
        committed_bytes: Bytes::mib(16255).get(),
        committed_compute_permille: 500,
        ..Default::default()
    }
}

fn slice() -> v1::SliceView {
    v1::SliceView {
        name: "frac05".into(),
        share: Some(v1::Share { kind: Some(v1::share::Kind::FractionPermille(500)) }),
        devices: vec![v1::SliceDeviceView {
            gpu_index: 0,
            gpu_uuid: UUID.into(),
            cap_bytes: Bytes::mib(16255).get(),
            used_bytes: Bytes::mib(1000).get(),
            ..v1::SliceDeviceView::default()
        }],
        compute_permille: 500,
        limit_permille: 1000,
        tier: "preload".into(),
        tier_reason: "a test".into(),
        processes: vec![v1::ProcessView {
            pid: 4242,
            inner_pid: Some(7),
            command: "trainer".into(),
            used_bytes: vec![Bytes::mib(1000).get()],
        }],
        idle_ms: Some(754_000),
        ..Default::default()
    }
}
