//! Observation for the audit: answers of the driver and the kernel, beside the ledgers' charges.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use tranche_domain::id::{GpuUuid, HostPid, SliceName};
use tranche_domain::request::Share;
use tranche_domain::slice::{ProcessId, Seat};
use tranche_domain::truth::{Charged, GpuUser, ObservedNode, OnGpu, Served, Whose};
use tranche_domain::units::{Bytes, Permille};
use tranche_inventory::{GpuProcess, ProcessUtilization};
use tranche_shm::{CountedTransfers, DeviceSlot};

use crate::agent::Agent;
use crate::attribution::{Attribution, ProcessOwner};
use tranche_linux::process;
use tranche_slices::slice_runtime::SliceRuntime;

/// Time of each GPU's last utilization sample, by the driver's clock, in microseconds.
pub(super) type Since = BTreeMap<GpuUuid, u64>;

/// A slice that has a part of a GPU.
struct SliceDevice {
    runtime: Arc<SliceRuntime>,
    device: DeviceSlot,
    /// Measured cost of a context there; allowed on top of what the slice is charged.
    reserve: Bytes,
    /// True if the slice has the whole GPU.
    whole: bool,
    /// True if the slice is persistent: its containers may use a whole GPU without the shim.
    persistent: bool,
}

/// Observes GPUs that slices have parts of, or all GPUs with `everywhere`. Queries the driver, and so may block.
pub(super) fn observe(agent: &Agent, everywhere: bool, since: &mut Since) -> ObservedNode {
    let runtimes = agent.runtimes();
    let found = runtimes.iter().flat_map(|runtime| runtime.violations()).collect();
    let attribution = Attribution::of(&runtimes);
    let mut slice_devices = slice_devices(agent, &runtimes);
    let observed = agent.gpus.iter().filter_map(|gpu| {
        let slice_devices = slice_devices.remove(&gpu.uuid).unwrap_or_default();
        (everywhere || !slice_devices.is_empty())
            .then(|| on_gpu(agent, gpu.uuid, &slice_devices, &attribution, since))?
    });
    ObservedNode { gpus: observed.collect(), found }
}

fn slice_devices(agent: &Agent, runtimes: &[Arc<SliceRuntime>]) -> BTreeMap<GpuUuid, Vec<SliceDevice>> {
    let core = agent.core();
    let mut slice_devices: BTreeMap<GpuUuid, Vec<SliceDevice>> = BTreeMap::new();
    for runtime in runtimes {
        let Ok(slice) = core.node.slice(&runtime.name) else { continue };
        for (device, gpu) in runtime.devices() {
            slice_devices.entry(gpu).or_default().push(SliceDevice {
                runtime: Arc::clone(runtime),
                device,
                reserve: core.contexts.cost(gpu),
                whole: matches!(slice.share, Share::Whole(_)),
                persistent: !slice.ephemeral,
            });
        }
    }
    slice_devices
}

/// `None` if the driver does not answer.
fn on_gpu(
    agent: &Agent,
    gpu: GpuUuid,
    slice_devices: &[SliceDevice],
    attribution: &Attribution,
    since: &mut Since,
) -> Option<OnGpu> {
    let users = users(agent, gpu, slice_devices, attribution)?;
    let last = since.entry(gpu).or_default();
    let answer = agent.driver.process_utilization(gpu, *last);
    let can_say = answer.is_ok();
    let samples = answer.unwrap_or_default();
    *last = samples.iter().map(|sample| sample.timestamp_us).max().unwrap_or(*last);
    let slices: Vec<Served> =
        slice_devices.iter().map(|slice_device| served(agent, slice_device, &samples)).collect();
    for its in slices.iter().filter(|its| its.worked.is_some() || !can_say) {
        agent.governor.confirm(&its.slice, gpu, its.worked);
    }
    Some(OnGpu { gpu, users, slices })
}

