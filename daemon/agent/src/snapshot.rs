//! Snapshot of the node: GPUs, slices and processes at one instant, as the API returns it.

use std::collections::BTreeMap;
use std::time::Duration;

use tranche_domain::id::{GpuUuid, HostPid, SliceName};
use tranche_domain::slice::{Part, ProcessId, Slice};
use tranche_domain::units::{Bytes, Permille};
use tranche_domain::view::{
    ComputeState, ForeignProcessView, GpuView, NodeView, ProcessView, SliceDeviceView, SliceView,
};
use tranche_inventory::{GpuFacts, GpuProcess};
use tranche_shm::DeviceSlot;

use crate::agent::{Agent, Core};
use crate::gpu_users::{GpuUserKind, GpuUsers};
use tranche_linux::process;
use tranche_slices::regions::Protection;
use tranche_slices::slice_runtime::SliceRuntime;

/// The node as it is now. Queries the driver, and so may block.
pub(crate) fn node(agent: &Agent) -> NodeView {
    let users = agent.core().gpu_users();
    let mut unattached = Vec::new();
    let mut gpus: Vec<GpuView> =
        agent.gpus.iter().map(|gpu| self::gpu(agent, gpu, &users, &mut unattached)).collect();
    let core = agent.core();
    for view in &mut gpus {
        commitments(&core, view);
    }
    let facts = agent.facts.as_ref();
    let slices = core.node.slices().values().filter_map(|slice| view_of(agent, &core, slice));
    NodeView {
        daemon_version: env!("CARGO_PKG_VERSION").into(),
        daemon_pid: HostPid::new(std::process::id()),
        runtime_dir: agent.layout.runtime.display().to_string(),
        driver_version: facts.map(|facts| facts.driver_version.clone()).unwrap_or_default(),
        cuda_version: facts.map(|facts| facts.cuda_version).unwrap_or_default(),
        simulated: facts.is_some_and(|facts| facts.simulated),
        privileged: agent.is_privileged(),
        compute_enforcement: tranche_timeshare::TECHNIQUE.into(),
        gpus,
        slices: with_unattached(slices.collect(), unattached),
        waiting: core.waiting.view(&core.node),
        notes: agent.telemetry.conditions.messages().into_iter().chain(agent.audit.notes()).collect(),
    }
}

/// A process of a slice with a whole GPU, without the shim.
struct Unattached {
    slice: SliceName,
    gpu: GpuUuid,
    process: GpuProcess,
}

/// Tier of a slice with whole GPUs and programs without the shim, and a sentence on it.
const WHOLE: (&str, &str) = (
    "whole",
    "it has all of its GPUs, so its programs run without the shim; their use is what the driver measures",
);

/// Adds processes without the shim to their slices, with what the driver lists for them as used.
fn with_unattached(mut slices: Vec<SliceView>, unattached: Vec<Unattached>) -> Vec<SliceView> {
    for Unattached { slice, gpu, process } in unattached {
        let Some(view) = slices.iter_mut().find(|view| view.name == slice) else { continue };
        let Some(place) = view.devices.iter().position(|device| device.gpu_uuid == gpu) else { continue };
        let used = process.used.unwrap_or_default();
        (view.tier, view.tier_reason) = (WHOLE.0.into(), WHOLE.1.into());
        let device = &mut view.devices[place];
        device.used = device.used.saturating_add(used);
        let of_each = vec![Bytes::ZERO; view.devices.len()];
        let known = view.processes.iter().position(|known| known.pid == process.pid);
        let at = known.unwrap_or_else(|| {
            view.processes.push(process_view(process.pid, of_each));
            view.processes.len() - 1
        });
        if let Some(of_device) = view.processes[at].used.get_mut(place) {
            *of_device = used;
        }
    }
    slices
}

/// Facts and state of a GPU as the driver reports them. Its processes are foreign, or unattached.
fn gpu(agent: &Agent, facts: &GpuFacts, users: &GpuUsers, unattached: &mut Vec<Unattached>) -> GpuView {
    let state = agent.driver.state(facts.uuid).unwrap_or_default();
    let mut foreign = Vec::new();
    for process in agent.driver.processes(facts.uuid).unwrap_or_default() {
        match users.classify(facts.uuid, process.pid) {
            GpuUserKind::Member => {}
            GpuUserKind::Unattached(slice) => {
                unattached.push(Unattached { slice, gpu: facts.uuid, process });
            }
            GpuUserKind::Foreign => foreign.push(ForeignProcessView {
                pid: process.pid,
                command: process::command(process.pid),
                used: process.used,
            }),
        }
    }
    GpuView {
        index: facts.index,
        uuid: facts.uuid,
        name: facts.name.clone(),
        pci_bus_id: facts.pci_bus_id.clone(),
        compute_capability: facts.compute_capability.to_string(),
        numa_node: facts.numa_node,
        total: facts.total,
        reserved: facts.reserved,
        capacity: facts.capacity(),
        used: state.used,
        committed: Bytes::ZERO,
        committed_compute: Permille::ZERO,
        context_reserve: Bytes::ZERO,
        context_measured_unix_ms: None,
        utilization_percent: state.utilization_percent,
        memory_utilization_percent: state.memory_utilization_percent,
        temperature_celsius: state.temperature_celsius,
        power_milliwatts: state.power_milliwatts,
        power_limit_milliwatts: state.power_limit_milliwatts,
        not_sliceable: None,
        cordon: None,
        foreign,
        faults: agent.faults.of(facts.uuid),
    }
}

