//! The daemon's heart: the node as promised, the slices as lived in, and every change to them.
//!
//! One lock, [`Core`], holds what must change together: the promises, the tenancies that serve them and the
//! state file. It is never held across an await. A tenancy's own books have their own lock, taken after it.

mod ending;
mod telling;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tranche_domain::access::Verb;
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::node::{Gpu, Node, Origin, Refusal};
use tranche_domain::pod::PodContainer;
use tranche_domain::request::{Resize, SliceRequest};
use tranche_domain::slice::Slice;
use tranche_domain::truth::Violations;
use tranche_domain::units::Bytes;
use tranche_inventory::{Driver, GpuFacts, NodeFacts};

use crate::access::{Access, Caller, Gate};
use crate::attach::{self, Way};
use crate::compute::Governor;
use crate::config::{Config, OverCap};
use crate::configuration::{Configured, Reloaded};
use crate::containers::{self, Containers, Documents};
use crate::context::Contexts;
use crate::events::Events;
use crate::failure::Failure;
use crate::faults::FaultBook;
use crate::girth::Girth;
use crate::process::Process;
use crate::queue::Queue;
use crate::reaper;
use crate::reaper::Listings;
use crate::regions::{self, Regions};
use crate::sockets::{Layout, Reach};
use crate::state::{SavedSlice, State};
use crate::tally::Tally;
use crate::tenancy::Tenancy;
use crate::trueup::LastLook;
use crate::truth::Watch;
use telling::{changed, created, labelled};

/// How long an ephemeral slice waits for whoever made it to enter.
pub(crate) const ENTRY_PATIENCE: Duration = Duration::from_secs(10);

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
    pub(crate) last_look: Mutex<LastLook>,
    pub(crate) listings: Listings,
    pub(crate) faults: FaultBook,
    pub(crate) events: Events,
    /// Nothing where the kernel tells nobody more what is written to files.
    pub(crate) girth: Option<Girth>,
    pub(crate) truth: Watch,
    /// What containers are told of slices; nothing where that is off.
    pub(crate) containers: Option<Containers>,
    pub(crate) governor: Arc<Governor>,
    pub(crate) tally: Arc<Tally>,
    /// Where tenants are looked after.
    pub(crate) attendant: Handle,
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
    pub(crate) generation: u64,
    pub(crate) contexts: Contexts,
    pub(crate) waiting: Queue,
    pub(crate) notes: Vec<String>,
    tally: Arc<Tally>,
}

impl Agent {
    pub(crate) fn new(
        layout: Layout,
        shim: PathBuf,
        driver: Arc<dyn Driver>,
        contexts: Contexts,
        over_cap: OverCap,
        governor: Arc<Governor>,
        attendant: Handle,
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
        let tally = Arc::new(Tally::default());
        let core = Core {
            node: Node::new(gpus.iter().map(as_room).collect()),
            live: BTreeMap::new(),
            stranded: Vec::new(),
            generation: 0,
            contexts,
            waiting: Queue::default(),
            notes,
            tally: Arc::clone(&tally),
        };
        Self {
            events: Events::open(&layout.state),
            gate: Arc::new(Gate::new(Access::default(), layout.reach)),
            layout,
            shim,
            driver,
            facts: facts.ok(),
            gpus,
            over_cap: Mutex::new(over_cap),
            configured: None,
            last_look: Mutex::default(),
            listings: Listings::default(),
            faults: FaultBook::new(Duration::from_secs(60)),
            girth: None,
            truth: Watch::new(Violations::Report, false),
            containers: None,
            governor,
            tally,
            attendant,
            core: Mutex::new(core),
            room: watch::Sender::new(0),
        }
    }

    /// With containers told of its slices by these documents, if by any.
    pub(crate) fn telling(mut self, documents: Option<Documents>) -> Self {
        self.containers = documents.map(|documents| {
            Containers::new(documents, &self.shim, &self.layout.state, self.facts.clone(), self.gpus.clone())
        });
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
        let mut core = self.core();
        if !core.notes.contains(&note) {
            tracing::warn!("{note}");
            core.notes.push(note);
        }
    }

