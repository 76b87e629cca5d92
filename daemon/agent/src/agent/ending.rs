//! Ends of processes that the driver may have restored.
//!
//! On driver 595.71.05 the end of a restored process with a live context took the host down; one that had been
//! checkpointed again ended without harm (NVIDIA/cuda-checkpoint issue 53). Law: what the daemon ends in a slice that has
//! returned to its GPUs is checkpointed before, as far as it can be, and is ended then in any case.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use tranche_domain::event::{EventCause, EventKind, Happening, Instigator};
use tranche_domain::id::{HostPid, SliceName};
use tranche_domain::jobs::{TerminationPolicy, UserSlice};
use tranche_domain::node::Refusal;
use tranche_domain::slice::{ProcessId, Slice};
use tranche_domain::units::Bytes;
use tranche_linux::process::{self, Process};
use tranche_slices::slice_runtime::SliceRuntime;

use super::park::loads;
use super::{Agent, Core};
use crate::attribution::Attribution;
use crate::failure::RequestFailure;
use crate::parking::{self, EndedProcesses, MOVE_PATIENCE, SlicePassage};

/// Passes over the process list when all processes of a slice are killed.
const KILL_PASSES: usize = 8;
/// Longest pause between checks for processes that are left.
const LOOK: Duration = Duration::from_millis(20);
/// Kernel's name of a job runner, of 15 characters at most.
const JOB_RUNNER: &str = "tranche-shepher";

impl Agent {
    /// Checkpoints those processes of a slice that a signal ends, if the driver may have restored them.
    ///
    /// Blocks until that is done. What cannot be checkpointed stays as it is.
    pub(crate) fn prepare_signal(&self, name: &SliceName, signal: Signal) {
        if self.may_be_restored(name) {
            self.take_off(name, |process| !process.outlives(signal));
        }
    }

    /// Sends SIGTERM once to each process of a slice, attached or not, after [`Agent::prepare_signal`]. Blocks.
    ///
    /// The runner of a job gets it for the processes that it has started, which it ends by the job's own terms. Returns all
    /// processes that are to end.
    pub(crate) fn terminate(&self, runtime: &Arc<SliceRuntime>) -> BTreeSet<ProcessId> {
        self.prepare_signal(&runtime.name, Signal::SIGTERM);
        // Before the first of them ends, as its children have other ancestors then.
        let mut all: BTreeSet<ProcessId> =
            Attribution::of(&self.runtimes()).all_of(runtime).into_iter().collect();
        let occupants = runtime.occupants();
        all.extend(occupants.members.into_values().chain(occupants.roots.iter().copied()));
        let is_job = self.core().slice(&runtime.name).is_ok_and(|slice| slice.job.is_some());
        let is_runner = |id: &ProcessId| process::command(id.pid) == JOB_RUNNER;
        let runners: BTreeSet<ProcessId> =
            occupants.roots.into_iter().filter(|id| is_job && is_runner(id)).collect();
        let is_of_runner =
            |id: &ProcessId| process::ancestry(id.pid).skip(1).any(|above| runners.contains(&above));
        let asked: Vec<ProcessId> = all.iter().copied().filter(|id| !is_of_runner(id)).collect();
        for id in asked {
            if let Err(error) = Process::reopen(id).and_then(|process| process.ask_to_end()) {
                tracing::info!(slice = %runtime.name, pid = %id.pid, %error, "a process could not be asked to end");
            }
        }
        all
    }

    /// Kills all processes of a slice, attached or not, which admits none any more; returns their pids. Blocks.
    ///
    /// `tell` is called for each as soon as it is killed: the slice may end with any of them.
    pub(super) fn kill_tree(&self, runtime: &Arc<SliceRuntime>, tell: impl Fn(HostPid)) -> Vec<HostPid> {
        let mut pids = BTreeSet::new();
        let mut killed = |pid| {
            if pids.insert(pid) {
                tell(pid);
            }
        };
        // Roots last: with them the ancestry of the others would end, and no child is overlooked while they live.
        let roots = runtime.occupants().roots;
        self.kill_each(runtime, |id| roots.contains(id), &mut killed);
        runtime.kill_all().into_iter().for_each(killed);
        pids.into_iter().collect()
    }

