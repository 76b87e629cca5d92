//! Draining of GPUs: waits until processes end, or deletes slices where the operator requested it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep, timeout};
use tranche_domain::cordon::Cordoned;
use tranche_domain::event::{EventKind, Happening};
use tranche_domain::id::{HostPid, SliceName};
use tranche_domain::view::RemainingView;

use super::Agent;
use super::cordon::user;
use crate::access::Caller;
use crate::failure::RequestFailure;
use crate::gpu_users::GpuUserKind;

/// Pause between two checks.
const CHECK_PERIOD: Duration = Duration::from_millis(200);
/// Longest wait for the driver's list of processes.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the driver to drop processes after their slices were deleted.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Parameters of a drain.
#[derive(Clone, Debug)]
pub(crate) struct Drain {
    /// The GPUs, which have been cordoned.
    pub(crate) gpus: Vec<Cordoned>,
    /// True if slices that can be parked are, before anything else.
    pub(crate) park: bool,
    /// Time for processes to end by themselves; `None` for no limit.
    pub(crate) patience: Option<Duration>,
    /// Time between SIGTERM and the deletion of slices; `None` to delete nothing.
    pub(crate) grace: Option<Duration>,
}

/// Progress of a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) remaining: Vec<RemainingView>,
    pub(crate) parked: Vec<SliceName>,
    pub(crate) deleted: Vec<SliceName>,
}

/// Step of a drain, with its deadline.
enum Stage {
    Waiting(Option<Instant>),
    Terminating(Instant),
    Deleted(Instant),
}

impl Stage {
    fn is_over(&self) -> bool {
        let (Self::Waiting(Some(until)) | Self::Terminating(until) | Self::Deleted(until)) = self else {
            return false;
        };
        Instant::now() >= *until
    }
}

impl Agent {
    /// Waits until no process is left on the GPUs, sending each change. Dropping the future stops the drain.
    pub(crate) async fn drain(
        self: &Arc<Self>,
        drain: &Drain,
        caller: &Caller,
        sender: &Sender<Result<Progress, RequestFailure>>,
    ) -> Result<(), RequestFailure> {
        let parked = if drain.park { self.park_all(drain, caller).await? } else { Vec::new() };
        let begun = Instant::now();
        // An unlimited time may overflow the clock.
        let mut stage = Stage::Waiting(drain.patience.and_then(|patience| begun.checked_add(patience)));
        let (mut last_sent, mut deleted) = (None, Vec::new());
        loop {
            let remaining = self.remaining(&drain.gpus).await?;
            let progress = Progress { remaining, parked: parked.clone(), deleted: deleted.clone() };
            if last_sent.as_ref() != Some(&progress) {
                // Without a receiver, this future is dropped at the next await.
                let _ = sender.send(Ok(progress.clone())).await;
            }
            if progress.remaining.is_empty() {
                return self.drained(drain, caller);
            }
            if stage.is_over() {
                let slices = slices_of(&progress.remaining);
                stage = match (stage, drain.grace) {
                    (Stage::Waiting(_), Some(grace)) => self.terminate_each(slices, grace).await?,
                    (Stage::Terminating(_), _) => {
                        deleted.extend(self.delete_all(slices, caller).await);
                        Stage::Deleted(Instant::now() + RELEASE_TIMEOUT)
                    }
                    _ => return Err(not_drained(progress.remaining, begun.elapsed(), drain)),
                };
            }
            last_sent = Some(progress);
            sleep(CHECK_PERIOD).await;
        }
    }

    /// Completes the drain, unless a GPU was uncordoned meanwhile: then slices may be placed there again.
    fn drained(&self, drain: &Drain, caller: &Caller) -> Result<(), RequestFailure> {
        let core = self.core();
        let open = drain.gpus.iter().find(|gpu| !core.node.cordons().contains_key(&gpu.uuid));
        if let Some(gpu) = open {
            return Err(RequestFailure::UncordonedMeanwhile(gpu.index));
        }
        drop(core);
        for gpu in &drain.gpus {
            let evidence = format!(
                "GPU {}: drained by {}; no slice or process is left there",
                gpu.index,
                user(caller.uid)
            );
            self.telemetry.events.record(
                Happening::new(EventKind::GpuDrained, evidence).on(gpu.uuid).asked_by(caller.actor()),
            );
        }
        Ok(())
    }

