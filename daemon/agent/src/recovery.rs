//! Recovery after a restart: takes over slices, regions and processes of an earlier daemon.
//!
//! The state file holds the terms of slices, the regions their attached processes. A process is the one that attached
//! only if its pid still has the recorded start time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::sync::Arc;

use tranche_domain::compute::Priority;
use tranche_domain::event::{EventKind, Happening};
use tranche_domain::id::{GpuUuid, HostPid, SliceName};
use tranche_domain::node::Refusal;
use tranche_domain::request::{ComputeMode, Share};
use tranche_domain::slice::{Part, ProcessId, Slice};
use tranche_domain::units::{Bytes, Permille};
use tranche_shm::DeviceSlot;
use tranche_shm::crash::point;

use crate::agent::{Agent, Core};
use crate::failure::{RequestFailure, Requested};
use crate::other_abi::OtherAbi;
use crate::state::{SavedSlice, StateFile};
use crate::state_store::{self, StoredState};
use tranche_linux::clock::now_unix_ms;
use tranche_linux::process::{self, Process};
use tranche_slices::regions::Regions;
use tranche_slices::slice_runtime::SliceRuntime;
use tranche_telemetry::conditions::{ConditionKind as Condition, ConditionSubject};

/// Takes over all slices. Those that cannot be taken over become conditions, and do not stop the daemon.
pub(crate) fn recover(agent: &Arc<Agent>) -> io::Result<()> {
    let state = match state_store::load(&agent.layout.state)? {
        StoredState::Whole(state) => state,
        StoredState::Copy(state, note) => unreadable(agent, note, state),
        StoredState::Nothing(note) => unreadable(agent, note, StateFile::default()),
    };
    point("recovery: read");
    {
        let mut core = agent.core();
        core.generation = state.generation;
        core.node.restore_cordons(state.cordons);
        core.pending_takeover = state.slices.clone();
    }
    for saved in state.slices {
        take_over(agent, saved);
    }
    for name in leftovers(agent)? {
        adopt_leftover(agent, &name);
    }
    write_documents(agent);
    point("recovery: done");
    agent.save();
    Ok(())
}

/// Rewrites every slice's document for containers, and removes documents of other slices.
/// Facts of the node may have changed since the last daemon wrote them.
fn write_documents(agent: &Agent) {
    let core = agent.core();
    let slices: Vec<Slice> = core.node.slices().values().filter(|slice| !slice.ephemeral).cloned().collect();
    for slice in &slices {
        agent.write_document(slice);
    }
    drop(core);
    let served: BTreeSet<&SliceName> = slices.iter().map(|slice| &slice.name).collect();
    let known = directories(agent).unwrap_or_default();
    known.iter().filter(|name| !served.contains(name)).for_each(|name| agent.containers.withdraw(name));
    agent.containers.sweep();
    for (number, limitation) in agent.containers.limitations().into_iter().enumerate() {
        let subject = ConditionSubject::Node(number.to_string());
        agent.telemetry.conditions.set(Condition::ContainersLimited, subject, limitation);
    }
}

fn unreadable(agent: &Agent, note: String, state: StateFile) -> StateFile {
    agent.telemetry.record(Happening::new(EventKind::StateUnreadable, note.clone()));
    agent.telemetry.conditions.set(Condition::StateUnreadable, ConditionSubject::NODE, note);
    state
}

fn take_over(agent: &Arc<Agent>, saved: SavedSlice) {
    let name = saved.slice.name.clone();
    let note = |message: String| not_served(agent, &name, message);
    match serve_saved(agent, &saved) {
        Ok(runtime) => {
            // All processes are taken over before the sockets open: one that connects meanwhile would be given
            // another slot with an empty account.
            take_over_processes(agent, &runtime, &saved.roots);
            agent.core().finish_takeover(&name);
            point("recovery: seated");
            if let Err(failure) = agent.listen(&runtime, saved.slice.ephemeral) {
                note(format!("slice {name} goes on, but no process can join it: {failure}"));
            }
        }
        Err(RequestFailure::Refused(refusal @ Refusal::Stranded { .. })) => {
            note(format!("{refusal}; it is kept for when the GPU is back, or until it is deleted"));
        }
        Err(failure @ RequestFailure::OtherVersion { .. }) => note(failure.to_string()),
        Err(failure) => note(format!(
            "slice {name} could not be taken over: {failure}; it is kept for the daemon's next start, or until it is deleted"
        )),
    }
}

fn not_served(agent: &Agent, slice: &SliceName, message: String) {
    agent.telemetry.conditions.set(Condition::NotServed, ConditionSubject::Slice(slice.clone()), message);
}

/// Serves a saved slice; one that cannot be served is kept in the state unchanged.
fn serve_saved(agent: &Arc<Agent>, saved: &SavedSlice) -> Requested<Arc<SliceRuntime>> {
    let mut core = agent.core();
    let opened = open_again(agent, &mut core, saved);
    if opened.is_err() {
        core.stranded.push(saved.clone());
        core.finish_takeover(&saved.slice.name);
    }
    opened
}

