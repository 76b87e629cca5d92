//! State of the node's daemon: the node's commitments, the slice runtimes, and every change to them.
//!
//! One lock, [`Core`], covers what must change together: commitments, slice runtimes and the state file. It is never
//! held across an await. Each slice runtime has a lock of its own, taken after it.

mod cordon;
mod creation;
mod deletion;
mod drain;
mod ending;
mod notices;
mod park;
mod park_unasked;
mod persistence;
mod updates;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tranche_domain::access::Verb;
use tranche_domain::event::{Actor, EventKind, Happening};
use tranche_domain::id::SliceName;
use tranche_domain::jobs::MemberId;
use tranche_domain::node::{Gpu, Node, Refusal};
use tranche_domain::slice::Slice;
use tranche_inventory::{Driver, GpuFacts, NodeFacts};

use crate::access::{Access, AccessGate, Caller};
use crate::audit::findings::Audit;
use crate::config::{Config, Foreigners, OverCap};
use crate::configuration::{Configured, ReloadOutcome};
use crate::containers::{Described, SliceContainers};
use crate::context::Contexts;
use crate::failure::{RequestFailure, Requested};
use crate::faults::FaultMonitor;
use crate::gpu_probe::GpuProbe;
use crate::gpu_users::GpuUsers;
use crate::idleness::Idleness;
use crate::parking::Parking;
use crate::queue::Queue;
use crate::sockets::{DaemonPaths, DaemonScope, job_runner_beside};
use crate::state::SavedSlice;
use crate::state_store::StateWriter;
use crate::user_names::UserDirectory;
use tranche_jobs::JobClaims;
use tranche_slices::reaper::{Reaper, Slices};
use tranche_slices::slice_runtime::SliceRuntime;
use tranche_slices::usage_guard::UsageGuard;
use tranche_slices::worker::Workers;
use tranche_telemetry::Telemetry;
use tranche_telemetry::conditions::{ConditionKind as Condition, ConditionSubject, Conditions};
use tranche_timeshare::Governor;

pub(crate) use drain::{Drain, Progress};

/// The daemon's shared state: immutable parts, and locks around the others.
pub(crate) struct Agent {
    pub(crate) layout: DaemonPaths,
    state: Arc<StateWriter>,
    pub(crate) gate: Arc<AccessGate>,
    pub(crate) shim: PathBuf,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) facts: Option<NodeFacts>,
    pub(crate) gpus: Vec<GpuFacts>,
    over_cap: Mutex<OverCap>,
    pub(crate) parking: Parking,
    /// `None` in a daemon that was started without a configuration.
    pub(crate) configured: Option<Configured>,
    pub(crate) reaper: Arc<Reaper>,
    pub(crate) faults: Arc<FaultMonitor>,
    pub(crate) gpu_probe: GpuProbe,
    pub(crate) idleness: Idleness,
    pub(crate) users: UserDirectory,
    /// True if metrics have figures under DCGM's names as well.
    pub(crate) dcgm_names: bool,
    pub(crate) telemetry: Arc<Telemetry>,
    /// `None` where inotify is not available.
    pub(crate) usage_guard: Option<Arc<UsageGuard>>,
    /// True if usage regions are sealed memory, false if they are files.
    pub(crate) seals_regions: bool,
    pub(crate) audit: Audit,
    /// Documents and folders for containers.
    pub(crate) containers: SliceContainers,
    pub(crate) governor: Arc<Governor>,
    /// Thread that serves tenants' files.
    pub(crate) worker: Handle,
    /// Threads of the slices.
    pub(crate) workers: Workers,
    core: Mutex<Core>,
    /// Incremented whenever capacity may have become available.
    pub(crate) room: watch::Sender<u64>,
    /// Changes whenever a slice is created, or a request begins to wait or leaves the queue.
    pub(crate) requests: watch::Sender<u64>,
}

/// State that changes under one lock.
pub(crate) struct Core {
    pub(crate) node: Node,
    pub(crate) live: BTreeMap<SliceName, Arc<SliceRuntime>>,
    /// Slices whose GPU is missing; kept in the state until it returns.
    pub(crate) stranded: Vec<SavedSlice>,
    /// Slices of an earlier daemon that are not taken over completely yet. Meanwhile they stay unchanged in the state
    /// file.
    pub(crate) pending_takeover: Vec<SavedSlice>,
    pub(crate) generation: u64,
    pub(crate) contexts: Contexts,
    pub(crate) waiting: Queue,
    /// Claims of jobs on users' slices.
    pub(crate) claims: JobClaims,
    /// True if the state file could not be written and is outdated.
    is_unsaved: bool,
    /// Number of the last snapshot for the state file.
    snapshots: u64,
    state: Arc<StateWriter>,
    telemetry: Arc<Telemetry>,
}