    /// Kills the processes of a slice that are not spared; `killed` is called for each. Blocks.
    pub(crate) fn kill_each(
        &self,
        runtime: &Arc<SliceRuntime>,
        is_spared: impl Fn(&ProcessId) -> bool,
        mut killed: impl FnMut(HostPid),
    ) {
        // Processes started meanwhile are found by the next pass.
        let mut seen = BTreeSet::new();
        for _ in 0..KILL_PASSES {
            let its = Attribution::of(&self.runtimes()).all_of(runtime);
            let left: Vec<_> = its.into_iter().filter(|id| !is_spared(id) && seen.insert(*id)).collect();
            if left.is_empty() {
                break;
            }
            for id in left {
                match Process::reopen(id).and_then(|process| process.kill()) {
                    Ok(()) => killed(id.pid),
                    Err(error) => {
                        let name = &runtime.name;
                        tracing::info!(slice = %name, pid = %id.pid, %error, "a process of a slice that ends could not be killed");
                    }
                }
            }
        }
    }

    /// Ends a user's slice with its processes, after SIGTERM and the default grace. Returns once it is gone.
    pub(crate) async fn end_user_slice(self: &Arc<Self>, slice: &UserSlice, reason: String) {
        let name = &slice.name;
        let is_here = |core: &Core| {
            let found = core.slice(name).ok();
            found.is_some_and(|found| found.job.is_none() && found.created_unix_ms == slice.created_unix_ms)
        };
        let runtime =
            Some(self.core()).filter(|core| is_here(core)).and_then(|core| core.live.get(name).cloned());
        let preempted = Happening::new(EventKind::SlicePreempted, reason).of(name);
        self.telemetry.record(preempted.caused_by(EventCause::QuotaScheduler));
        let mut farewell = Farewell::default();
        if let Some(runtime) = runtime {
            let (agent, of) = (Arc::clone(self), Arc::clone(&runtime));
            // What it does not do is done with force after the grace.
            farewell.asked =
                tokio::task::spawn_blocking(move || agent.terminate(&of)).await.unwrap_or_default();
            let deadline = tokio::time::Instant::now() + TerminationPolicy::DEFAULT.grace;
            while !runtime.is_deserted() && tokio::time::Instant::now() < deadline {
                // Bounded: a process may leave between the check and the wait.
                let _ = tokio::time::timeout(LOOK, runtime.left.notified()).await;
            }
        }
        // Repeated until all processes have ended, however long the driver takes to release their memory.
        while is_here(&self.core()) {
            match self.end(name, true, Instigator::rule(EventCause::QuotaScheduler)).await {
                Ok(killed) => {
                    farewell.killed.extend(killed);
                    break;
                }
                Err(RequestFailure::Refused(Refusal::Unknown(_))) => break,
                Err(failure) => {
                    tracing::warn!(slice = %name, %failure, "a preempted slice does not end");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
        let drained = farewell.happening(name).caused_by(EventCause::QuotaScheduler);
        self.telemetry.record(drained);
    }

    /// Ends processes of a slice with `end`, on another thread if the driver may have restored them.
    ///
    /// Does nothing and returns false while an earlier end in the slice is under way.
    pub(crate) fn end_processes(
        self: &Arc<Self>,
        name: &SliceName,
        whom: EndedProcesses,
        end: impl FnOnce(&Self) + Send + 'static,
    ) -> bool {
        if !self.may_be_restored(name) {
            end(self);
            return true;
        }
        let Some(ending) = Ending::begin(self, name) else { return false };
        let ends = thread::Builder::new().name("ending".into()).spawn(move || {
            ending.agent.take_off(&ending.name, |process| match &whom {
                EndedProcesses::All => true,
                EndedProcesses::One(id) => process.id == *id,
            });
            end(&ending.agent);
        });
        if let Err(error) = &ends {
            tracing::warn!(slice = %name, %error, "no thread to end its processes; it is tried again");
        }
        ends.is_ok()
    }

    pub(super) fn may_be_restored(&self, name: &SliceName) -> bool {
        self.core().slice(name).is_ok_and(Slice::may_be_restored)
    }

    /// Checkpoints the chosen processes of a slice, as far as they can be.
    fn take_off(&self, name: &SliceName, is_chosen: impl Fn(&Process) -> bool) {
        // It is done in any case.
        let _moving = self.parking.begin_within(name, MOVE_PATIENCE);
        let Some(runtime) = self.core().live.get(name).cloned() else { return };
        let held = runtime.held();
        let of = |id: &ProcessId| held.get(id).into_iter().flatten().copied().sum::<Bytes>();
        let chosen = loads(&runtime.each_candidate()).into_iter().filter(|(process, _)| is_chosen(process));
        let chosen: Vec<_> = chosen.map(|(process, _)| (Arc::clone(&process), of(&process.id))).collect();
        if chosen.is_empty() {
            return;
        }
        let needs: Vec<_> = chosen.iter().map(|(process, bytes)| (process.id.pid, *bytes)).collect();
        if let Err(host) = parking::check(&needs) {
            let (free, place) = (host.free, host.place);
            tracing::warn!(slice = %name, "restored processes end with their contexts: {free} are {place}");
            return;
        }
        let failed = match self.parking.worker() {
            Ok(worker) => SlicePassage::of(&worker, &chosen).take_off(),
            Err(failure) => {
                tracing::warn!(slice = %name, %failure, "restored processes end with their contexts");
                return;
            }
        };
        for (pid, cause) in failed {
            tracing::warn!(slice = %name, %pid, %cause, "a restored process ends with its contexts");
        }
    }

    /// Brings processes back that an earlier daemon had checkpointed and did not end.
    pub(super) fn bring_back_spared(&self, runtime: &SliceRuntime) {
        let name = &runtime.name;
        let granted = runtime.granted().into_iter().sum();
        let all: Vec<_> = runtime.attached().into_iter().map(|(_, process)| (process, granted)).collect();
        if all.is_empty() {
            return;
        }
        let worker = match self.parking.worker() {
            Ok(worker) => worker,
            Err(failure) => {
                tracing::warn!(slice = %name, %failure, "processes may still be blocked that were about to be ended");
                return;
            }
        };
        match SlicePassage::of(&worker, &all).bring_back() {
            Ok(lost) => {
                for (pid, cause) in lost {
                    tracing::warn!(slice = %name, %pid, %cause, "a process that was about to be ended stays blocked");
                }
            }
            Err((pid, cause)) => {
                tracing::warn!(slice = %name, %pid, %cause, "processes may still be blocked that were about to be ended");
            }
        }
    }
}

/// Processes of a slice that is to leave its GPUs: sent SIGTERM, and killed.
#[derive(Clone, Debug, Default)]
pub(super) struct Farewell {
    pub(super) asked: BTreeSet<ProcessId>,
    pub(super) killed: BTreeSet<HostPid>,
}

impl Farewell {
    /// Event for the end of the slice.
    pub(super) fn happening(&self, name: &SliceName) -> Happening {
        let killed = self.killed.len();
        let ended = self.asked.iter().filter(|id| !self.killed.contains(&id.pid)).count();
        let evidence =
            format!("{ended} of its processes ended after SIGTERM, {killed} were killed after the grace");
        Happening::new(EventKind::SliceDrained, evidence).of(name)
    }
}

/// An end under way in a slice; no other begins meanwhile.
struct Ending {
    agent: Arc<Agent>,
    name: SliceName,
}

impl Ending {
    fn begin(agent: &Arc<Agent>, name: &SliceName) -> Option<Self> {
        let is_first = agent.parking.ending().insert(name.clone());
        is_first.then(|| Self { agent: Arc::clone(agent), name: name.clone() })
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.agent.parking.ending().remove(&self.name);
    }
}