fn open_again(agent: &Arc<Agent>, core: &mut Core, saved: &SavedSlice) -> Requested<Arc<SliceRuntime>> {
    let slice = &saved.slice;
    core.node.adopt(slice.clone())?;
    let again = || {
        let directory = agent.layout.make_slice(&slice.name)?;
        if let Some(others) = OtherAbi::in_directory(&directory) {
            return Err(others.failure(&slice.name));
        }
        let whole = |regions: &Regions| {
            let control = regions.control().reader();
            control.generation() == saved.generation && control.device_count() == slice.parts.len()
        };
        match Regions::open(&directory, agent.seals_regions).ok().filter(whole) {
            Some(regions) => Ok(regions),
            // After a reboot the runtime directory is empty, and so is the slice.
            None => Regions::create(&directory, saved.generation, slice.parts.len(), agent.seals_regions)
                .map_err(|cause| RequestFailure::regions(&slice.name, cause)),
        }
    };
    let opened = again().and_then(|regions| agent.open(core, slice, regions));
    // Memory that processes of another ABI version hold stays committed to their slice.
    if !matches!(opened, Ok(_) | Err(RequestFailure::OtherVersion { .. })) {
        let _ = core.node.delete(&slice.name);
    }
    opened
}

/// Takes over the slice's roots and attached processes.
fn take_over_processes(agent: &Arc<Agent>, runtime: &Arc<SliceRuntime>, roots: &[ProcessId]) {
    let roots = roots.iter().filter_map(|root| Process::reopen(*root).ok()).map(Arc::new);
    let roots: Vec<_> = roots.filter(|root| runtime.enter(root).is_ok()).collect();
    let listed = ListedProcesses::on(agent, &runtime.gpus);
    // The driver lists none of a slice that is not on its GPUs, though they hold all that they were charged.
    let parked = agent.core().node.slice(&runtime.name).ok().and_then(|slice| slice.parked);
    let seated = runtime.regions.seated().into_iter().map(|(seat, id)| {
        let handle = Process::reopen(id).ok().map(Arc::new);
        if runtime.regions.were_lost() {
            runtime.restore_use(seat, |gpu| listed.holds(gpu, id.pid));
        }
        let most = |gpu| parked.is_none().then(|| listed.most(runtime, gpu, id.pid)).flatten();
        runtime.take_over(seat, id, handle.as_ref(), most);
        (seat, id, handle)
    });
    let seated: Vec<_> = seated.collect();
    point("recovery: reseated");
    let processes = seated.len();
    let handles = roots.iter().chain(seated.iter().filter_map(|(_, _, handle)| handle.as_ref()));
    for process in handles {
        readmit_to_gpus(runtime, process);
    }
    let living: Vec<_> =
        seated.iter().filter(|(.., handle)| handle.is_some()).map(|(_, id, _)| id.pid.to_string()).collect();
    if runtime.regions.were_lost() && !living.is_empty() {
        let message = format!(
            "slice {}: none of its processes maps its books any more: they are charged what the driver says that they hold, \
             and have to be started again to get more: {}",
            runtime.name,
            living.join(", ")
        );
        let subject = ConditionSubject::Slice(runtime.name.clone());
        agent.telemetry.conditions.set(Condition::AccountingLost, subject, message);
    }
    // Watched only when all have been added: the end of the first must not look like the end of the last.
    for root in roots {
        agent.reaper.watch_root(runtime, root);
    }
    for (seat, id, handle) in seated {
        agent.reaper.watch_member(runtime, seat, id, handle);
    }
    runtime.restore_common();
    agent.note_excess(runtime);
    let told = format!("it goes on with {processes} processes");
    agent.telemetry.record(Happening::new(EventKind::SliceTakenOver, told).of(&runtime.name));
}

/// Permits a process to open GPUs again; on failure it keeps the descriptors that it has.
fn readmit_to_gpus(runtime: &SliceRuntime, process: &Process) {
    if let Err(error) = process.admit_to_gpus(runtime.generation) {
        tracing::warn!(slice = %runtime.name, pid = %process.id.pid, %error, "it cannot open GPUs any more");
    }
}

/// The driver's list of processes on each GPU, and the measured cost of a context there.
struct ListedProcesses(BTreeMap<GpuUuid, (BTreeMap<HostPid, Option<Bytes>>, Bytes)>);

impl ListedProcesses {
    /// Queries these GPUs; one that does not answer is left out.
    fn on(agent: &Agent, gpus: &[GpuUuid]) -> Self {
        let of_gpu = |gpu: &GpuUuid| {
            let processes = agent.driver.processes(*gpu).ok()?;
            let held = processes.into_iter().map(|process| (process.pid, process.used)).collect();
            Some((*gpu, (held, agent.core().contexts.cost(*gpu))))
        };
        Self(gpus.iter().filter_map(of_gpu).collect())
    }

