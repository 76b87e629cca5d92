//! Nodes for the scripted daemon.

use std::time::{SystemTime, UNIX_EPOCH};

use tranche_domain::units::Bytes;
use tranche_rpc::v1;

use crate::fake::Script;

/// Text that would run where it is not escaped. Names of GPUs and reasons are the free text of a daemon.
pub(crate) const HOSTILE: &str = "<script>document.title=1</script><img src=x onerror=a()>\"'&";

/// Time of the nodes: now.
pub(crate) fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn uuid(index: u32) -> String {
    format!("GPU-00000000-0000-0000-0000-{index:012}")
}

fn gpu(index: u32) -> v1::GpuView {
    v1::GpuView {
        index,
        uuid: uuid(index),
        name: if index == 0 { HOSTILE.into() } else { "Tesla V100-SXM2-32GB".into() },
        pci_bus_id: format!("00000000:{:02X}:00.0", index + 6),
        total_bytes: Bytes::mib(32768).get(),
        capacity_bytes: Bytes::mib(32510).get(),
        used_bytes: Bytes::mib(2048).get(),
        utilization_percent: Some(7 * index % 100),
        temperature_celsius: Some(40),
        ..Default::default()
    }
}

fn device(index: u32) -> v1::SliceDeviceView {
    v1::SliceDeviceView {
        gpu_index: index,
        gpu_uuid: uuid(index),
        cap_bytes: Bytes::mib(8127).get(),
        ..Default::default()
    }
}

/// A slice on these GPUs, of whole ones or of a part in permille.
pub(crate) fn slice(name: &str, gpus: &[u32], permille: u32) -> v1::SliceView {
    let whole = v1::share::Kind::WholeGpus(u32::try_from(gpus.len()).unwrap());
    let kind = if permille == 1000 { whole } else { v1::share::Kind::FractionPermille(permille) };
    v1::SliceView {
        name: name.into(),
        share: Some(v1::Share { kind: Some(kind) }),
        devices: gpus.iter().map(|gpu| device(*gpu)).collect(),
        compute_permille: permille,
        limit_permille: 1000,
        tier: "preload".into(),
        created_unix_ms: now_ms() - 7_200_000,
        ..Default::default()
    }
}

/// A job with one member in a slice.
pub(crate) fn job(
    project: &str,
    name: &str,
    slice: &str,
    milligpus: u32,
    idle_ms: Option<u64>,
) -> v1::JobView {
    v1::JobView {
        project: project.into(),
        name: name.into(),
        state: v1::JobState::Running.into(),
        milligpus_of_member: milligpus,
        parallelism: 1,
        completions: 1,
        submitted_unix_ms: now_ms() - 7_300_000,
        members: vec![v1::MemberView {
            state: v1::JobState::Running.into(),
            slice: Some(slice.into()),
            started_unix_ms: Some(now_ms() - 7_200_000),
            idle_ms,
            ..Default::default()
        }],
        // A daemon sends these to members of the project; a page must keep them to itself.
        command: vec!["train".into(), "--token=SECRET".into()],
        workdir: "/home/SECRET".into(),
        url: Some("http://node:8888/?token=SECRET".into()),
        ..Default::default()
    }
}

/// A job that waits.
pub(crate) fn pending(project: &str, name: &str) -> v1::JobView {
    v1::JobView {
        state: v1::JobState::Pending.into(),
        members: Vec::new(),
        reason: HOSTILE.into(),
        ..job(project, name, "", 4000, None)
    }
}

fn project(name: &str) -> v1::ProjectView {
    v1::ProjectView { name: name.into(), quota_milligpus: 4000, ..Default::default() }
}

/// Sixteen GPUs of four projects, held by thirteen idle jobs; one job and one request wait.
pub(crate) fn sleeping() -> Script {
    let mut script = Script::default();
    script.node.daemon_version = "0.2.0".into();
    script.node.compute_enforcement = "gate".into();
    script.node.gpus = (0..16).map(gpu).collect();
    let mut next = 0;
    for number in 0..13u32 {
        // The first three have two GPUs each.
        let gpus: Vec<u32> = (next..next + if number < 3 { 2 } else { 1 }).collect();
        next += u32::try_from(gpus.len()).unwrap();
        let (team, name) = (format!("team-{}", number % 4), format!("s-{number}"));
        let idle_ms = Some(720_000 + u64::from(number) * 1000);
        script.node.slices.push(v1::SliceView { idle_ms, ..slice(&name, &gpus, 1000) });
        let milligpus = u32::try_from(gpus.len()).unwrap() * 1000;
        script.jobs.push(job(&team, &format!("sleep-{number}"), &name, milligpus, idle_ms));
    }
    script.jobs.push(pending("team-1", "waits"));
    script.node.waiting = vec![v1::WaitingView {
        share: Some(v1::Share { kind: Some(v1::share::Kind::WholeGpus(2)) }),
        reason: HOSTILE.into(),
        since_unix_ms: now_ms() - 60_000,
        ..Default::default()
    }];
    script.projects = (0..4).map(|number| project(&format!("team-{number}"))).collect();
    for view in &mut script.projects {
        (view.allocated_milligpus, view.idle_milligpus) = (4000, 4000);
    }
    let point = |(days, milligpus): (u64, u32)| v1::HistoryPoint {
        time_unix_ms: now_ms() - days * 86_400_000,
        project: format!("team-{}", days % 4),
        job: "x".into(),
        milligpus,
    };
    script.points = [(6, 4000), (5, 3000), (4, 2500), (3, 4000), (2, 0), (1, 500)].map(point).to_vec();
    script
}

/// Sixteen GPUs, 64 slices without a job and 200 jobs.
pub(crate) fn large() -> Script {
    let mut script = sleeping();
    script.node.slices.clear();
    script.jobs.clear();
    for number in 0..64u32 {
        script.node.slices.push(slice(&format!("slice-{number:03}"), &[number / 4], 250));
    }
    for number in 0..200 {
        script.jobs.push(job(
            &format!("team-{}", number % 4),
            &format!("train-resnet50-{number:04}"),
            "gone",
            250,
            None,
        ));
    }
    script
}