    async fn remaining(self: &Arc<Self>, gpus: &[Cordoned]) -> Result<Vec<RemainingView>, RequestFailure> {
        let (agent, gpus) = (Arc::clone(self), gpus.to_vec());
        let look = tokio::task::spawn_blocking(move || {
            gpus.iter().flat_map(|gpu| remaining_on(&agent, gpu)).collect()
        });
        timeout(DRIVER_TIMEOUT, look)
            .await
            .map_err(|_| RequestFailure::DriverSilent(DRIVER_TIMEOUT))?
            .map_err(RequestFailure::from)
    }

    /// Parks every slice on the GPUs that can be; returns their names.
    async fn park_all(
        self: &Arc<Self>,
        drain: &Drain,
        caller: &Caller,
    ) -> Result<Vec<SliceName>, RequestFailure> {
        let mut parked = Vec::new();
        for name in slices_of(&self.remaining(&drain.gpus).await?) {
            let (agent, of, by) = (Arc::clone(self), name.clone(), caller.clone());
            match tokio::task::spawn_blocking(move || agent.park(&of, &by)).await? {
                Ok(()) => parked.push(name),
                Err(failure) => {
                    let told = Happening::new(EventKind::ParkFailed, failure.to_string()).of(&name);
                    self.telemetry.events.record(told.asked_by(caller.actor()));
                }
            }
        }
        Ok(parked)
    }

    async fn terminate_each(
        self: &Arc<Self>,
        slices: BTreeSet<SliceName>,
        grace: Duration,
    ) -> Result<Stage, RequestFailure> {
        let agent = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            for name in slices {
                let runtime = agent.core().live.get(&name).cloned();
                let terminated = runtime.map(|runtime| agent.terminate(&runtime)).unwrap_or_default();
                tracing::info!(slice = %name, asked = ?terminated, "its GPU is drained: its processes were sent SIGTERM");
            }
        })
        .await?;
        Ok(Stage::Terminating(Instant::now() + grace))
    }

    async fn delete_all(self: &Arc<Self>, slices: BTreeSet<SliceName>, caller: &Caller) -> Vec<SliceName> {
        let mut deleted = Vec::new();
        for name in slices {
            match self.delete(&name, true, caller).await {
                Ok(_) => deleted.push(name),
                Err(failure) => tracing::warn!(slice = %name, %failure, "its GPU is drained"),
            }
        }
        deleted
    }
}

/// Queries the driver, and so may block.
fn remaining_on(agent: &Agent, gpu: &Cordoned) -> Vec<RemainingView> {
    let named = |slice, pids| RemainingView { gpu_index: gpu.index, gpu_uuid: gpu.uuid, slice, pids };
    let core = agent.core();
    let of = |name: &SliceName| {
        core.live.get(name).map(|runtime| runtime.occupants().pids().into_iter().collect())
    };
    let slices = core.node.slices_on(gpu.uuid);
    let mut there: Vec<_> =
        slices.map(|name| named(Some(name.clone()), of(name).unwrap_or_default())).collect();
    let users = core.gpu_users();
    drop(core);
    let members: BTreeSet<HostPid> =
        agent.runtimes().iter().flat_map(|runtime| runtime.occupants().pids()).collect();
    // A GPU that does not answer counts as unused.
    let processes = agent.driver.processes(gpu.uuid).unwrap_or_default();
    let mut foreign = Vec::new();
    for pid in processes.into_iter().map(|process| process.pid).filter(|pid| !members.contains(pid)) {
        let slice = match users.classify(gpu.uuid, pid) {
            GpuUserKind::Unattached(slice) => Some(slice),
            GpuUserKind::Member | GpuUserKind::Foreign => None,
        };
        let its = there.iter_mut().find(|view| slice.is_some() && view.slice == slice);
        its.map_or(&mut foreign, |view| &mut view.pids).push(pid);
    }
    there.extend((!foreign.is_empty()).then(|| named(None, foreign)));
    there
}

fn slices_of(remaining: &[RemainingView]) -> BTreeSet<SliceName> {
    remaining.iter().filter_map(|view| view.slice.clone()).collect()
}

fn not_drained(remaining: Vec<RemainingView>, waited: Duration, drain: &Drain) -> RequestFailure {
    let only_foreign = remaining.iter().all(|view| view.slice.is_none());
    let remedy = match drain.grace {
        _ if only_foreign => "no process outside slices is ended by tranched: end them yourself",
        None => "end them, wait for longer (--timeout), or have their slices deleted (--delete-slices)",
        Some(_) => "the daemon's log says why they could not be ended",
    };
    RequestFailure::NotDrained { remaining, waited, remedy }
}
