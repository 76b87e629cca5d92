//! Metrics of GPUs: commitments, the driver's figures, and the use by all slices.

use std::fmt;

use tranche_domain::id::{GpuUuid, HostPid};
use tranche_exposition::{Labels, MetricsPage};
use tranche_inventory::GpuFacts;

use super::copied::{Copied, Promised};
use super::labels::{and, label, share};
use crate::agent::Agent;
use crate::gpu_probe;
use crate::gpu_users::{GpuUserKind, GpuUsers};

/// The driver's last figures; empty for a GPU that never answered.
pub(super) struct GpuSample<'a> {
    pub(super) facts: &'a GpuFacts,
    pub(super) last: gpu_probe::GpuStatus,
    foreign: Option<usize>,
}

pub(super) fn write(
    agent: &Agent,
    core: &Copied,
    seen: &[GpuSample<'_>],
    page: &mut MetricsPage<'_>,
) -> fmt::Result {
    page.infos("tranche_gpu", "The GPUs, by their UUIDs", agent.gpus.iter().map(info))?;
    memory(agent, core, seen, page)?;
    compute(agent, core, seen, page)?;
    condition(seen, page)?;
    health(agent, core, seen, page)
}

/// Queries the driver about all GPUs.
pub(super) fn look<'a>(agent: &'a Agent, core: &Copied) -> Vec<GpuSample<'a>> {
    let uuids: Vec<GpuUuid> = agent.gpus.iter().map(|facts| facts.uuid).collect();
    let mut seen = agent.gpu_probe.query(&agent.driver, &uuids);
    let users = GpuUsers::of(core.slices.iter().map(|(slice, runtime)| (slice, runtime.as_ref())));
    let of = |facts: &'a GpuFacts| GpuSample::of(facts, seen.remove(&facts.uuid).unwrap_or_default(), &users);
    agent.gpus.iter().map(of).collect()
}

impl<'a> GpuSample<'a> {
    fn of(facts: &'a GpuFacts, last: gpu_probe::GpuStatus, users: &GpuUsers) -> Self {
        let is_foreign = |pid: &&HostPid| users.classify(facts.uuid, **pid) == GpuUserKind::Foreign;
        let foreign = |listed: &Vec<HostPid>| listed.iter().filter(is_foreign).count();
        Self { facts, foreign: last.users.as_ref().map(foreign), last }
    }

    fn labels(&self) -> Labels {
        label("gpu", self.facts.uuid)
    }
}

fn info(facts: &GpuFacts) -> Labels {
    let labels = and(label("gpu", facts.uuid), "index", facts.index);
    and(and(labels, "model", &facts.name), "pci_bus_id", &facts.pci_bus_id)
}

/// One row for each GPU with a value.
fn rows<V>(seen: &[GpuSample<'_>], value: impl Fn(&GpuSample<'_>) -> Option<V>) -> Vec<(Labels, V)> {
    seen.iter().filter_map(|gpu| Some((gpu.labels(), value(gpu)?))).collect()
}

fn promised<V>(core: &Copied, value: impl Fn(&Promised) -> V) -> Vec<(Labels, V)> {
    core.gpus.iter().map(|gpu| (label("gpu", gpu.gpu), value(gpu))).collect()
}

