//! Pages over the tables: details of the selected line, and the keys.

use tranche_domain::jobs::JobView;
use tranche_domain::view::{GpuView, SliceView, WaitingView};

use super::scene::Scene;
use super::state::{ScreenState, Subject};
use super::table::condition;
use super::text::{memory, span, wrap};

/// Width of the titles.
const TITLES: usize = 12;

/// The keys, line by line.
pub(super) const KEYS: [&str; 16] = [
    "up, down, j, k     select a line (PgUp, PgDn, Home, End: a page, the ends)",
    "Enter              details of the selected line; Esc leaves them",
    "s                  sort slices: name, memory, time used, idle",
    "/                  show what contains a text; Enter keeps it, Esc drops it",
    "m                  only what is yours, and everything again",
    "u                  totals of each user, and GPUs again",
    "f                  freeze the slice, or thaw it",
    "c                  cordon the GPU, or uncordon it",
    "d                  delete the slice or the job",
    "                   f, c and d ask first: y carries it out, n does not",
    "Ctrl-L             draw everything again",
    "Ctrl-Z             suspend; fg continues",
    "q, Ctrl-C          leave",
    "",
    "Busy is GPU time used over the last second; graphs begin with this program.",
    "A slice is idle once it has not used its GPU for the daemon's idle time.",
];

/// Details of the selected line, as titles and texts.
pub(super) fn lines(state: &ScreenState, width: u16, unix_ms: u64) -> Vec<String> {
    let (Some(scene), Some(subject)) = (&state.scene, &state.selected) else { return Vec::new() };
    let node = &scene.node;
    let found = match subject {
        Subject::Gpu(index) => node.gpus.iter().find(|gpu| gpu.index == *index).map(of_gpu),
        Subject::Part(_, name) => {
            let slice = node.slices.iter().find(|slice| slice.name == *name);
            slice.map(|slice| of_slice(scene, slice, unix_ms))
        }
        Subject::Job(project, name) => {
            let job = scene.jobs.iter().find(|job| job.project == *project && job.name == *name);
            job.map(|job| of_job(scene, job, unix_ms))
        }
        Subject::Request(pid) => {
            let request = node.waiting.iter().find(|request| request.pid == *pid);
            request.map(|request| of_request(scene, request, unix_ms))
        }
        Subject::User(uid) => Some(of_user(scene, *uid)),
    };
    let Some(found) = found else { return vec!["it is not there any more".into()] };
    let room = usize::from(width).saturating_sub(TITLES + 1).max(10);
    let filled = found.into_iter().filter(|(_, text)| !text.is_empty());
    filled.flat_map(|(title, text)| titled(title, &text, room)).collect()
}

fn titled(title: &str, text: &str, room: usize) -> Vec<String> {
    let line = |(at, part): (usize, String)| {
        let title = if at == 0 { title } else { "" };
        format!("{title:<TITLES$} {part}")
    };
    wrap(text, room).into_iter().enumerate().map(line).collect()
}

