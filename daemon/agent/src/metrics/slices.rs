//! Metrics of live slices: terms, use and refusals.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tranche_domain::slice::Slice;
use tranche_domain::view::{ComputeState, SliceDeviceView};
use tranche_exposition::{Labels, MetricsPage};

use super::copied::Copied;
use super::labels::{and, label, share};
use crate::agent::Agent;
use crate::snapshot;
use tranche_slices::slice_runtime::SliceRuntime;
use tranche_timeshare::Shown;

/// A slice at the time of the scrape.
pub(super) struct SliceSample<'a> {
    slice: &'a Slice,
    tier: String,
    processes: usize,
    /// Parts of GPUs, with the time used of each.
    devices: Vec<(SliceDeviceView, Duration)>,
    compute: Shown,
    refusals: u64,
    turned_away: u64,
    stays: u64,
    user: String,
    idle: Duration,
}

/// Compute states with their label values.
const STATES: [(&str, ComputeState); 6] = [
    ("running", ComputeState::Running),
    ("no_work", ComputeState::NoWork),
    ("over_share", ComputeState::OverShare),
    ("limit_reached", ComputeState::LimitReached),
    ("frozen", ComputeState::Frozen),
    ("behind_priority", ComputeState::BehindPriority),
];

impl<'a> SliceSample<'a> {
    fn of(agent: &Agent, (slice, runtime): &'a (Slice, Arc<SliceRuntime>)) -> Self {
        let (held, compute) = (runtime.held(), agent.governor.show(&slice.name).unwrap_or_default());
        let devices = snapshot::devices(agent, slice, runtime, &held, &compute.used).into_iter();
        let busy = compute.busy.iter().copied().chain(std::iter::repeat(Duration::ZERO));
        let counted = agent.telemetry.counters.slice_counts(&slice.name);
        Self {
            slice,
            tier: snapshot::tier(agent, runtime).0,
            processes: held.len(),
            devices: devices.zip(busy).collect(),
            compute,
            refusals: counted.refusals_before.saturating_add(runtime.refusals()),
            turned_away: counted.rejected,
            stays: counted.stays,
            user: agent.users.name(slice.owner_uid),
            idle: agent.idleness.idle(&slice.name).unwrap_or_default(),
        }
    }

    fn labels(&self) -> Labels {
        label("slice", &self.slice.name)
    }

    /// Adds the labels of the pod, empty without one.
    fn with_pod(&self, labels: Labels) -> Labels {
        let pod = self.slice.pod.as_ref();
        let labels = and(labels, "namespace", pod.map_or(String::new(), |pod| pod.namespace.to_string()));
        let labels = and(labels, "pod", pod.map_or(String::new(), |pod| pod.name.to_string()));
        and(labels, "container", pod.map_or(String::new(), |pod| pod.container.to_string()))
    }

    /// Labels of one of its GPUs, with its own.
    pub(super) fn dcgm_labels(&self, of_gpu: Labels) -> Labels {
        self.with_pod(and(and(of_gpu, "slice", &self.slice.name), "user", &self.user))
    }

    /// Its parts of GPUs.
    pub(super) fn parts(&self) -> impl Iterator<Item = &SliceDeviceView> {
        self.devices.iter().map(|(part, _)| part)
    }

    fn info(&self) -> Labels {
        let labels = self.with_pod(self.labels());
        let labels = and(and(labels, "share", self.slice.share), "mode", self.slice.mode);
        let labels = and(and(labels, "tier", &self.tier), "owner_uid", self.slice.owner_uid);
        let project = self.slice.project.as_ref().map_or(String::new(), ToString::to_string);
        and(and(labels, "user", &self.user), "project", project)
    }
}

/// Reads the regions and the scheduler about all slices.
pub(super) fn look<'a>(agent: &Agent, core: &'a Copied) -> Vec<SliceSample<'a>> {
    core.slices.iter().map(|slice| SliceSample::of(agent, slice)).collect()
}

pub(super) fn write(core: &Copied, seen: &[SliceSample<'_>], page: &mut MetricsPage<'_>) -> fmt::Result {
    page.gauge("tranche_slices", "Slices that are there", seen.len() as u64)?;
    page.gauge("tranche_slices_stranded", "Slices whose GPU is not there now", core.stranded as u64)?;
    page.infos(
        "tranche_slice",
        "Slices: the pod of each, and how far its limits hold",
        seen.iter().map(SliceSample::info),
    )?;
    memory(seen, page)?;
    compute(seen, page)?;
    people(seen, page)
}

fn rows<'a, V>(
    seen: &'a [SliceSample<'_>],
    value: impl Fn(&SliceSample<'_>) -> V + 'a,
) -> impl Iterator<Item = (Labels, V)> + 'a {
    seen.iter().map(move |slice| (slice.labels(), value(slice)))
}