    /// What was noted is so no more.
    pub(crate) fn withdraw(&self, note: &str) {
        self.core().notes.retain(|known| known != note);
    }

    pub(crate) fn room_appeared(&self) {
        self.room.send_modify(|turn| *turn += 1);
    }

    // Creating

    /// Makes a slice, or leaves everything as it was.
    pub(crate) fn create(
        self: &Arc<Self>,
        request: &SliceRequest,
        caller: &Caller,
    ) -> Result<Slice, Failure> {
        let (mut core, uid) = (self.core(), caller.uid);
        let has = core.node.slices().values().filter(|slice| slice.owner_uid == uid).count();
        self.gate.permit_another_slice(caller, has)?;
        if let Some(name) = request.name.as_ref().filter(|name| core.is_stranded(name)) {
            return Err(Refusal::Exists(name.clone()).into());
        }
        let slice = core.node.create(request, Origin { uid, now_unix_ms: now_unix_ms() })?.clone();
        match self.serve_new(&mut core, &slice) {
            Ok(()) => {
                self.events.record(created(&slice));
                Ok(slice)
            }
            Err(failure) => {
                self.forget(&mut core, &slice.name);
                Err(failure)
            }
        }
    }

    fn serve_new(self: &Arc<Self>, core: &mut Core, slice: &Slice) -> Result<(), Failure> {
        core.generation += 1;
        let directory = self.layout.make_slice(&slice.name)?;
        let regions = Regions::create(&directory, core.generation, slice.parts.len())
            .map_err(|cause| Failure::regions(&slice.name, cause))?;
        let tenancy = self.open(core, slice, regions)?;
        self.listen(&tenancy, slice.ephemeral)?;
        core.save(&self.layout)?;
        self.tell(core, slice);
        Ok(())
    }

    /// Tells containers of a slice. One that they cannot be told of is a slice all the same, and it is said why.
    pub(crate) fn tell(&self, core: &mut Core, slice: &Slice) {
        let Some(containers) = &self.containers else { return };
        if let Err(note) = containers.tell(slice, &self.layout.mount(&slice.name)) {
            tracing::warn!("{note}");
            core.notes.push(note);
        }
    }

    /// Brings a slice into being over its regions; nobody can join it yet.
    pub(crate) fn open(
        &self,
        core: &mut Core,
        slice: &Slice,
        regions: Regions,
    ) -> Result<Arc<Tenancy>, Failure> {
        let deadline = now_unix_ms() + u64::try_from(ENTRY_PATIENCE.as_millis()).unwrap_or(u64::MAX);
        let parts = core.contexts.with_reserve(&slice.parts);
        let tenancy = Arc::new(Tenancy::new(
            slice.name.clone(),
            &self.layout.slice(&slice.name),
            regions,
            &parts,
            deadline,
        ));
        self.governor.admit(slice, &tenancy).map_err(|cause| Failure::regions(&slice.name, cause))?;
        self.tally.slice_began(&slice.name);
        let usage = self.layout.slice(&slice.name).join(regions::USAGE);
        if let Some(Err(error)) = self.girth.as_ref().map(|girth| girth.watch(&tenancy, &usage)) {
            tracing::warn!(slice = %slice.name, %error, "its usage file is looked at only once a second");
        }
        core.live.insert(slice.name.clone(), Arc::clone(&tenancy));
        Ok(tenancy)
    }

    /// Opens a slice's sockets: whoever belongs there can join. Containers come to slices that stay, and come back to
    /// those where they were.
    pub(crate) fn listen(self: &Arc<Self>, tenancy: &Arc<Tenancy>, ephemeral: bool) -> Result<(), Failure> {
        let mut ways = vec![(Way::Descent, self.layout.open_attach(&tenancy.name)?)];
        if !ephemeral || tenancy.container().is_some() {
            ways.push((Way::Container, self.layout.open_mount(&tenancy.name)?));
        }
        ways.into_iter()
            .try_for_each(|(way, listener)| attach::listen(self, tenancy, way, listener))
            .map_err(|cause| Failure::regions(&tenancy.name, cause))
    }

