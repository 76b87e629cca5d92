//! State of the node's daemon: the node's commitments, the slice runtimes, and every change to them.
//!
//! One lock, [`Core`], covers what must change together: commitments, slice runtimes and the state file. It is never
//! held across an await. Each slice runtime has a lock of its own, taken after it.

mod cordon;
mod creation;
mod deletion;
mod drain;
mod notices;
mod updates;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tranche_domain::access::Verb;
use tranche_domain::event::{Actor, Happening, Kind};
use tranche_domain::id::SliceName;
use tranche_domain::jobs::MemberId;
use tranche_domain::node::{Gpu, Node, Refusal};
use tranche_domain::slice::Slice;
use tranche_domain::text::visible_within;
use tranche_domain::truth::Violations;
use tranche_inventory::{Driver, GpuFacts, NodeFacts};

use crate::access::{Access, Caller, Gate};
use crate::audit::Audit;
use crate::compute::Governor;
use crate::config::{Config, OverCap};
use crate::configuration::{Configured, Reloaded};
use crate::containers::{Containers, Described};
use crate::context::Contexts;
use crate::counters::Counters;
use crate::events::Events;
use crate::failure::Failure;
use crate::faults::FaultMonitor;
use crate::gpu_probe::GpuProbe;
use crate::overhead::LastCharges;
use crate::queue::Queue;
use crate::reaper::Listings;
use crate::slice_runtime::SliceRuntime;
use crate::sockets::{Layout, Reach};
use crate::state::{SavedSlice, State};
use crate::state_store;
use crate::usage_guard::UsageGuard;
use crate::worker::Workers;

pub(crate) use drain::{Drain, Progress};

/// Largest length of a note in characters, part of which a tenant may have chosen.
const LONGEST_NOTE: usize = 1000;

/// The daemon's shared state: immutable parts, and locks around the others.
pub(crate) struct Agent {
    pub(crate) layout: Layout,
    pub(crate) gate: Arc<Gate>,
    pub(crate) shim: PathBuf,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) facts: Option<NodeFacts>,
    pub(crate) gpus: Vec<GpuFacts>,
    over_cap: Mutex<OverCap>,
    /// `None` in a daemon that was started without a configuration.
    pub(crate) configured: Option<Configured>,
    pub(crate) last_charges: Mutex<LastCharges>,
    pub(crate) listings: Listings,
    pub(crate) faults: FaultMonitor,
    pub(crate) gpu_probe: GpuProbe,
    pub(crate) events: Events,
    /// `None` where inotify is not available.
    pub(crate) usage_guard: Option<UsageGuard>,
    /// True if usage regions are sealed memory, false if they are files.
    pub(crate) seals_regions: bool,
    pub(crate) audit: Audit,
    /// Documents and folders for containers.
    pub(crate) containers: Containers,
    pub(crate) governor: Arc<Governor>,
    pub(crate) counters: Arc<Counters>,
    /// Thread that serves tenants' files.
    pub(crate) worker: Handle,
    /// Threads of the slices.
    pub(crate) workers: Workers,
    core: Mutex<Core>,
    /// Incremented whenever capacity may have become available.
    pub(crate) room: watch::Sender<u64>,
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
    pub(crate) notes: Vec<String>,
    /// True if the state file could not be written and is outdated.
    is_unsaved: bool,
    counters: Arc<Counters>,
}

impl Agent {
    pub(crate) fn new(
        layout: Layout,
        shim: PathBuf,
        driver: Arc<dyn Driver>,
        contexts: Contexts,
        over_cap: OverCap,
        governor: Arc<Governor>,
        worker: Handle,
    ) -> Self {
        let (facts, gpus) = (driver.facts(), driver.gpus());
        let mut notes = contexts.notes.clone();
        notes.extend(
            [facts.as_ref().err(), gpus.as_ref().err()].into_iter().flatten().map(ToString::to_string),
        );
        notes.dedup();
        let unreadable = facts.iter().flat_map(|facts| &facts.unreadable);
        notes.extend(unreadable.map(|gpu| format!("GPU {} is not usable: {}", gpu.index, gpu.cause)));
        let gpus = gpus.unwrap_or_default();
        let counters = Arc::new(Counters::default());
        let core = Core {
            node: Node::new(gpus.iter().map(to_domain_gpu).collect()),
            live: BTreeMap::new(),
            stranded: Vec::new(),
            pending_takeover: Vec::new(),
            generation: 0,
            contexts,
            waiting: Queue::default(),
            notes,
            is_unsaved: false,
            counters: Arc::clone(&counters),
        };
        Self {
            events: Events::open(&layout.state),
            gate: Arc::new(Gate::new(Access::default(), layout.reach)),
            containers: Containers::new(&layout, None),
            layout,
            shim,
            driver,
            facts: facts.ok(),
            gpus,
            over_cap: Mutex::new(over_cap),
            configured: None,
            last_charges: Mutex::default(),
            listings: Listings::default(),
            faults: FaultMonitor::new(Duration::from_secs(60)),
            gpu_probe: GpuProbe::default(),
            usage_guard: None,
            seals_regions: false,
            audit: Audit::new(Violations::Report, false),
            governor,
            counters,
            worker,
            workers: Workers::default(),
            core: Mutex::new(core),
            room: watch::Sender::new(0),
        }
    }