fn parts<'a, V>(
    seen: &'a [SliceSample<'_>],
    value: impl Fn(&SliceSample<'_>, &(SliceDeviceView, Duration)) -> V + 'a,
) -> impl Iterator<Item = (Labels, V)> + 'a {
    let each = seen.iter().flat_map(|slice| slice.devices.iter().map(move |device| (slice, device)));
    each.map(move |(slice, device)| (and(slice.labels(), "gpu", device.0.gpu_uuid), value(slice, device)))
}

fn memory(seen: &[SliceSample<'_>], page: &mut MetricsPage<'_>) -> fmt::Result {
    let cap = parts(seen, |_, (part, _)| part.cap.get());
    page.gauges("tranche_slice_memory_cap_bytes", "The most memory that the slice may have of the GPU", cap)?;
    let used = parts(seen, |_, (part, _)| part.used.get());
    page.gauges("tranche_slice_memory_used_bytes", "Memory of the GPU that the slice is charged for", used)?;
    let over = parts(seen, |_, (part, _)| part.over_cap.get());
    page.gauges("tranche_slice_memory_over_cap_bytes", "By how much the slice is over its cap", over)?;
    let parked = rows(seen, |slice| u64::from(slice.slice.is_away()));
    page.gauges(
        "tranche_slice_parked",
        "1 while its memory lies in host memory, and its part of the GPUs is free",
        parked,
    )?;
    let host = rows(seen, |slice| slice.slice.parked.map_or(0, |park| park.host.get()));
    page.gauges(
        "tranche_slice_parked_host_bytes",
        "Host memory that is set aside for its device memory",
        host,
    )?;
    let stays = rows(seen, |slice| slice.stays);
    page.counters(
        "tranche_slice_stays",
        "Stays on its GPUs that rotation gave it, after the one that it began with",
        stays,
    )?;
    let denials = rows(seen, |slice| slice.refusals);
    page.counters(
        "tranche_slice_memory_denials",
        "Allocations that its programs were refused at its cap, as they say themselves",
        denials,
    )
}

fn compute(seen: &[SliceSample<'_>], page: &mut MetricsPage<'_>) -> fmt::Result {
    let request = parts(seen, |slice, _| share(slice.slice.guaranteed()));
    page.gauges(
        "tranche_slice_compute_request_ratio",
        "Part of the GPU's time that is guaranteed to it",
        request,
    )?;
    let limit = parts(seen, |slice, _| share(slice.slice.limit));
    page.gauges("tranche_slice_compute_limit_ratio", "The most of the GPU's time that it may have", limit)?;
    let used = parts(seen, |_, (_, busy)| busy.as_secs_f64());
    page.counters("tranche_slice_compute_seconds", "The GPU's time that it used", used)?;
    let passed = rows(seen, |slice| slice.compute.passes);
    page.counters(
        "tranche_slice_launches_passed",
        "Launches let through out of turn, because nothing that was outstanding made progress",
        passed,
    )?;
    let degraded = rows(seen, |slice| slice.compute.degraded);
    page.counters(
        "tranche_slice_launches_degraded",
        "Launches let through out of turn, because the daemon was away",
        degraded,
    )?;
    waits(seen, page)?;
    let idle = rows(seen, |slice| slice.idle.as_secs_f64());
    page.gauges(
        "tranche_slice_idle_seconds",
        "Time without use of its GPUs; 0 while that is too short to count as idle",
        idle,
    )?;
    let states = seen.iter().flat_map(|slice| {
        let (now, _) = ComputeState::of(slice.compute.why.clone());
        STATES.map(|(word, state)| (and(slice.labels(), "state", word), u64::from(state == now)))
    });
    page.gauges(
        "tranche_slice_compute_state",
        "1 for what it does with its compute, or why it does nothing",
        states,
    )
}

/// Waits of the slices that have a latency target.
fn waits(seen: &[SliceSample<'_>], page: &mut MetricsPage<'_>) -> fmt::Result {
    let with_target = || seen.iter().filter_map(|slice| Some((slice, slice.slice.latency?)));
    let target = with_target().map(|(slice, latency)| (slice.labels(), f64::from(latency.micros()) / 1e6));
    page.gauges(
        "tranche_slice_latency_target_seconds",
        "Longest wait for the GPU that it should have within its share",
        target,
    )?;
    let count = with_target().map(|(slice, _)| (slice.labels(), slice.compute.waits.count));
    page.counters("tranche_slice_waits", "Waits for the GPU of a slice with a latency target", count)?;
    let late = with_target().map(|(slice, _)| (slice.labels(), slice.compute.waits.late));
    page.counters("tranche_slice_late_waits", "Those that took longer than its latency target", late)
}

fn people(seen: &[SliceSample<'_>], page: &mut MetricsPage<'_>) -> fmt::Result {
    let processes = rows(seen, |slice| slice.processes as u64);
    page.gauges("tranche_slice_processes", "Processes that use CUDA in the slice", processes)?;
    let turned_away = rows(seen, |slice| slice.turned_away);
    page.counters(
        "tranche_slice_processes_refused",
        "Processes that were not let into the slice",
        turned_away,
    )
}