    /// Makes as if a slice had never been.
    fn forget(&self, core: &mut Core, name: &SliceName) {
        self.governor.leave(name);
        if let Some(tenancy) = core.live.remove(name) {
            self.tally.slice_ended(name, tenancy.refusals());
            tenancy.close();
        }
        let _ = core.node.delete(name);
        if let Some(containers) = &self.containers {
            containers.forget(name);
        }
        let note = containers::untold(name);
        core.notes.retain(|known| !known.starts_with(&note));
        self.remove_directories(name);
    }

    /// Removes what is on disk of a slice.
    pub(crate) fn remove_directories(&self, name: &SliceName) {
        for path in [self.layout.mount(name), self.layout.slice(name)] {
            match fs::remove_dir_all(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(slice = %name, path = %path.display(), %error, "cannot remove its directory");
                }
                _ => {}
            }
        }
    }

    // Changing

    /// Changes a slice's size where it is.
    pub(crate) fn resize(&self, name: &SliceName, resize: Resize, caller: &Caller) -> Result<(), Failure> {
        let mut core = self.core();
        for verb in verbs(resize) {
            self.permit(&core, name, caller, verb)?;
        }
        let before = core.node.clone();
        let slice = core.node.resize(name, resize)?.clone();
        if let Err(failure) = core.save(&self.layout) {
            core.node = before;
            return Err(failure);
        }
        self.governor.change(&slice);
        let parts = core.contexts.with_reserve(&slice.parts);
        let tenancy = core.live.get(name).cloned();
        drop(core);
        if let Some(tenancy) = tenancy {
            tenancy.set_limits(&parts);
            self.note_excess(&tenancy);
        }
        changed(&resize, &slice).into_iter().for_each(|happening| self.events.record(happening));
        self.room_appeared();
        Ok(())
    }

    /// Says whom a slice is for.
    pub(crate) fn label(
        &self,
        name: &SliceName,
        pod: Option<PodContainer>,
        caller: &Caller,
    ) -> Result<(), Failure> {
        let mut core = self.core();
        self.permit(&core, name, caller, Verb::Label)?;
        let before = core.node.slice(name)?.pod.clone();
        if !core.node.label(name, pod)? {
            return Ok(());
        }
        if let Err(failure) = core.save(&self.layout) {
            core.node.label(name, before)?;
            return Err(failure);
        }
        self.events.record(labelled(core.node.slice(name)?));
        Ok(())
    }

    /// Keeps what a shrunk slice still holds from being promised to others; says whether it is over its cap.
    pub(crate) fn note_excess(&self, tenancy: &Tenancy) -> bool {
        let over = tenancy.trim();
        let mut core = self.core();
        let news =
            over.iter().filter(|(gpu, excess)| core.node.set_excess(&tenancy.name, *gpu, *excess)).count();
        drop(core);
        if news > 0 {
            self.room_appeared();
        }
        over.iter().any(|(_, excess)| *excess > Bytes::ZERO)
    }

    /// Sets what contexts cost on GPUs, where that became known after the start.
    pub(crate) fn set_contexts(&self, costs: BTreeMap<GpuUuid, Bytes>) {
        let mut core = self.core();
        core.contexts.costs.extend(costs);
        self.publish_contexts(&core);
    }

    /// A process was seen for whose context the driver took that much: from now on as much is charged before
    /// one is made, within reason.
    pub(crate) fn learn_reserve(&self, gpu: GpuUuid, cost: Bytes) {
        let Some(facts) = self.gpus.iter().find(|facts| facts.uuid == gpu) else { return };
        let version = self.facts.as_ref().map_or("", |facts| &facts.driver_version);
        let same = self.gpus.iter().filter(|other| other.name == facts.name).map(|other| other.uuid);
        let model = format!("{version} {}", facts.name);
        let mut core = self.core();
        let Some(reserve) = core.contexts.learn(&self.layout.state, model, same.collect(), cost) else {
            return;
        };
        let about = format!("contexts on {}", facts.name);
        core.notes.retain(|note| !note.starts_with(&about));
        core.notes
            .push(format!("{about} took more than was measured: {reserve} are charged for each from now on"));
        self.publish_contexts(&core);
    }

    fn publish_contexts(&self, core: &Core) {
        for (name, tenancy) in &core.live {
            if let Ok(slice) = core.node.slice(name) {
                tenancy.set_limits(&core.contexts.with_reserve(&slice.parts));
            }
        }
    }

    /// Makes the caller a root of a slice.
    pub(crate) fn enter(self: &Arc<Self>, name: &SliceName, caller: &Caller) -> Result<Slice, Failure> {
        let id = caller.process()?;
        let root = Process::reopen(id).map_err(|_| Failure::CallerGone(id.pid))?;
        let core = self.core();
        self.permit(&core, name, caller, Verb::Enter)?;
        let slice = core.node.slice(name)?.clone();
        let tenancy = core.live.get(name).cloned().ok_or_else(|| Refusal::Unknown(name.clone()))?;
        let root = Arc::new(root);
        if tenancy.enter(&root).map_err(|_| Failure::Ending(name.clone()))? {
            reaper::watch_root(self, &tenancy, root);
        }
        core.save(&self.layout)?;
        Ok(slice)
    }

    /// Keeps the roots on disk, for the next daemon.
    pub(crate) fn save(&self) {
        if let Err(failure) = self.core().save(&self.layout) {
            tracing::error!(%failure, "the state on disk is old");
        }
    }

    /// What is done about a slice that stays over its cap.
    pub(crate) fn over_cap(&self) -> OverCap {
        *self.over_cap.lock().expect("nothing panics while it holds this")
    }

    /// Reads the configuration again and changes what can be changed.
    pub(crate) fn reload(&self) -> Result<Reloaded, Failure> {
        let configured = self.configured.as_ref().ok_or(Failure::NotConfigured)?;
        let reloaded = configured.reload(|config| self.reconfigure(config));
        let Reloaded { applied, needs_restart } = reloaded.as_ref().map_err(|fault| {
            tracing::error!("the configuration stays as it was: {fault}");
            Failure::Misconfigured(fault.clone())
        })?;
        tracing::info!(?applied, ?needs_restart, "read the configuration again");
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
        let stranded = core.stranded.iter().find(|saved| saved.slice.name == *name).map(|saved| &saved.slice);
        let owner = match stranded {
            Some(slice) => slice.owner_uid,
            None => core.node.slice(name)?.owner_uid,
        };
        self.gate.permit_with(caller, verb, name, owner)
    }
}

/// What somebody does who asks for a change: one of them, or both.
fn verbs(resize: Resize) -> impl Iterator<Item = Verb> {
    let freezes = resize.frozen.is_some();
    let resizes = Resize { frozen: None, ..resize } != Resize::default();
    [resizes.then_some(Verb::Resize), freezes.then_some(Verb::Freeze)].into_iter().flatten()
}

impl Core {
    fn is_stranded(&self, name: &SliceName) -> bool {
        self.stranded.iter().any(|saved| saved.slice.name == *name)
    }

    /// Writes the state file.
    pub(crate) fn save(&self, layout: &Layout) -> Result<(), Failure> {
        let served = self.node.slices().iter().filter_map(|(name, slice)| {
            let tenancy = self.live.get(name)?;
            let roots = tenancy.occupants().roots.into_iter().collect();
            Some(SavedSlice { slice: slice.clone(), generation: tenancy.generation, roots })
        });
        let slices = served.chain(self.stranded.iter().cloned()).collect();
        let saved = State::new(self.generation, slices).save(&layout.state);
        Ok(saved.inspect_err(|_| self.tally.unsaved())?)
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

pub(crate) fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
