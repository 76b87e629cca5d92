//! The daemon's heart: the node as promised, the slices as lived in, and every change to them.
//!
//! One lock, [`Core`], holds what must change together: the promises, the tenancies that serve them and the
//! state file. It is never held across an await. A tenancy's own books have their own lock, taken after it.

mod changing;
mod cordoning;
mod draining;
mod ending;
mod making;
mod telling;

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
use crate::sockets::{Layout, Reach};
use crate::state::{SavedSlice, State};
use crate::state_store;
use crate::tenancy::Tenancy;
use crate::usage_guard::UsageGuard;
use crate::worker::Workers;

pub(crate) use draining::{Drain, Progress};

/// The longest note, in characters: some of it may be a tenant's choice.
const LONGEST_NOTE: usize = 1000;

/// What does not change while the daemon runs, and the lock around what does.
pub(crate) struct Agent {
    pub(crate) layout: Layout,
    pub(crate) gate: Arc<Gate>,
    pub(crate) shim: PathBuf,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) facts: Option<NodeFacts>,
    pub(crate) gpus: Vec<GpuFacts>,
    over_cap: Mutex<OverCap>,
    /// Nothing in a daemon that was started without one.
    pub(crate) configured: Option<Configured>,
    pub(crate) last_charges: Mutex<LastCharges>,
    pub(crate) listings: Listings,
    pub(crate) faults: FaultMonitor,
    pub(crate) gpu_probe: GpuProbe,
    pub(crate) events: Events,
    /// Nothing where the kernel tells nobody more what is written to files.
    pub(crate) usage_guard: Option<UsageGuard>,
    /// Whether usage regions are sealed memory; files where not.
    pub(crate) seals_regions: bool,
    pub(crate) audit: Audit,
    /// Documents and folders of slices for containers.
    pub(crate) containers: Containers,
    pub(crate) governor: Arc<Governor>,
    pub(crate) counters: Arc<Counters>,
    /// Where tenants' files are looked after.
    pub(crate) worker: Handle,
    /// Where slices are looked after, each by a thread of its own.
    pub(crate) workers: Workers,
    core: Mutex<Core>,
    /// Moves whenever room may have appeared.
    pub(crate) room: watch::Sender<u64>,
}

/// What changes together.
pub(crate) struct Core {
    pub(crate) node: Node,
    pub(crate) live: BTreeMap<SliceName, Arc<Tenancy>>,
    /// Slices whose GPU is not here now; kept for when it is again.
    pub(crate) stranded: Vec<SavedSlice>,
    /// Slices of an earlier daemon that have yet to be taken over with all their processes: meanwhile they stay in the
    /// state on disk as they were.
    pub(crate) coming: Vec<SavedSlice>,
    pub(crate) generation: u64,
    pub(crate) contexts: Contexts,
    pub(crate) waiting: Queue,
    pub(crate) notes: Vec<String>,
    /// The state on disk is older than what is.
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
            node: Node::new(gpus.iter().map(as_room).collect()),
            live: BTreeMap::new(),
            stranded: Vec::new(),
            coming: Vec::new(),
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

    /// With documents that describe the node so, if with any.
    pub(crate) fn describing(mut self, described: Option<Described>) -> Self {
        self.containers = Containers::new(&self.layout, described);
        self
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("nothing panics while it holds the core")
    }

    /// The slices that are served now.
    pub(crate) fn tenancies(&self) -> Vec<Arc<Tenancy>> {
        self.core().live.values().cloned().collect()
    }

    /// Tells the operator, now and in every snapshot; once, or a tenant could fill our memory with what it does again
    /// and again.
    pub(crate) fn note(&self, note: String) {
        let note = visible_within(&note, LONGEST_NOTE);
        let mut core = self.core();
        if !core.notes.contains(&note) {
            tracing::warn!("{note}");
            core.notes.push(note);
        }
    }

    /// What was noted is so no more.
    pub(crate) fn withdraw(&self, note: &str) {
        let note = visible_within(note, LONGEST_NOTE);
        self.core().notes.retain(|known| *known != note);
    }

    pub(crate) fn room_appeared(&self) {
        self.room.send_modify(|turn| *turn += 1);
    }

    /// Keeps the roots on disk, for the next daemon.
    pub(crate) fn save(&self) {
        if let Err(failure) = self.core().save(&self.layout) {
            tracing::error!(%failure, "the state on disk is old");
        }
    }

    /// Saves again what could not be saved.
    pub(crate) fn save_again(&self) {
        let mut core = self.core();
        if core.is_unsaved && core.save(&self.layout).is_ok() {
            tracing::info!("the state on disk is what it should be again");
        }
    }

    /// What is done about a slice that stays over its cap.
    pub(crate) fn over_cap(&self) -> OverCap {
        *self.over_cap.lock().expect("nothing panics while it holds this")
    }

    /// Reads the configuration again and changes what can be changed.
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

    /// Whether somebody may do something with a slice, stranded or not.
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

    /// A slice of which nobody said for whom it was made is a job's from now on.
    pub(crate) fn claim(&mut self, name: &SliceName, job: MemberId) {
        self.node.claim(name, job);
        let stranded = self.stranded.iter_mut().filter(|saved| saved.slice.name == *name);
        stranded.for_each(|saved| saved.slice.job = saved.slice.job.or(Some(job)));
    }

    /// All of a slice of an earlier daemon has been taken over.
    pub(crate) fn has_come(&mut self, name: &SliceName) {
        self.coming.retain(|saved| saved.slice.name != *name);
    }

    /// Writes the state file.
    pub(crate) fn save(&mut self, layout: &Layout) -> Result<(), Failure> {
        let is_coming = |name: &SliceName| self.coming.iter().any(|saved| saved.slice.name == *name);
        let here = self.node.slices().iter().filter(|(name, _)| !is_coming(name));
        let served = here.filter_map(|(name, slice)| {
            let tenancy = self.live.get(name)?;
            let roots = tenancy.occupants().roots.into_iter().collect();
            Some(SavedSlice { slice: slice.clone(), generation: tenancy.generation, roots })
        });
        let slices = served.chain(self.stranded.iter().chain(&self.coming).cloned()).collect();
        let state = State::new(self.generation, slices).with_cordons(self.node.cordons().clone());
        let saved = state_store::save(&state, &layout.state);
        self.is_unsaved = saved.is_err();
        Ok(saved.inspect_err(|_| self.counters.unsaved())?)
    }
}

fn as_room(gpu: &GpuFacts) -> Gpu {
    Gpu {
        index: gpu.index,
        uuid: gpu.uuid,
        island: gpu.island,
        capacity: gpu.capacity(),
        obstacle: gpu.not_sliceable.as_ref().map(ToString::to_string),
    }
}
