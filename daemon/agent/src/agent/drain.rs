//! Draining of GPUs: waits until processes end, or deletes slices where the operator requested it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep, timeout};
use tranche_domain::cordon::Cordoned;
use tranche_domain::event::{EventCause, EventKind, Happening, Instigator};
use tranche_domain::id::{HostPid, SliceName};
use tranche_domain::view::RemainingView;

use super::Agent;
use super::ending::Farewell;
use crate::access::{Caller, actor_of};
use crate::failure::{RequestFailure, Requested};
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
        sender: &Sender<Requested<Progress>>,
    ) -> Requested<()> {
        let parked = if drain.park { self.park_all(drain, caller).await? } else { Vec::new() };
        let begun = Instant::now();
        // An unlimited time may overflow the clock.
        let mut stage = Stage::Waiting(drain.patience.and_then(|patience| begun.checked_add(patience)));
        let (mut last_sent, mut deleted, mut farewells) = (None, Vec::new(), BTreeMap::new());
        loop {
            let remaining = self.remaining(&drain.gpus).await?;
            let progress = Progress { remaining, parked: parked.clone(), deleted: deleted.clone() };
            if last_sent.as_ref() != Some(&progress) {
                // Without a receiver, this future is dropped at the next await.
                let _ = sender.send(Ok(progress.clone())).await;
            }
            self.record_farewells(&mut farewells, &progress.remaining, caller);
            if progress.remaining.is_empty() {
                return self.drained(drain, caller);
            }
            if stage.is_over() {
                let slices = slices_of(&progress.remaining);
                stage = match (stage, drain.grace) {
                    (Stage::Waiting(_), Some(grace)) => {
                        farewells = self.terminate_each(slices).await?;
                        Stage::Terminating(Instant::now() + grace)
                    }
                    (Stage::Terminating(_), _) => {
                        deleted.extend(self.delete_all(slices, caller, &mut farewells).await);
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
    fn drained(&self, drain: &Drain, caller: &Caller) -> Requested<()> {
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
                actor_of(caller.uid)
            );
            self.telemetry.record(
                Happening::new(EventKind::GpuDrained, evidence).on(gpu.uuid).asked_by(caller.actor()),
            );
        }
        Ok(())
    }

    /// Records the ends of slices that were sent SIGTERM and are not there any more.
    fn record_farewells(&self, farewells: &mut Farewells, remaining: &[RemainingView], caller: &Caller) {
        let there = slices_of(remaining);
        farewells.retain(|name, farewell| {
            let stays = there.contains(name);
            if !stays {
                self.telemetry.record(farewell.happening(name).due_to(by_drain(caller)));
            }
            stays
        });
    }

    async fn remaining(self: &Arc<Self>, gpus: &[Cordoned]) -> Requested<Vec<RemainingView>> {
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
    async fn park_all(self: &Arc<Self>, drain: &Drain, caller: &Caller) -> Requested<Vec<SliceName>> {
        let mut parked = Vec::new();
        for name in slices_of(&self.remaining(&drain.gpus).await?) {
            let (of, by) = (name.clone(), caller.clone());
            match self.once_free(move |agent| agent.park(&of, &by, Some(EventCause::Drain))).await {
                Ok(()) => parked.push(name),
                Err(failure) => {
                    let told = Happening::new(EventKind::ParkFailed, failure.to_string()).of(&name);
                    self.telemetry.record(told.due_to(by_drain(caller)));
                }
            }
        }
        Ok(parked)
    }

    async fn terminate_each(self: &Arc<Self>, slices: BTreeSet<SliceName>) -> Requested<Farewells> {
        let agent = Arc::clone(self);
        let terminated = tokio::task::spawn_blocking(move || {
            let mut farewells = Farewells::new();
            for name in slices {
                let runtime = agent.core().live.get(&name).cloned();
                let asked = runtime.map(|runtime| agent.terminate(&runtime)).unwrap_or_default();
                tracing::info!(slice = %name, ?asked, "its GPU is drained: its processes were sent SIGTERM");
                farewells.insert(name, Farewell { asked, killed: BTreeSet::new() });
            }
            farewells
        });
        Ok(terminated.await?)
    }

    async fn delete_all(
        self: &Arc<Self>,
        slices: BTreeSet<SliceName>,
        caller: &Caller,
        farewells: &mut Farewells,
    ) -> Vec<SliceName> {
        let mut deleted = Vec::new();
        for name in slices {
            match self.delete_by(&name, true, caller, Some(EventCause::Drain)).await {
                Ok(killed) => {
                    farewells.entry(name.clone()).or_default().killed.extend(killed);
                    deleted.push(name);
                }
                Err(failure) => tracing::warn!(slice = %name, %failure, "its GPU is drained"),
            }
        }
        deleted
    }
}

/// Slices whose processes were sent SIGTERM.
type Farewells = BTreeMap<SliceName, Farewell>;

/// The operator of a drain as the origin of what it does.
fn by_drain(caller: &Caller) -> Instigator {
    Instigator::request(caller.actor(), EventCause::Drain)
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