/// Users of a GPU. Records what the driver lists for each slice's processes as held by that slice.
fn users(
    agent: &Agent,
    gpu: GpuUuid,
    slice_devices: &[SliceDevice],
    attribution: &Attribution,
) -> Option<Vec<GpuUser>> {
    let mut members = Members::of(slice_devices);
    let listed = agent.driver.processes(gpu).ok()?;
    // A process attaches before it uses a GPU: one that is listed now and was not attached before is attached by now.
    members.extend(Members::of(slice_devices));
    let mut users: Vec<GpuUser> =
        listed.iter().filter_map(|listed| user(listed, slice_devices, &members, attribution)).collect();
    resample_reports(&mut users, &members);
    for SliceDevice { runtime, device, .. } in slice_devices {
        runtime.driver_use.set(*device, held(runtime, *device, &users));
    }
    Some(users)
}

/// Number of resamples of processes that seem to hold more than they report.
const RESAMPLES: usize = 24;
/// Pause between two of them.
const RESAMPLE_PAUSE: Duration = Duration::from_millis(1);

/// Resamples the reported use of processes that seem to hold more than they report. A process that allocates and
/// frees continuously may have reported less just before and after the driver's answer. The largest report counts, up
/// to the grant.
fn resample_reports(users: &mut [GpuUser], members: &Members<'_>) {
    let is_more = |holds: Option<Bytes>, its: &Charged| {
        holds > Some(its.used.saturating_add(its.shared).saturating_add(its.reserve))
    };
    let mut moving: Vec<(&mut Charged, &ObservedMember<'_>)> = users
        .iter_mut()
        .filter_map(|user| match &mut user.whose {
            Whose::Member { charged, .. } if is_more(user.holds, charged) => {
                Some((charged, members.0.get(&user.id.pid)?))
            }
            _ => None,
        })
        .collect();
    let times = if moving.is_empty() { 0 } else { RESAMPLES };
    for _ in 0..times {
        std::thread::sleep(RESAMPLE_PAUSE);
        for (charged, member) in &mut moving {
            let reported = member.slice_device.runtime.claimed(member.seat, member.slice_device.device);
            charged.used = charged.used.max(reported.min(charged.granted));
        }
    }
}

/// Lower bound of what a slice's processes hold together: shared memory may be listed with any of them.
fn held(runtime: &SliceRuntime, device: DeviceSlot, users: &[GpuUser]) -> Bytes {
    let shared = runtime.common_charges(device).shared;
    let own = users.iter().filter_map(|user| match &user.whose {
        Whose::Member { slice, .. } if *slice == runtime.name => user.holds,
        _ => None,
    });
    own.map(|holds| holds.saturating_sub(shared)).sum::<Bytes>().saturating_add(shared)
}

/// Updates what the driver lists for one slice.
pub(super) fn resample(agent: &Agent, runtime: &SliceRuntime) {
    let runtimes = agent.runtimes();
    let (attribution, mut slice_devices) = (Attribution::of(&runtimes), slice_devices(agent, &runtimes));
    for gpu in &runtime.gpus {
        users(agent, *gpu, &slice_devices.remove(gpu).unwrap_or_default(), &attribution);
    }
}

/// Attached processes of all slices on a GPU, with the use reported before the driver was queried.
struct Members<'a>(BTreeMap<HostPid, ObservedMember<'a>>);

struct ObservedMember<'a> {
    id: ProcessId,
    seat: Seat,
    slice_device: &'a SliceDevice,
    used: Bytes,
}

impl<'a> Members<'a> {
    fn of(slice_devices: &'a [SliceDevice]) -> Self {
        let of_slice_device = |slice_device: &'a SliceDevice| {
            let members = slice_device.runtime.occupants().members.into_iter();
            members.map(move |(seat, id)| {
                let used = slice_device.runtime.claimed(seat, slice_device.device);
                (id.pid, ObservedMember { id, seat, slice_device, used })
            })
        };
        Self(slice_devices.iter().flat_map(of_slice_device).collect())
    }

    /// Adds processes that have attached since.
    fn extend(&mut self, later: Self) {
        for (pid, member) in later.0 {
            match self.0.entry(pid) {
                Entry::Occupied(mut known) if known.get().id != member.id => _ = known.insert(member),
                Entry::Occupied(_) => {}
                Entry::Vacant(vacant) => _ = vacant.insert(member),
            }
        }
    }
}