type Titled = Vec<(&'static str, String)>;

fn of_gpu(gpu: &GpuView) -> Titled {
    let mut lines = vec![
        ("GPU", gpu.index.to_string()),
        ("Model", gpu.name.clone()),
        ("UUID", gpu.uuid.to_string()),
        ("Bus id", gpu.pci_bus_id.clone()),
        ("Memory", memory(gpu.used, gpu.total)),
        (
            "In slices",
            format!("{}, {} of its time", memory(gpu.committed, gpu.capacity), gpu.committed_compute),
        ),
        ("Takes slices", gpu.not_sliceable.as_ref().map_or_else(|| "yes".into(), |why| format!("no: {why}"))),
    ];
    let fault =
        |fault: &tranche_domain::fault::Fault| ("Fault", format!("Xid {}, {} times", fault.xid, fault.count));
    lines.extend(gpu.faults.iter().map(fault));
    lines.extend(gpu.foreign.iter().map(|process| {
        let used = process.used.map(|used| format!("{} MiB", used.whole_mib())).unwrap_or_default();
        ("In no slice", format!("{} {used} {}", process.pid, process.command))
    }));
    lines
}

fn of_slice(scene: &Scene, slice: &SliceView, unix_ms: u64) -> Titled {
    let (state, _) = condition(slice, false);
    let waits = slice.waits_for.as_ref().map(|name| format!(", waits for {name}")).unwrap_or_default();
    let mut lines = vec![
        ("Slice", slice.name.to_string()),
        ("Owner", format!("{} (uid {})", scene.user(slice.owner_uid), slice.owner_uid)),
        ("For", scene.purpose(slice)),
        ("State", format!("{state}{waits}")),
        ("Share", format!("{}, which is {} GPU", slice.share, scene.node.size(slice))),
        ("Compute", format!("{} of each GPU, at most {}, {}", slice.compute, slice.limit, slice.mode)),
        ("Priority", slice.priority.to_string()),
        ("Latency", slice.latency.map(|latency| latency.to_string()).unwrap_or_default()),
        ("Gang", slice.gang.as_ref().map(|gang| gang.as_str().to_owned()).unwrap_or_default()),
        ("Tier", format!("{}: {}", slice.tier, slice.tier_reason)),
        ("Created", format!("{} ago", span(unix_ms.saturating_sub(slice.created_unix_ms)))),
        ("Ends", if slice.ephemeral { "with its last process".into() } else { "when it is deleted".into() }),
    ];
    lines.extend(slice.devices.iter().map(|device| {
        let (second, minute) = (device.compute_used_1s, device.compute_used_60s);
        let memory = memory(device.used, device.cap);
        ("On a GPU", format!("GPU {}: {memory}, busy {second} (1 s), {minute} (60 s)", device.gpu_index))
    }));
    lines.extend(slice.processes.iter().map(|process| {
        let used: u64 = process.used.iter().map(|used| used.whole_mib()).sum();
        ("Process", format!("{} {used} MiB {}", process.pid, process.command))
    }));
    lines
}

fn of_user(scene: &Scene, uid: u32) -> Titled {
    let mut lines = vec![("User", format!("{} (uid {uid})", scene.user(uid)))];
    let own = scene.node.slices.iter().filter(|slice| slice.owner_uid == uid);
    lines.extend(own.map(|slice| {
        let gpus: Vec<String> = slice.devices.iter().map(|device| device.gpu_index.to_string()).collect();
        let (size, (state, _)) = (scene.node.size(slice), condition(slice, false));
        (
            "Slice",
            format!("{}: {size} GPU on {}, {state}, {}", slice.name, gpus.join(","), scene.purpose(slice)),
        )
    }));
    let jobs = scene.jobs.iter().filter(|job| job.uid == uid && !job.state.is_final());
    lines.extend(
        jobs.map(|job| ("Job", format!("{}/{}: {} {}", job.project, job.name, job.state, job.reason))),
    );
    lines
}

fn of_job(scene: &Scene, job: &JobView, unix_ms: u64) -> Titled {
    vec![
        ("Job", job.name.to_string()),
        ("Project", job.project.to_string()),
        ("User", scene.user(job.uid)),
        ("State", job.state.word(job.overdue)),
        ("Reason", job.reason.clone()),
        ("Kind", format!("{}{}", job.purpose(), if job.preemptible { ", preemptible" } else { "" })),
        ("GPUs", format!("{} for each of {} members at once", job.gpus_of_member, job.parallelism)),
        ("Priority", job.priority.to_string()),
        ("Submitted", format!("{} ago", span(unix_ms.saturating_sub(job.submitted_unix_ms)))),
        ("Command", job.command.join(" ")),
    ]
}

fn of_request(scene: &Scene, request: &WaitingView, unix_ms: u64) -> Titled {
    vec![
        ("Request", request.name.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("User", scene.requester(request.pid).map(|uid| scene.user(uid)).unwrap_or_default()),
        ("Process", request.pid.to_string()),
        ("Share", request.share.to_string()),
        ("Waits", span(unix_ms.saturating_sub(request.since_unix_ms))),
        ("Reason", request.reason.clone()),
    ]
}
