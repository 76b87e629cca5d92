//! Creation of slices, and removal of their files.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tranche_domain::event::Actor;
use tranche_domain::id::{GpuSelector, SliceName};
use tranche_domain::jobs::MemberId;
use tranche_domain::node::{KeptGpus, Origin, Refusal};
use tranche_domain::request::SliceRequest;
use tranche_domain::slice::Slice;
use tranche_shm::crash::point;

use super::notices::created;
use super::{Agent, Core};
use crate::access::{Caller, actor_of};
use crate::failure::{RequestFailure, Requested};
use crate::queue::QueueTicket;
use tranche_linux::clock::{monotonic_ms, now_unix_ms};
use tranche_linux::privileges;
use tranche_slices::attach;
use tranche_slices::regions::{self, Regions};
use tranche_slices::slice_runtime::{SliceRuntime, Way};
use tranche_telemetry::conditions::{ConditionKind as Condition, ConditionSubject};

/// Time within which the creator of an ephemeral slice has to enter it.
pub(crate) const ENTRY_PATIENCE: Duration = Duration::from_secs(10);

/// A slice that is served, and not yet on disk.
struct NewSlice {
    slice: Slice,
    runtime: Arc<SliceRuntime>,
    /// Number of the first snapshot that has it.
    snapshot: u64,
}

impl Agent {
    /// Creates a slice; on failure nothing has changed. Blocks until it is on disk.
    pub(crate) fn create(self: &Arc<Self>, request: &SliceRequest, caller: &Caller) -> Requested<Slice> {
        let actor = caller.actor();
        let new = self.create_in(&mut self.core(), request, caller)?;
        self.complete(new, actor)
    }

    /// Creates the slice of a request that waits, which then leaves the queue. Where the quota scheduler granted it GPUs,
    /// these are kept from other slices and taken.
    pub(crate) fn create_waiting(
        self: &Arc<Self>,
        request: &SliceRequest,
        caller: &Caller,
        ticket: QueueTicket,
    ) -> Requested<Slice> {
        let actor = caller.actor();
        let mut core = self.core();
        let created = match core.waiting.granted(ticket) {
            None => self.create_in(&mut core, request, caller),
            Some(gpus) => {
                let gpus = gpus.into_iter().map(GpuSelector::Uuid).collect();
                core.node.set_kept(KeptGpus::default());
                let request = SliceRequest { gpus, ..request.clone() };
                let created = self.create_in(&mut core, &request, caller);
                let kept = core.claims.kept.clone();
                core.node.set_kept(kept);
                core.waiting.withhold(ticket);
                created
            }
        };
        if created.is_ok() {
            // In the same step, so that the quota scheduler never sees both the request and its slice.
            core.waiting.leave(ticket);
        }
        drop(core);
        self.complete(created?, actor)
    }

    fn create_in(
        self: &Arc<Self>,
        core: &mut Core,
        request: &SliceRequest,
        caller: &Caller,
    ) -> Requested<NewSlice> {
        let uid = caller.uid;
        let has = core.node.slices().values().filter(|slice| slice.owner_uid == uid).count();
        self.gate.permit_another_slice(caller, has)?;
        let project = core.claims.project_for(caller.requester(), request.project.as_ref())?;
        let request = &SliceRequest { project, ..request.clone() };
        self.make(core, request, Origin { uid, now_unix_ms: now_unix_ms(), job: None })
    }

    /// Creates a slice for a member of a job, which the job's quota has authorized.
    pub(crate) fn create_for(
        self: &Arc<Self>,
        request: &SliceRequest,
        uid: u32,
        job: MemberId,
    ) -> Requested<Slice> {
        let origin = Origin { uid, now_unix_ms: now_unix_ms(), job: Some(job) };
        let new = self.make(&mut self.core(), request, origin)?;
        self.complete(new, actor_of(uid))
    }

    fn make(
        self: &Arc<Self>,
        core: &mut Core,
        request: &SliceRequest,
        origin: Origin,
    ) -> Requested<NewSlice> {
        if let Some(name) = request.name.as_ref().filter(|name| core.is_stranded(name)) {
            return Err(Refusal::Exists(name.clone()).into());
        }
        if request.rotates || request.park_idle.is_some() {
            self.refuse_driver()?;
        }
        let slice = core.node.create(request, origin)?.clone();
        match self.serve_new(core, &slice) {
            Ok(runtime) => {
                self.idleness.begin(&slice.name, slice.created_unix_ms);
                Ok(NewSlice { slice, runtime, snapshot: core.next_snapshot() })
            }
            Err(failure) => {
                self.forget(core, &slice.name);
                Err(failure)
            }
        }
    }