    /// Sets the node's description for documents for containers; `None` for no documents.
    pub(crate) fn describing(mut self, described: Option<Described>) -> Self {
        self.containers = Containers::new(&self.layout, described);
        self
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("nothing panics while it holds the core")
    }

    /// Runtimes of the slices being served.
    pub(crate) fn runtimes(&self) -> Vec<Arc<SliceRuntime>> {
        self.core().live.values().cloned().collect()
    }

    /// Logs a note and adds it to every snapshot, unless it is there already. Repeated actions of a tenant must not
    /// exhaust memory.
    pub(crate) fn note(&self, note: String) {
        let note = visible_within(&note, LONGEST_NOTE);
        let mut core = self.core();
        if !core.notes.contains(&note) {
            tracing::warn!("{note}");
            core.notes.push(note);
        }
    }

    /// Removes a note.
    pub(crate) fn withdraw(&self, note: &str) {
        let note = visible_within(note, LONGEST_NOTE);
        self.core().notes.retain(|known| *known != note);
    }

    pub(crate) fn notify_capacity(&self) {
        self.room.send_modify(|turn| *turn += 1);
    }

    /// Writes the state file; a failure is logged.
    pub(crate) fn save(&self) {
        if let Err(failure) = self.core().save(&self.layout) {
            tracing::error!(%failure, "the state on disk is old");
        }
    }

    /// Writes the state file again if the last attempt failed.
    pub(crate) fn save_again(&self) {
        let mut core = self.core();
        if core.is_unsaved && core.save(&self.layout).is_ok() {
            tracing::info!("the state on disk is what it should be again");
        }
    }

    /// Policy for slices that stay over their caps.
    pub(crate) fn over_cap(&self) -> OverCap {
        *self.over_cap.lock().expect("nothing panics while it holds this")
    }

    /// Reads the configuration again and applies the keys that need no restart.
    pub(crate) fn reload(&self, actor: Option<Actor>) -> Result<Reloaded, Failure> {
        let configured = self.configured.as_ref().ok_or(Failure::NotConfigured)?;
        let reloaded = configured.reload(|config| self.reconfigure(config));
        let Reloaded { applied, needs_restart } = reloaded.as_ref().map_err(|fault| {
            tracing::error!("the configuration stays as it was: {fault}");
            Failure::Misconfigured(fault.clone())
        })?;
        tracing::info!(?applied, ?needs_restart, "read the configuration again");
        let named = |keys: &[String]| if keys.is_empty() { "nothing".into() } else { keys.join(", ") };
        let evidence = format!("in force: {}; after a restart: {}", named(applied), named(needs_restart));
        self.events.record(Happening { actor, ..Happening::new(Kind::ConfigurationReloaded, evidence) });
        reloaded.map_err(Failure::Misconfigured)
    }

    fn reconfigure(&self, config: &Config) {
        *self.over_cap.lock().expect("nothing panics while it holds this") = config.over_cap();
        self.faults.set_quiet(Duration::from_secs(config.fault_quiet_s));
        self.gate.set_limits(config.limits());
    }

    pub(crate) fn is_privileged(&self) -> bool {
        self.layout.reach == Reach::Node
    }

    /// Authorizes an operation on a slice, stranded or not.
    fn permit(&self, core: &Core, name: &SliceName, caller: &Caller, verb: Verb) -> Result<(), Failure> {
        self.gate.permit_with(caller, verb, name, core.slice(name)?.owner_uid)
    }
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

    /// Writes the state file.
    pub(crate) fn save(&mut self, layout: &Layout) -> Result<(), Failure> {
        let is_coming =
            |name: &SliceName| self.pending_takeover.iter().any(|saved| saved.slice.name == *name);
        let here = self.node.slices().iter().filter(|(name, _)| !is_coming(name));
        let served = here.filter_map(|(name, slice)| {
            let runtime = self.live.get(name)?;
            let roots = runtime.occupants().roots.into_iter().collect();
            Some(SavedSlice { slice: slice.clone(), generation: runtime.generation, roots })
        });
        let slices = served.chain(self.stranded.iter().chain(&self.pending_takeover).cloned()).collect();
        let state = State::new(self.generation, slices).with_cordons(self.node.cordons().clone());
        let saved = state_store::save(&state, &layout.state);
        self.is_unsaved = saved.is_err();
        Ok(saved.inspect_err(|_| self.counters.unsaved())?)
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