fn user(
    listed: &GpuProcess,
    slice_devices: &[SliceDevice],
    members: &Members<'_>,
    attribution: &Attribution,
) -> Option<GpuUser> {
    let (id, owner) = attribution.find(listed.pid)?;
    let member = members.0.get(&listed.pid).filter(|member| member.id == id);
    let whose = match (member, owner) {
        (Some(member), _) => {
            let slice = member.slice_device.runtime.name.clone();
            Whose::Member { slice, charged: charged(member)? }
        }
        (None, ProcessOwner::Daemon) => return None,
        (None, ProcessOwner::Slice(runtime)) => unattached(&runtime, slice_devices)?,
        (None, ProcessOwner::None) => foreign(slice_devices)?,
    };
    Some(GpuUser { id, command: process::command(id.pid), holds: listed.used, whose })
}

/// The larger of a process's charges now and before the query; `None` if it has left its slot.
fn charged(member: &ObservedMember<'_>) -> Option<Charged> {
    let SliceDevice { runtime, device, reserve, .. } = member.slice_device;
    let now = runtime.charged(member.seat, *device);
    (runtime.seat_of(member.id) == Some(member.seat)).then(|| Charged {
        used: now.used.max(member.used).min(now.granted),
        reserve: *reserve,
        ..now
    })
}

/// A process of a slice that has a whole GPU needs no shim to stay within it, so it is no finding.
fn unattached(runtime: &SliceRuntime, slice_devices: &[SliceDevice]) -> Option<Whose> {
    let its = slice_devices.iter().find(|slice_device| slice_device.runtime.name == runtime.name);
    if its.is_some_and(|slice_device| slice_device.whole) {
        return None;
    }
    Some(Whose::Relative { slice: runtime.name.clone() })
}

/// Classification of a process of no known slice; `None` if it may be in a container with a whole GPU.
/// A container that is not known here may use a persistent slice of a whole GPU without the shim.
fn foreign(slice_devices: &[SliceDevice]) -> Option<Whose> {
    let may_be_container =
        slice_devices.iter().any(|slice_device| slice_device.whole && slice_device.persistent);
    (!may_be_container).then_some(Whose::Nobody)
}

fn served(agent: &Agent, slice_device: &SliceDevice, samples: &[ProcessUtilization]) -> Served {
    let runtime = &slice_device.runtime;
    let newest = |id: &ProcessId| {
        let its = samples.iter().filter(|sample| sample.pid == id.pid);
        its.max_by_key(|sample| sample.timestamp_us).map(|sample| (*id, *sample))
    };
    let ran: Vec<(ProcessId, ProcessUtilization)> =
        runtime.occupants().members.values().filter_map(newest).collect();
    let sum = |of: fn(&ProcessUtilization) -> u32| {
        let percent = ran.iter().map(|(_, sample)| of(sample).min(100)).sum::<u32>().min(100);
        Permille::try_from(percent * 10).unwrap_or(Permille::WHOLE)
    };
    let busy = (!samples.is_empty()).then(|| sum(|sample| sample.sm_percent));
    let worked = (!samples.is_empty()).then(|| sum(|sample| sample.sm_percent.max(sample.memory_percent)));
    let moved = match agent.governor.counted_transfers() {
        CountedTransfers::All => Permille::ZERO,
        CountedTransfers::None | CountedTransfers::Inside | CountedTransfers::Held => {
            sum(|sample| sample.memory_percent)
        }
    };
    let busiest = ran.iter().max_by_key(|(_, sample)| sample.sm_percent).map(|(id, _)| *id);
    let counted = counted(agent, &runtime.name, slice_device.device);
    let kept = agent.governor.kept(&runtime.name);
    Served { slice: runtime.name.clone(), busy, worked, moved, counted, kept, busiest }
}

/// Recorded use of a device by a slice over the last second.
fn counted(agent: &Agent, name: &SliceName, device: DeviceSlot) -> Permille {
    let shown = agent.governor.show(name);
    shown.and_then(|shown| shown.used.get(device.index()).copied()).unwrap_or_default().0
}