/// Commitments of a GPU, from the node's bookkeeping.
fn commitments(core: &Core, view: &mut GpuView) {
    (view.committed, view.committed_compute) = core.node.committed(view.uuid);
    view.context_reserve = core.contexts.cost(view.uuid);
    view.context_measured_unix_ms = core.contexts.measured_at(view.uuid);
    let known = core.node.gpus().iter().find(|gpu| gpu.uuid == view.uuid);
    view.cordon = core.node.cordons().get(&view.uuid).cloned();
    let cordoned = || view.cordon.as_ref().map(|cordon| cordon.told.clone());
    view.not_sliceable = known.and_then(|gpu| gpu.obstacle.clone()).or_else(cordoned);
}

fn view_of(agent: &Agent, core: &Core, slice: &Slice) -> Option<SliceView> {
    let runtime = core.live.get(&slice.name)?;
    let is_wanted = slice.is_away() && slice.parked.is_some_and(|park| park.wakes) && runtime.is_wanted();
    let refusal = is_wanted.then(|| core.node.check_return(&slice.name).err()).flatten();
    let cannot_return = refusal.map(|refusal| refusal.to_string());
    Some(SliceView { cannot_return, ..self::slice(agent, slice, runtime) })
}

/// View of a slice with its attached processes.
pub(crate) fn slice(agent: &Agent, slice: &Slice, runtime: &SliceRuntime) -> SliceView {
    let held = runtime.held();
    let compute = agent.governor.show(&slice.name).unwrap_or_default();
    let (compute_state, waits_for) = ComputeState::of(compute.why);
    let (tier, tier_reason) = tier(agent, runtime);
    SliceView {
        name: slice.name.clone(),
        share: slice.share,
        devices: devices(agent, slice, runtime, &held, &compute.used),
        compute: slice.compute,
        limit: slice.limit,
        mode: slice.mode,
        priority: slice.priority,
        latency: slice.latency,
        waits: compute.waits,
        gang: slice.gang.clone(),
        project: slice.project.clone(),
        frozen: slice.frozen,
        compute_state,
        waits_for,
        launches_passed: compute.passes,
        launches_degraded: compute.degraded,
        tier,
        tier_reason,
        ephemeral: slice.ephemeral,
        park_idle: slice.park_idle,
        rotates: slice.rotates,
        several_containers: slice.several_containers,
        pod: slice.pod.clone(),
        owner_uid: slice.owner_uid,
        created_unix_ms: slice.created_unix_ms,
        processes: held.into_iter().map(|(id, used)| process_view(id.pid, used)).collect(),
        idle_ms: agent.idleness.idle(&slice.name).map(millis),
        parked: slice.parked,
        returns_in_ms: slice.is_away().then(|| agent.parking.returns_in(&slice.name)).flatten().map(millis),
        cannot_return: None,
        root_pids: runtime.occupants().roots.into_iter().map(|root| root.pid).collect(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Views of a slice's parts of GPUs, in the order of its devices.
pub(crate) fn devices(
    agent: &Agent,
    slice: &Slice,
    runtime: &SliceRuntime,
    held: &BTreeMap<ProcessId, Vec<Bytes>>,
    used: &[(Permille, Permille)],
) -> Vec<SliceDeviceView> {
    let parts = slice.parts.iter().zip(runtime.devices());
    let view = |(part, (device, gpu)): (&Part, (DeviceSlot, GpuUuid))| {
        let alone: Bytes = held.values().filter_map(|used| used.get(device.index()).copied()).sum();
        let common_charges = runtime.common_charges(device);
        let (compute_used_1s, compute_used_60s) = used.get(device.index()).copied().unwrap_or_default();
        SliceDeviceView {
            gpu_index: agent.gpus.iter().find(|facts| facts.uuid == gpu).map_or(0, |facts| facts.index),
            gpu_uuid: gpu,
            cap: part.cap,
            used: alone.saturating_add(common_charges.common),
            shared: common_charges.shared,
            over_cap: common_charges.over,
            utilization_percent: runtime.utilization(device),
            compute_used_1s,
            compute_used_60s,
        }
    };
    parts.map(view).collect()
}

fn process_view(pid: HostPid, used: Vec<Bytes>) -> ProcessView {
    ProcessView { pid, inner_pid: process::inner_pid(pid), command: process::command(pid), used }
}

/// Enforcement tier of a slice, and a sentence on its limits.
pub(crate) fn tier(agent: &Agent, runtime: &SliceRuntime) -> (String, String) {
    let (tier, injected) = if runtime.is_in_container() {
        let reason = "the shim stands in the driver's place in the container, so a program that brings a driver of its \
                      own elsewhere is not bound";
        ("replace", reason)
    } else {
        let reason = "the shim is preloaded, so a program that is linked statically or loads the driver by a way \
                      of its own is not bound";
        ("preload", reason)
    };
    let limits = match runtime.regions.protection() {
        _ if !agent.is_privileged() => {
            "the daemon runs as the tenants' own user, who could write its limits".to_string()
        }
        Protection::ReadOnlyMount => "limits are in pages that tenants cannot write".to_string(),
        Protection::ReadOnlyDescriptor(why) => {
            format!("limits are kept from other users by file permissions alone (no read-only mount: {why})")
        }
    };
    (tier.into(), format!("{injected}; {limits}"))
}