    fn serve_new(self: &Arc<Self>, core: &mut Core, slice: &Slice) -> Requested<Arc<SliceRuntime>> {
        core.generation += 1;
        point("create: promised");
        let directory = self.layout.make_slice(&slice.name)?;
        let regions = Regions::create(&directory, core.generation, slice.parts.len(), self.seals_regions)
            .map_err(|cause| RequestFailure::regions(&slice.name, cause))?;
        let runtime = self.open(core, slice, regions)?;
        point("create: opened");
        self.listen(&runtime, slice.ephemeral)?;
        point("create: listening");
        Ok(runtime)
    }

    /// Completes a creation once the slice is on disk; on failure it is undone. No lock of the core may be held.
    fn complete(self: &Arc<Self>, new: NewSlice, actor: Actor) -> Requested<Slice> {
        let NewSlice { slice, runtime, snapshot } = new;
        let recorded = self.record(snapshot);
        let mut core = self.core();
        // It may have been deleted meanwhile.
        let is_there = core.live.get(&slice.name).is_some_and(|live| Arc::ptr_eq(live, &runtime));
        match recorded {
            Ok(()) => {
                point("create: recorded");
                if is_there {
                    self.write_document(&slice);
                }
                point("create: told");
                drop(core);
                self.telemetry.record(created(&slice).asked_by(actor));
                self.demand_changed();
                Ok(slice)
            }
            Err(failure) => {
                if is_there {
                    self.forget(&mut core, &slice.name);
                }
                Err(failure)
            }
        }
    }

    /// Writes a slice's document for containers. A failure is a condition, and the slice is served without it.
    pub(crate) fn write_document(&self, slice: &Slice) {
        let (conditions, subject) = (&self.telemetry.conditions, ConditionSubject::Slice(slice.name.clone()));
        match self.containers.write(slice) {
            Ok(()) => conditions.clear(Condition::NotInContainers, subject),
            Err(message) => conditions.set(Condition::NotInContainers, subject, message),
        }
    }

    /// Creates a slice's runtime over its regions, without sockets.
    pub(crate) fn open(
        &self,
        core: &mut Core,
        slice: &Slice,
        regions: Regions,
    ) -> Requested<Arc<SliceRuntime>> {
        let deadline = monotonic_ms() + u64::try_from(ENTRY_PATIENCE.as_millis()).unwrap_or(u64::MAX);
        let parts = core.contexts.with_reserve(&slice.parts);
        let worker = self.workers.start(&slice.name);
        let runtime = Arc::new(SliceRuntime::new(
            slice.name.clone(),
            worker.map_err(|cause| RequestFailure::regions(&slice.name, cause))?,
            &self.layout.slice(&slice.name),
            regions,
            &parts,
            slice.several_containers,
            deadline,
        ));
        runtime.hold_requests(slice.parked.is_some());
        self.governor.admit(slice, &runtime).map_err(|cause| RequestFailure::regions(&slice.name, cause))?;
        self.telemetry.counters.slice_began(&slice.name);
        let usage = self.layout.slice(&slice.name).join(regions::USAGE);
        // Sealed memory needs no guard.
        let guard = self.usage_guard.as_ref().filter(|_| !usage.is_symlink());
        if let Some(Err(error)) = guard.map(|guard| guard.watch(&runtime, &usage)) {
            tracing::warn!(slice = %slice.name, %error, "its usage file is looked at only once a second");
        }
        core.live.insert(slice.name.clone(), Arc::clone(&runtime));
        Ok(runtime)
    }

    /// Opens a slice's sockets. The one for containers exists for persistent slices, and for slices that a container
    /// used before.
    pub(crate) fn listen(self: &Arc<Self>, runtime: &Arc<SliceRuntime>, ephemeral: bool) -> Requested<()> {
        let mut ways = vec![(Way::Descent, self.layout.open_attach(&runtime.name)?)];
        if !ephemeral || !runtime.containers().is_empty() {
            ways.push((Way::Container, self.containers.listen(&runtime.name)?));
        }
        ways.into_iter()
            .try_for_each(|(way, listener)| attach::listen(&self.reaper, runtime, way, listener))
            .map_err(|cause| RequestFailure::regions(&runtime.name, cause))
    }

    /// Undoes the creation of a slice, or removes one that ended.
    pub(super) fn forget(&self, core: &mut Core, name: &SliceName) {
        self.governor.leave(name);
        if let Some(runtime) = core.live.remove(name) {
            self.telemetry.counters.slice_ended(name, runtime.refusals());
            runtime.close();
            privileges::dismiss_slice(runtime.generation);
            runtime.regions.clear(&self.layout.slice(name));
        }
        let _ = core.node.delete(name);
        let of_live_slices = [Condition::NotInContainers, Condition::ContextCostRaised];
        self.telemetry.conditions.clear_of_slice(&of_live_slices, name);
        self.remove_files(name);
    }

    /// Removes a slice's files, including those for containers.
    pub(crate) fn remove_files(&self, name: &SliceName) {
        let path = self.layout.slice(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(slice = %name, path = %path.display(), %error, "cannot remove its directory");
            }
            _ => {}
        }
        self.containers.sweep();
    }
}