    /// Memory of a GPU that the driver lists for a process; zero where it does not report it.
    fn holds(&self, gpu: GpuUuid, pid: HostPid) -> Bytes {
        let held = self.0.get(&gpu).and_then(|(held, _)| held.get(&pid).copied().flatten());
        held.unwrap_or_default()
    }

    /// Upper bound of a process's use of a GPU; `None` if the driver does not report it.
    fn most(&self, runtime: &SliceRuntime, gpu: GpuUuid, pid: HostPid) -> Option<Bytes> {
        let (held, measured) = self.0.get(&gpu)?;
        let holds = held.get(&pid).copied().unwrap_or(Some(Bytes::ZERO))?;
        let (device, _) = runtime.devices().find(|(_, of)| *of == gpu)?;
        Some(holds.saturating_add(runtime.most_charged(device, *measured)))
    }
}

/// Slice directories that the state lacks, as after an unreadable state file.
fn leftovers(agent: &Agent) -> io::Result<BTreeSet<SliceName>> {
    let core = agent.core();
    let known: BTreeSet<&SliceName> =
        core.live.keys().chain(core.stranded.iter().map(|saved| &saved.slice.name)).collect();
    Ok(directories(agent)?.into_iter().filter(|name| !known.contains(name)).collect())
}

/// Slice directories by name.
fn directories(agent: &Agent) -> io::Result<BTreeSet<SliceName>> {
    let entries = fs::read_dir(agent.layout.slices())?.collect::<io::Result<Vec<_>>>()?;
    Ok(entries.iter().filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect())
}

/// Adopts a slice that the state lacks while processes live in it. Their memory is in use, so it is committed again
/// until the last of them ends. Without processes, removes its directory.
fn adopt_leftover(agent: &Arc<Agent>, name: &SliceName) {
    let directory = agent.layout.slice(name);
    if let Some(others) = OtherAbi::in_directory(&directory) {
        let message = format!("{}; nothing is known of what it was promised", others.failure(name));
        return not_served(agent, name, message);
    }
    let regions = Regions::open(&directory, agent.seals_regions).ok();
    let alive = |regions: &Regions| -> Vec<ProcessId> {
        let ids = regions.seated().into_iter().map(|(_, id)| id);
        ids.filter(|id| Process::reopen(*id).is_ok()).collect()
    };
    let members = regions.as_ref().map(alive).unwrap_or_default();
    let (Some(regions), Some(first)) = (regions, members.first()) else {
        point("recovery: rubbish");
        agent.remove_files(name);
        return;
    };
    let owner_uid = process::uid(first.pid).unwrap_or_default();
    let Some(slice) = describe(agent, name, &regions, owner_uid) else { return };
    let generation = regions.control().reader().generation();
    drop(regions);
    point("recovery: adopting");
    {
        let mut core = agent.core();
        core.generation = core.generation.max(generation);
    }
    let message = format!(
        "slice {name} was not in the state file, but processes live in it: it is served until they end"
    );
    agent.telemetry.conditions.set(Condition::Adopted, ConditionSubject::Slice(name.clone()), message);
    take_over(agent, SavedSlice { slice, generation, roots: members });
}

/// Reconstructs a slice's terms from its control region.
fn describe(agent: &Agent, name: &SliceName, regions: &Regions, owner_uid: u32) -> Option<Slice> {
    let control = regions.control().reader();
    let part = |index| {
        let limits = control.limits(DeviceSlot::new(index)?);
        Some(Part { gpu: GpuUuid::from_bytes(limits.uuid), cap: Bytes::new(limits.cap_bytes) })
    };
    let parts: Vec<Part> = (0..control.device_count()).map_while(part).collect();
    let first = parts.first()?;
    let capacity = agent.gpus.iter().find(|gpu| gpu.uuid == first.gpu).map(|gpu| gpu.capacity())?;
    let count = u32::try_from(parts.len()).ok().and_then(|count| count.try_into().ok())?;
    let whole = first.cap == capacity;
    Some(Slice {
        name: name.clone(),
        share: if whole { Share::Whole(count) } else { Share::Memory(first.cap) },
        compute: if whole { Permille::WHOLE } else { Permille::ZERO },
        limit: Permille::WHOLE,
        mode: if whole { ComputeMode::Fair } else { ComputeMode::BestEffort },
        priority: Priority::DEFAULT,
        latency: None,
        gang: None,
        project: None,
        frozen: false,
        parked: None,
        returned: false,
        parts,
        ephemeral: true,
        park_idle: None,
        rotates: false,
        several_containers: false,
        pod: None,
        job: None,
        owner_uid,
        created_unix_ms: now_unix_ms(),
    })
}