/// Parts of a daemon, from its configuration and its start.
pub(crate) struct AgentParts {
    pub(crate) layout: DaemonPaths,
    pub(crate) access: Access,
    pub(crate) shim: PathBuf,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) contexts: Contexts,
    pub(crate) config: Config,
    pub(crate) configured: Option<Configured>,
    pub(crate) described: Option<Described>,
    pub(crate) seals_regions: bool,
    pub(crate) governor: Arc<Governor>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) worker: Handle,
}

impl Agent {
    /// The state of a daemon without slices. What is wrong with the driver becomes conditions.
    pub(crate) fn new(parts: AgentParts) -> Arc<Self> {
        let AgentParts { layout, access, config, shim, driver, contexts, governor, telemetry, .. } = parts;
        let (facts, gpus) = readable(&*driver, &telemetry.conditions);
        contexts.report(&telemetry.conditions);
        let mut node = Node::new(gpus.iter().map(to_domain_gpu).collect());
        node.set_overcommit(config.memory_overcommit);
        let state = Arc::new(StateWriter::new(layout.state.clone()));
        let core = Core {
            snapshots: 0,
            state: Arc::clone(&state),
            node,
            live: BTreeMap::new(),
            stranded: Vec::new(),
            pending_takeover: Vec::new(),
            generation: 0,
            contexts,
            waiting: Queue::default(),
            claims: JobClaims::default(),
            is_unsaved: false,
            telemetry: Arc::clone(&telemetry),
        };
        let usage_guard = UsageGuard::new(Arc::clone(&telemetry))
            .inspect_err(|error| tracing::warn!(%error, "usage files are not watched"));
        let parking = Parking::new(layout.runtime.clone(), job_runner_beside(&shim), config.park_terms());
        Arc::new_cyclic(|own: &Weak<Self>| Self {
            gate: Arc::new(AccessGate::new(access, layout.reach)),
            containers: SliceContainers::new(&layout, parts.described),
            layout,
            state,
            shim,
            facts,
            over_cap: Mutex::new(config.over_cap()),
            parking,
            configured: parts.configured,
            reaper: Arc::new(Reaper::new(Arc::clone(&telemetry), Arc::clone(&driver), own.clone())),
            faults: Arc::new(FaultMonitor::new(
                Duration::from_secs(config.fault_quiet_s),
                Arc::clone(&driver),
                gpus.clone(),
                Arc::clone(&telemetry),
            )),
            driver,
            gpus,
            gpu_probe: GpuProbe::default(),
            users: UserDirectory::default(),
            dcgm_names: config.metrics_dcgm,
            idleness: Idleness::new(Duration::from_secs(config.idle_after_s)),
            usage_guard: usage_guard.ok().map(Arc::new),
            seals_regions: parts.seals_regions,
            audit: Audit::new(config.violations(), config.foreigners == Foreigners::Refuse),
            governor,
            telemetry,
            worker: parts.worker,
            workers: Workers::default(),
            core: Mutex::new(core),
            room: watch::Sender::new(0),
            requests: watch::Sender::new(0),
        })
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("nothing panics while it holds the core")
    }

    /// Runtimes of the slices being served.
    pub(crate) fn runtimes(&self) -> Vec<Arc<SliceRuntime>> {
        self.core().live.values().cloned().collect()
    }

    pub(crate) fn notify_capacity(&self) {
        self.room.send_modify(|turn| *turn += 1);
    }

    /// Notifies the quota scheduler of a new slice, or of a change among waiting requests.
    pub(crate) fn demand_changed(&self) {
        self.requests.send_modify(|turn| *turn += 1);
    }

    /// Policy for slices that stay over their caps.
    pub(crate) fn over_cap(&self) -> OverCap {
        *self.over_cap.lock().expect("nothing panics while it holds this")
    }

