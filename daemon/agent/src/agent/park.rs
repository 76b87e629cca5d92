//! Parking of slices, and their return.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use tranche_domain::access::Verb;
use tranche_domain::event::{EventCause, EventKind, Happening, Instigator};
use tranche_domain::id::{GpuUuid, HostPid, SliceName};
use tranche_domain::node::Refusal;
use tranche_domain::park::{Park, ParkStage};
use tranche_domain::slice::Slice;
use tranche_domain::units::Bytes;
use tranche_linux::clock::now_unix_ms;
use tranche_linux::process::Process;
use tranche_parkworker::WorkerError;
use tranche_shm::crash::point;
use tranche_slices::slice_runtime::{Candidate, SliceRuntime};

use super::{Agent, Core};
use crate::access::Caller;
use crate::audit;
use crate::failure::{RequestFailure, Requested};
use crate::parking::{self, MOVE_LOOK, MOVE_PATIENCE, Moving, ParkFailure, SlicePassage};

/// Processes with the memory that each may hold.
pub(super) type Loads = Vec<(Arc<Process>, Bytes)>;

impl Agent {
    /// Moves the device memory of a slice to host memory, and frees its part of the GPUs. Blocks until that is done;
    /// a failure leaves the slice on its GPUs.
    pub(crate) fn park(&self, name: &SliceName, caller: &Caller, cause: Option<EventCause>) -> Requested<()> {
        self.permit(&self.core(), name, caller, Verb::Park)?;
        self.refuse_job(name)?;
        let moving = self.parking.begin(name)?;
        self.can_checkpoint(name)?;
        let by = Instigator { actor: Some(caller.actor()), cause };
        self.park_begun(&moving, by.clone(), false).map(|bytes| self.tell_parked(name, by, bytes))
    }