fn memory(agent: &Agent, core: &Copied, seen: &[GpuSample<'_>], page: &mut MetricsPage<'_>) -> fmt::Result {
    let capacity = agent.gpus.iter().map(|gpu| (label("gpu", gpu.uuid), gpu.capacity().get()));
    page.gauges("tranche_gpu_memory_capacity_bytes", "Memory that slices can be made of", capacity)?;
    let committed = promised(core, |gpu| gpu.memory.get());
    page.gauges("tranche_gpu_memory_committed_bytes", "Memory that is promised to slices", committed)?;
    let used = rows(seen, |gpu| gpu.last.state.as_ref().map(|state| state.used.get()));
    page.gauges("tranche_gpu_memory_used_bytes", "Memory in use by all processes, as the driver says", used)
}

fn compute(agent: &Agent, core: &Copied, seen: &[GpuSample<'_>], page: &mut MetricsPage<'_>) -> fmt::Result {
    let committed = promised(core, |gpu| share(gpu.compute));
    page.gauges(
        "tranche_gpu_compute_committed_ratio",
        "Part of the GPU's time that slices are guaranteed",
        committed,
    )?;
    let used =
        agent.gpus.iter().map(|gpu| (label("gpu", gpu.uuid), agent.governor.total(gpu.uuid).as_secs_f64()));
    page.counters(
        "tranche_gpu_compute_seconds",
        "The GPU's time that slices used, those that have ended included",
        used.collect::<Vec<_>>(),
    )?;
    let busy = rows(seen, |gpu| Some(f64::from(gpu.last.state.as_ref()?.utilization_percent?) / 100.0));
    page.gauges("tranche_gpu_utilization_ratio", "Utilisation by all processes, as the driver says", busy)
}

fn condition(seen: &[GpuSample<'_>], page: &mut MetricsPage<'_>) -> fmt::Result {
    let warm = rows(seen, |gpu| gpu.last.state.as_ref()?.temperature_celsius);
    page.gauges("tranche_gpu_temperature_celsius", "Temperature of the GPU", warm)?;
    let watts = |milliwatts: u32| f64::from(milliwatts) / 1000.0;
    let draw = rows(seen, |gpu| gpu.last.state.as_ref()?.power_milliwatts.map(watts));
    page.gauges("tranche_gpu_power_watts", "Power that the GPU draws", draw)?;
    let limit = rows(seen, |gpu| gpu.last.state.as_ref()?.power_limit_milliwatts.map(watts));
    page.gauges("tranche_gpu_power_limit_watts", "Power that the GPU may draw", limit)
}

fn health(agent: &Agent, core: &Copied, seen: &[GpuSample<'_>], page: &mut MetricsPage<'_>) -> fmt::Result {
    let sliceable = promised(core, |gpu| u64::from(gpu.sliceable));
    page.gauges("tranche_gpu_sliceable", "Whether slices can be put there, cordons aside", sliceable)?;
    let cordoned = promised(core, |gpu| u64::from(gpu.cordoned));
    page.gauges("tranche_gpu_cordoned", "Whether an operator keeps further slices off it", cordoned)?;
    let answers = rows(seen, |gpu| Some(u64::from(gpu.last.answers)));
    page.gauges("tranche_gpu_up", "Whether the driver answers for the GPU", answers)?;
    let age = rows(seen, |gpu| gpu.last.age.map(|age| age.as_secs_f64()));
    page.gauges(
        "tranche_gpu_seen_age_seconds",
        "How long ago the driver said what is shown of the GPU; it is asked with each scrape, and waited for a second",
        age,
    )?;
    let foreign = rows(seen, |gpu| gpu.foreign.map(|count| count as u64));
    page.gauges("tranche_gpu_foreign_processes", "Processes that use the GPU and are in no slice", foreign)?;
    let open = agent.gpus.iter().flat_map(|gpu| {
        let faults = agent.faults.of(gpu.uuid).into_iter().filter(|fault| !fault.xid.is_of_programs());
        faults.map(|fault| (and(label("gpu", gpu.uuid), "xid", fault.xid.get()), 1u64))
    });
    page.gauges("tranche_gpu_fault", "Faults of the GPU that are not over, by the driver's number", open)?;
    let faults = agent.telemetry.counters.faults().into_iter();
    let faults = faults.map(|((gpu, xid), count)| (and(label("gpu", gpu), "xid", xid.get()), count));
    page.counters(
        "tranche_gpu_xids",
        "Xids that the driver reported, those that programs bring about included",
        faults,
    )
}