    /// Reads the configuration again and applies the keys that need no restart.
    pub(crate) fn reload(&self, actor: Option<Actor>) -> Requested<ReloadOutcome> {
        let configured = self.configured.as_ref().ok_or(RequestFailure::NotConfigured)?;
        let reloaded = configured.reload(|config| self.reconfigure(config));
        let ReloadOutcome { applied, needs_restart } = reloaded.as_ref().map_err(|fault| {
            tracing::error!("the configuration stays as it was: {fault}");
            RequestFailure::Misconfigured(fault.clone())
        })?;
        tracing::info!(?applied, ?needs_restart, "read the configuration again");
        let named = |keys: &[String]| if keys.is_empty() { "nothing".into() } else { keys.join(", ") };
        let evidence = format!("in force: {}; after a restart: {}", named(applied), named(needs_restart));
        self.telemetry
            .record(Happening { actor, ..Happening::new(EventKind::ConfigurationReloaded, evidence) });
        reloaded.map_err(RequestFailure::Misconfigured)
    }

    fn reconfigure(&self, config: &Config) {
        *self.over_cap.lock().expect("nothing panics while it holds this") = config.over_cap();
        self.parking.set_terms(config.park_terms());
        self.core().node.set_overcommit(config.memory_overcommit);
        self.idleness.set_after(Duration::from_secs(config.idle_after_s));
        self.faults.set_quiet(Duration::from_secs(config.fault_quiet_s));
        self.gate.set_limits(config.limits());
    }

    pub(crate) fn is_privileged(&self) -> bool {
        self.layout.reach == DaemonScope::Node
    }

    /// Authorizes an operation on a slice, stranded or not.
    fn permit(&self, core: &Core, name: &SliceName, caller: &Caller, verb: Verb) -> Requested<()> {
        self.gate.permit_with(caller, verb, name, core.slice(name)?.owner_uid)
    }
}

impl Slices for Agent {
    fn settle_use(&self, slice: &SliceName) {
        self.governor.settle(slice);
    }

    fn process_ended(&self) {
        self.governor.wake();
    }

    fn note_excess(&self, runtime: &SliceRuntime) {
        self.note_excess(runtime);
    }

    fn end_if_over(&self, runtime: &Arc<SliceRuntime>) -> bool {
        self.end_if_over(runtime)
    }

    fn save(&self) {
        self.save();
    }
}

/// The driver's facts and GPUs as far as they can be read; what cannot be read becomes conditions.
fn readable(driver: &dyn Driver, conditions: &Conditions) -> (Option<NodeFacts>, Vec<GpuFacts>) {
    let (facts, gpus) = (driver.facts(), driver.gpus());
    let errors = [facts.as_ref().err(), gpus.as_ref().err()].into_iter().flatten().map(ToString::to_string);
    // The same error of both is one condition.
    for error in errors.collect::<BTreeSet<_>>() {
        conditions.set(Condition::DriverUnavailable, ConditionSubject::Node(error.clone()), error);
    }
    for gpu in facts.iter().flat_map(|facts| &facts.unreadable) {
        let message = format!("GPU {} is not usable: {}", gpu.index, gpu.cause);
        conditions.set(Condition::GpuUnusable, ConditionSubject::Node(gpu.index.to_string()), message);
    }
    (facts.ok(), gpus.unwrap_or_default())
}

impl Core {
    pub(crate) fn is_stranded(&self, name: &SliceName) -> bool {
        self.stranded.iter().any(|saved| saved.slice.name == *name)
    }

    /// A slice, stranded or not.
    pub(crate) fn slice(&self, name: &SliceName) -> Result<&Slice, Refusal> {
        let stranded = self.stranded.iter().find(|saved| saved.slice.name == *name);
        stranded.map_or_else(|| self.node.slice(name), |saved| Ok(&saved.slice))
    }

    /// Attached processes and pods' whole GPUs at this instant.
    pub(crate) fn gpu_users(&self) -> GpuUsers {
        let slices = self.node.slices().values();
        GpuUsers::of(slices.filter_map(|slice| Some((slice, self.live.get(&slice.name)?.as_ref()))))
    }

    /// Assigns a slice without a job to one.
    pub(crate) fn claim(&mut self, name: &SliceName, job: MemberId) {
        self.node.claim(name, job);
        let stranded = self.stranded.iter_mut().filter(|saved| saved.slice.name == *name);
        stranded.for_each(|saved| saved.slice.job = saved.slice.job.or(Some(job)));
    }

    /// Marks a slice of an earlier daemon as completely taken over.
    pub(crate) fn finish_takeover(&mut self, name: &SliceName) {
        self.pending_takeover.retain(|saved| saved.slice.name != *name);
    }
}

fn to_domain_gpu(gpu: &GpuFacts) -> Gpu {
    Gpu {
        index: gpu.index,
        uuid: gpu.uuid,
        island: gpu.island,
        capacity: gpu.capacity(),
        obstacle: gpu.not_sliceable.as_ref().map(ToString::to_string),
    }
}