    /// Makes a request on another thread, again while another moves its slice, up to [`MOVE_PATIENCE`].
    ///
    /// The daemon too moves slices, as for a moment after its start. No thread waits meanwhile, and each try checks all
    /// anew. A caller that goes away interrupts no try.
    pub(crate) async fn once_free(
        self: &Arc<Self>,
        request: impl Fn(&Self) -> Requested<()> + Send + Sync + 'static,
    ) -> Requested<()> {
        let (until, request) = (Instant::now() + MOVE_PATIENCE, Arc::new(request));
        loop {
            let (agent, again) = (Arc::clone(self), Arc::clone(&request));
            match tokio::task::spawn_blocking(move || again(&agent)).await? {
                Err(RequestFailure::Park(ParkFailure::InProgress(_))) if Instant::now() < until => {
                    tokio::time::sleep(MOVE_LOOK).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// The quota scheduler decides about the slices of jobs.
    fn refuse_job(&self, name: &SliceName) -> Result<(), Refusal> {
        match self.core().node.slice(name)?.job {
            Some(_) => Err(Refusal::ParkOfJob(name.clone())),
            None => Ok(()),
        }
    }

    pub(super) fn bring_back(&self, name: &SliceName) -> Requested<()> {
        let runtime = self.commit_again(name)?;
        self.return_to_gpus(&runtime)
    }

    /// Records that a slice was parked.
    pub(super) fn tell_parked(&self, name: &SliceName, by: Instigator, bytes: Bytes) {
        let evidence = format!("{bytes} lie in host memory, and its part of its GPUs is free");
        let parked = Happening::new(EventKind::SliceParked, evidence).of(name);
        self.telemetry.record(parked.due_to(by));
    }

    /// Parks a slice that is reserved for it. Returns the bytes in host memory; records a failure alone.
    pub(super) fn park_begun(&self, moving: &Moving<'_>, by: Instigator, wakes: bool) -> Requested<Bytes> {
        let intended = self.intend(moving.slice(), wakes)?;
        self.park_intended(intended, by)
    }

    /// Parks a slice that is recorded as about to be. Returns the bytes in host memory.
    pub(super) fn park_intended(
        &self,
        (runtime, loads): (Arc<SliceRuntime>, Loads),
        by: Instigator,
    ) -> Requested<Bytes> {
        let name = &runtime.name;
        let parked = self.leave(&runtime, loads);
        match parked {
            Ok(bytes) => {
                self.notify_capacity();
                Ok(bytes)
            }
            Err(failure) => {
                let told = Happening::new(EventKind::ParkFailed, failure.to_string()).of(name);
                self.telemetry.record(told.due_to(by));
                self.return_to_gpus(&runtime)?;
                Err(failure)
            }
        }
    }

    /// Refuses to park with a driver that the configuration names.
    pub(super) fn refuse_driver(&self) -> Result<(), ParkFailure> {
        self.facts.as_ref().map_or(Ok(()), |facts| self.parking.refuse_driver(&facts.driver_version))
    }

    /// Checks that the driver may park, has the calls and returns a state for each process of a slice.
    ///
    /// False if none has initialised the driver.
    pub(super) fn can_checkpoint(&self, name: &SliceName) -> Requested<bool> {
        let runtime = self.core().live.get(name).cloned().ok_or_else(|| Refusal::Unknown(name.clone()))?;
        self.refuse_driver()?;
        let candidates = runtime.candidates().map_err(|why| ParkFailure::Unparkable(name.clone(), why))?;
        let worker = self.parking.worker()?;
        let checked =
            SlicePassage::of(&worker, &loads(&candidates)).initialized().map(|found| !found.is_empty());
        Ok(checked.map_err(|(pid, cause)| ParkFailure::NotParked { name: name.clone(), pid, cause })?)
    }

    /// Checks that a slice can be parked, and records that it is about to be.
    pub(super) fn intend(&self, name: &SliceName, wakes: bool) -> Requested<(Arc<SliceRuntime>, Loads)> {
        let mut core = self.core();
        self.refuse_other_version(&core, name)?;
        core.node.slice(name)?;
        let runtime = core.live.get(name).cloned().ok_or_else(|| Refusal::Unknown(name.clone()))?;
        // What is granted and not used is not in the GPU: it needs no host memory, and is not to be used now.
        runtime.hold_requests(true);
        runtime.recall_unused();
        let recorded = self.record_intention(&mut core, &runtime, wakes);
        if recorded.is_err() {
            runtime.hold_requests(core.node.slice(name)?.parked.is_some());
        }
        let loads = recorded?;
        point("park: intended");
        self.hold(&core, &runtime, true);
        drop(core);
        Ok((runtime, loads))
    }

    /// Records that a slice is about to be parked, where its processes and host memory allow it.
    fn record_intention(&self, core: &mut Core, runtime: &SliceRuntime, wakes: bool) -> Requested<Loads> {
        let name = &runtime.name;
        let candidates = runtime.candidates().map_err(|why| ParkFailure::Unparkable(name.clone(), why))?;
        let loads = loads(&candidates);
        let needs: Vec<(HostPid, Bytes)> =
            loads.iter().map(|(process, bytes)| (process.id.pid, *bytes)).collect();
        let needed = needs.iter().map(|(_, bytes)| *bytes).sum();
        // The operator's word comes before what the node has.
        core.node.begin_parking(name, needed, self.parking.terms().budget, now_unix_ms(), wakes)?;
        let recorded = match parking::check(&needs) {
            Ok(()) => core.save(),
            Err(host) => {
                let (free, place) = (host.free, host.place);
                Err(ParkFailure::NoHostMemory { name: name.clone(), needed, free, place }.into())
            }
        };
        if recorded.is_err() {
            core.node.withdraw_parking(name)?;
        }
        recorded.map(|()| loads)
    }

    /// Holds launches and requests for memory of a slice that is not on its GPUs, or releases them.
    fn hold(&self, core: &Core, runtime: &SliceRuntime, hold: bool) {
        runtime.hold_requests(hold);
        if let Ok(slice) = core.node.slice(&runtime.name) {
            self.governor.show_presence(slice, runtime);
            self.governor.change(slice);
        }
    }

    /// Checkpoints the processes of a slice, and frees its part of the GPUs. Returns the bytes in host memory.
    fn leave(&self, runtime: &Arc<SliceRuntime>, loads: Loads) -> Requested<Bytes> {
        let name = &runtime.name;
        let worker = self.parking.worker()?;
        let failed = |(pid, cause): (HostPid, WorkerError)| {
            if matches!(cause, WorkerError::Gone(_) | WorkerError::Busy) {
                self.parking.discard_worker();
            }
            ParkFailure::NotParked { name: name.clone(), pid, cause }
        };
        let (present, absent): (Loads, Loads) = {
            let initialized: BTreeSet<HostPid> = SlicePassage::of(&worker, &loads)
                .initialized()
                .map_err(failed)?
                .iter()
                .map(|(process, _)| process.id.pid)
                .collect();
            loads.into_iter().partition(|(process, _)| initialized.contains(&process.id.pid))
        };
        // Its credit would let it use a GPU while the slice is away.
        if let Some((process, _)) = absent.iter().find(|(_, bytes)| *bytes > Bytes::ZERO) {
            return Err(ParkFailure::Starting { name: name.clone(), pid: process.id.pid }.into());
        }
        let passage = SlicePassage::of(&worker, &present);
        passage.lock().map_err(failed)?;
        // A call that was under way may have changed what can be checkpointed.
        let again = runtime.candidates().map_err(|why| ParkFailure::Unparkable(name.clone(), why))?;
        let known: BTreeSet<HostPid> = present.iter().map(|(process, _)| process.id.pid).collect();
        let newcomer = again
            .iter()
            .find(|candidate| candidate.granted > Bytes::ZERO && !known.contains(&candidate.member.id.pid));
        if let Some(newcomer) = newcomer {
            return Err(ParkFailure::Starting { name: name.clone(), pid: newcomer.member.id.pid }.into());
        }
        passage.checkpoint().map_err(failed)?;
        audit::wait_until_unlisted(self, runtime)?;
        let mut core = self.core();
        let before = core.node.clone();
        core.node.finish_parking(name)?;
        if let Err(failure) = core.save() {
            core.node = before;
            return Err(failure);
        }
        point("park: parked");
        Ok(present.iter().map(|(_, bytes)| *bytes).sum())
    }

    /// Brings a parked slice back to its GPUs. Blocks until that is done; without room nothing changes.
    pub(crate) fn unpark(&self, name: &SliceName, caller: &Caller) -> Requested<()> {
        self.permit(&self.core(), name, caller, Verb::Park)?;
        self.refuse_job(name)?;
        let _moving = self.parking.begin(name)?;
        self.bring_back(name)?;
        let unparked = Happening::new(EventKind::SliceUnparked, "it is on its GPUs again").of(name);
        self.telemetry.record(unparked.asked_by(caller.actor()));
        Ok(())
    }

    /// Commits a parked slice's part of its GPUs again. One that is on its way already has it.
    fn commit_again(&self, name: &SliceName) -> Requested<Arc<SliceRuntime>> {
        // Queried before: the driver may not answer while the core is held.
        let parts = self.core().node.slice(name)?.parts.clone();
        let free: Vec<Bytes> = parts.iter().map(|part| self.free_by_driver(part.gpu)).collect();
        let mut core = self.core();
        self.refuse_other_version(&core, name)?;
        let slice = core.node.slice(name)?.clone();
        let runtime = core.live.get(name).cloned().ok_or_else(|| Refusal::Unknown(name.clone()))?;
        if slice.parked.is_some_and(|park| park.stage != ParkStage::Parked) {
            return Ok(runtime);
        }
        let before = core.node.clone();
        core.node.begin_unparking(name)?;
        let committed = self.check_free(&slice, &runtime, &free).and_then(|()| core.save());
        if let Err(failure) = committed {
            core.node = before;
            return Err(failure);
        }
        point("unpark: committed");
        Ok(runtime)
    }

    /// Checks that as much memory is free on each GPU as the processes of a slice had there.
    ///
    /// A restore without room fails for good.
    fn check_free(&self, slice: &Slice, runtime: &SliceRuntime, free: &[Bytes]) -> Requested<()> {
        for ((part, needed), free) in slice.parts.iter().zip(runtime.granted()).zip(free) {
            if *free < needed {
                let facts = self.gpus.iter().find(|facts| facts.uuid == part.gpu);
                let (name, index) = (slice.name.clone(), facts.map_or(0, |facts| facts.index));
                return Err(ParkFailure::Occupied { name, index, needed, free: *free }.into());
            }
        }
        Ok(())
    }

    /// Memory of a GPU that the driver shows as free; none if it does not answer. May block.
    fn free_by_driver(&self, gpu: GpuUuid) -> Bytes {
        let facts = self.gpus.iter().find(|facts| facts.uuid == gpu);
        let state = facts.and_then(|facts| Some((facts, self.driver.state(gpu).ok()?)));
        state.map_or(Bytes::ZERO, |(facts, state)| facts.capacity().saturating_sub(state.used))
    }

    /// Restores what is checkpointed, ends what cannot be restored, and releases launches and requests. Its part of the GPUs is
    /// committed to it.
    fn return_to_gpus(&self, runtime: &Arc<SliceRuntime>) -> Requested<()> {
        let name = &runtime.name;
        let granted = runtime.granted().into_iter().sum();
        let loads: Loads = runtime.attached().into_iter().map(|(_, process)| (process, granted)).collect();
        let lost = if loads.is_empty() {
            Vec::new()
        } else {
            let worker = self.parking.worker()?;
            SlicePassage::of(&worker, &loads).bring_back().map_err(|(pid, cause)| {
                if matches!(cause, WorkerError::Gone(_) | WorkerError::Busy) {
                    self.parking.discard_worker();
                }
                ParkFailure::NotBack { name: name.clone(), pid, cause }
            })?
        };
        for (pid, cause) in &lost {
            let process = loads.iter().find(|(process, _)| process.id.pid == *pid);
            let killed = process.map(|(process, _)| process.kill());
            let evidence = format!(
                "the driver could not restore it ({cause}); killed: {}",
                matches!(killed, Some(Ok(())))
            );
            let killed = Happening::new(EventKind::Killed, evidence).of(name).by(*pid);
            self.telemetry.record(killed.caused_by(EventCause::NotRestored));
        }
        let mut core = self.core();
        core.node.finish_unparking(name)?;
        // Its idleness begins anew.
        self.idleness.begin(name, core.node.slice(name)?.created_unix_ms);
        self.hold(&core, runtime, false);
        core.save()?;
        drop(core);
        point("unpark: back");
        let pids = lost.iter().map(|(pid, _)| *pid).collect();
        match lost.into_iter().next() {
            None => Ok(()),
            Some((_, cause)) => Err(ParkFailure::Lost { name: name.clone(), pids, cause }.into()),
        }
    }

    /// Brings slices back that an earlier daemon left on their way, and processes that it did not end.
    pub(crate) fn finish_passages(&self) {
        let left: Vec<(Arc<SliceRuntime>, Option<Park>)> = {
            let core = self.core();
            let left =
                core.node.slices().values().filter(|slice| slice.may_be_restored() && !slice.is_away());
            let left = left.filter_map(|slice| Some((core.live.get(&slice.name).cloned()?, slice.parked)));
            left.collect()
        };
        for (runtime, park) in left {
            let Ok(_moving) = self.parking.begin(&runtime.name) else { continue };
            if park.is_none() {
                self.bring_back_spared(&runtime);
                continue;
            }
            let happening = match self.return_to_gpus(&runtime) {
                Ok(()) => Happening::new(EventKind::SliceUnparked, "an earlier daemon left it on its way"),
                Err(failure) => Happening::new(EventKind::ParkFailed, failure.to_string()),
            };
            self.telemetry.record(happening.of(&runtime.name).caused_by(EventCause::Restart));
        }
    }
}

pub(super) fn loads(candidates: &[Candidate]) -> Loads {
    let load = |candidate: &Candidate| (Arc::clone(&candidate.process), candidate.granted);
    candidates.iter().map(load).collect()
}
