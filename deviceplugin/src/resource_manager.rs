//! Resource manager: serialises all decisions and operations, so that no device is given twice.
//!
//! The daemon's view of the node is authoritative and is read before each decision. Remembered beside it are
//! the GPUs ever observed and the absences of pods.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Notify, watch};
use tokio::time::sleep;
use tonic::{Code, Status};

use crate::allocate::{Outcome, Refusal, Step, Transaction, read, undisturbed};
use crate::bundle::Bundle;
use crate::config::Config;
use crate::device::DeviceId;
use crate::device_states::{DeviceStates, SharedStates};
use crate::health::{Broken, Health, NodeHeadroom};
use crate::metrics::{self, Counters, Published};
use crate::offer::Offer;
use crate::placement::{DoesNotFit, GpuDevice};
use crate::pod_devices::{self, Owners};
use crate::prefer::preferred;
use crate::profile::ProfileName;
use crate::release::Absences;
use crate::state::ManagerState;
use tranche_rpc::{Daemon, DaemonError};

/// Decides about devices, and has the daemon create and end slices.
#[derive(Debug)]
pub(crate) struct ResourceManager {
    pub(crate) config: Config,
    daemon: Daemon,
    since: Instant,
    state: Mutex<ManagerState>,
    pub(crate) counters: Arc<Counters>,
    shown: watch::Sender<SharedStates>,
}

/// Time for the processes of a previous container to end.
const EXIT_GRACE: Duration = Duration::from_secs(3);

/// Reason for which a container's slice is missing.
#[derive(Debug)]
enum RestoreError {
    InUse(Status),
    Other(Status),
}

impl From<Status> for RestoreError {
    fn from(status: Status) -> Self {
        Self::Other(status)
    }
}

/// Reason for which the state could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    DoesNotFit(#[from] DoesNotFit),
}

impl From<LookError> for Status {
    fn from(error: LookError) -> Self {
        match error {
            LookError::Daemon(error) => error.into(),
            LookError::DoesNotFit(error) => Self::failed_precondition(error.to_string()),
        }
    }
}

impl ResourceManager {
    /// A manager for this configuration; a pod's slice is released after an absence of `grace`.
    pub(crate) fn new(config: Config, grace: Duration) -> Self {
        Self {
            daemon: Daemon { socket: config.tranched_socket.clone() },
            counters: Arc::new(Counters::new(&config)),
            config,
            since: Instant::now(),
            state: Mutex::new(ManagerState { absences: Absences::new(grace), ..ManagerState::default() }),
            shown: watch::Sender::default(),
        }
    }

    /// Subscription to the published device states.
    pub(crate) fn pictures(&self) -> watch::Receiver<SharedStates> {
        self.shown.subscribe()
    }

    /// The current device states.
    pub(crate) fn picture(&self) -> SharedStates {
        Arc::clone(&self.shown.borrow())
    }

    /// The source of metrics.
    pub(crate) fn figures(&self) -> Published {
        Published {
            config: self.config.clone(),
            counters: Arc::clone(&self.counters),
            pictures: self.pictures(),
        }
    }

    /// Tests if any configured GPU exists.
    pub(crate) async fn has_gpus(&self) -> bool {
        self.state
            .lock()
            .await
            .gpu_devices
            .values()
            .any(|gpu_device| self.config.is_ours(gpu_device.index, gpu_device.uuid))
    }

    /// All GPUs ever observed, and the offer derived from them.
    pub(crate) async fn offered(&self) -> (Vec<GpuDevice>, Offer) {
        let state = self.state.lock().await;
        (state.gpu_devices.values().cloned().collect(), state.offer.clone())
    }

    /// Notifies of changes in the health of GPUs, at first immediately, until the daemon disconnects.
    pub(crate) async fn follow(&self, changed: &Notify) -> Result<(), DaemonError> {
        self.daemon.follow(changed).await
    }

    /// Reads the daemon's view and publishes device states; without the daemon, all devices as broken.
    pub(crate) async fn refresh(&self) -> Result<(), LookError> {
        let mut state = self.state.lock().await;
        let seen = self.read_daemon(&mut state).await;
        self.show(&state, seen.is_ok());
        seen
    }

    /// Ends slices whose pods are gone according to the kubelet.
    pub(crate) async fn collect(&self) -> Result<(), LookError> {
        let mut state = self.state.lock().await;
        if let Err(error) = self.read_daemon(&mut state).await {
            self.show(&state, false);
            return Err(error);
        }
        let over = self.read_pods(&mut state).await;
        for bundle in &over {
            match self.daemon.end(bundle.slice(), false).await {
                Ok(()) => {
                    tracing::info!(slice = %bundle.slice(), "released: its pod is gone");
                    self.counters.release();
                    state.forget(bundle);
                }
                Err(error) => tracing::warn!(slice = %bundle.slice(), %error, "cannot be released yet"),
            }
        }
        self.label(&state).await;
        // The freed resources appear only in a view read after the end of the slices.
        let seen = if over.is_empty() { Ok(()) } else { self.read_daemon(&mut state).await };
        self.show(&state, seen.is_ok());
        seen
    }

    /// Preferred devices for a container.
    pub(crate) async fn prefer(&self, available: &[String], must: &[String], count: usize) -> Vec<String> {
        let state = self.state.lock().await;
        let read = |texts: &[String]| texts.iter().filter_map(|text| text.parse().ok()).collect::<Vec<_>>();
        let chosen = preferred(&state.headroom, &read(available), &read(must), count);
        chosen.iter().map(ToString::to_string).collect()
    }

    /// Creates a slice for each container's devices, all of them or none.
    pub(crate) async fn allocate(
        &self,
        profile: &ProfileName,
        containers: &[Vec<String>],
    ) -> Result<Vec<Bundle>, Status> {
        let answer = self.try_to_allocate(profile, containers).await;
        self.counters.allocation(&self.config, profile, outcome(&answer));
        answer
    }

    async fn try_to_allocate(
        &self,
        profile: &ProfileName,
        containers: &[Vec<String>],
    ) -> Result<Vec<Bundle>, Status> {
        let mut state = self.state.lock().await;
        self.read_daemon(&mut state).await?;
        let wanted = read(&state.offer, profile, containers).map_err(refused)?;
        undisturbed(&state.headroom, &wanted).map_err(refused)?;
        // Only presence is needed here; slices of absent pods are ended by `collect`.
        self.read_pods(&mut state).await;
        let plan = Transaction::plan(&state.headroom, &state.absences, &wanted).map_err(refused)?;
        self.carry_out(&mut state, plan).await?;
        Ok(wanted)
    }

    /// Ensures that a container's slice exists before the container starts.
    /// The daemon may have lost its state, the slice may have been released while it was empty, or another container of
    /// the pod may have had part of its devices and still be ending.
    pub(crate) async fn restore(&self, profile: &ProfileName, devices: &[String]) -> Result<(), Status> {
        let begun = Instant::now();
        loop {
            match self.try_to_restore(profile, devices).await {
                Err(RestoreError::InUse(_)) if begun.elapsed() < EXIT_GRACE => sleep(EXIT_GRACE / 20).await,
                Err(RestoreError::InUse(status) | RestoreError::Other(status)) => return Err(status),
                Ok(()) => return Ok(()),
            }
        }
    }

    async fn try_to_restore(&self, profile: &ProfileName, devices: &[String]) -> Result<(), RestoreError> {
        let mut state = self.state.lock().await;
        self.read_daemon(&mut state).await.map_err(Status::from)?;
        self.read_pods(&mut state).await;
        if let Some(refusal) = state.owners.mixture(profile, devices) {
            return Err(refused(refusal).into());
        }
        if is_there(&state.headroom, devices) {
            self.label(&state).await;
            return Ok(());
        }
        let wanted = read(&state.offer, profile, &[devices.to_vec()]).map_err(refused)?;
        match Transaction::plan(&state.headroom, &state.absences, &wanted) {
            Ok(plan) => Ok(self.carry_out(&mut state, plan).await?),
            Err(in_use @ Refusal::InUse(_)) => Err(RestoreError::InUse(refused(in_use))),
            Err(refusal) => Err(refused(refusal).into()),
        }
    }

    async fn carry_out(&self, state: &mut ManagerState, mut plan: Transaction) -> Result<(), Status> {
        let mut failure = None;
        while let Some(step) = plan.next().cloned() {
            let result = self.act(state, &step).await;
            plan.done(result.is_ok());
            if let Err(error) = result {
                let (Step::End(bundle) | Step::Make(bundle)) = &step;
                tracing::warn!(devices = %bundle, %error, "cannot be allocated");
                failure.get_or_insert(error);
            }
        }
        // Published at once rather than at the next regular read.
        let _ = self.read_daemon(state).await.inspect(|()| self.show(state, true));
        match (plan.outcome(), failure) {
            (Some(Outcome::Done) | None, _) | (_, None) => Ok(()),
            (Some(Outcome::Failed { .. }), Some(error)) => {
                let status = Status::from(error);
                if status.code() == Code::ResourceExhausted {
                    let lost_races = self.counters.lost_race();
                    tracing::warn!(lost_races, "a device was taken before it was allocated");
                }
                Err(status)
            }
        }
    }

    async fn act(&self, state: &mut ManagerState, step: &Step) -> Result<(), DaemonError> {
        let (Step::End(bundle) | Step::Make(bundle)) = step;
        state.absences.reset(bundle);
        match (step, self.config.profile(bundle.profile())) {
            (Step::Make(bundle), Some(profile)) => self.daemon.make(bundle.request(profile)).await,
            (Step::End(bundle), _) => self.daemon.end(bundle.slice(), true).await,
            (Step::Make(_), None) => {
                Err(Status::failed_precondition(format!("profile {} is gone", bundle.profile())).into())
            }
        }
    }

    async fn read_daemon(&self, state: &mut ManagerState) -> Result<(), LookError> {
        let node = self.daemon.node().await;
        self.counters.looked();
        let node = node?;
        state.gpu_devices.extend(node.gpus.iter().map(|gpu| (gpu.uuid, GpuDevice::of(gpu))));
        let gpu_devices: Vec<_> = state.gpu_devices.values().cloned().collect();
        state.offer = Offer::of(&self.config, &gpu_devices)?;
        state.headroom = NodeHeadroom::of(&node, &self.config.ignored_xids);
        state.hold_back_broken(self.since.elapsed(), self.config.recovery);
        let pods = node.slices.into_iter().filter_map(|slice| Some((slice.name, slice.pod?)));
        state.labels = pods.collect();
        Ok(())
    }

    /// Reads the kubelet's list; returns the slices that are over. An error frees no slice.
    async fn read_pods(&self, state: &mut ManagerState) -> Vec<Bundle> {
        match pod_devices::list(&self.config).await {
            Ok(owners) => {
                state.problem.over();
                let listed: BTreeSet<DeviceId> = owners.devices().cloned().collect();
                state.owners = owners;
                let ManagerState { absences, headroom, .. } = state;
                absences.observe(headroom, &listed, self.since.elapsed())
            }
            Err(error) => {
                state.problem.complain(error, |error| {
                    tracing::warn!(
                        "the kubelet does not say which pods there are, and no slice is released: {error}"
                    );
                });
                state.owners = Owners::default();
                Vec::new()
            }
        }
    }

    /// Sets the pods of slices where the daemon lacks them, since allocations do not contain the pod.
    async fn label(&self, state: &ManagerState) {
        for (name, pod) in state.unlabelled() {
            if let Err(error) = self.daemon.label(name, pod).await {
                tracing::debug!(slice = %name, %error, "cannot be labelled yet");
            }
        }
    }

    fn show(&self, state: &ManagerState, daemon_is_there: bool) {
        let away =
            || state.offer.devices.keys().map(|device| (device.clone(), Health::Broken(Broken::NoDaemon)));
        let health = if daemon_is_there { state.headroom.health(&state.offer) } else { away().collect() };
        let in_use = state.headroom.in_use().into_iter().cloned().collect();
        let now = DeviceStates { health, numa: state.numa_nodes(), in_use, daemon: daemon_is_there };
        self.shown.send_if_modified(|shown| {
            let changed = **shown != now;
            if changed {
                now.log_changes(shown);
                *shown = Arc::new(now);
            }
            changed
        });
    }
}

/// Tests if the slice for these devices exists already.
fn is_there(headroom: &NodeHeadroom, devices: &[String]) -> bool {
    let devices: Option<Vec<DeviceId>> = devices.iter().map(|text| text.parse().ok()).collect();
    devices
        .and_then(|devices| Bundle::of(devices).ok())
        .is_some_and(|bundle| headroom.slices.contains_key(&bundle))
}

/// Outcome for the metrics; only the daemon's lack of room counts as a lost race.
fn outcome(answer: &Result<Vec<Bundle>, Status>) -> &'static str {
    match answer.as_ref().map_err(Status::code) {
        Ok(_) => metrics::ALLOCATED,
        Err(Code::ResourceExhausted) => metrics::LOST_RACE,
        Err(Code::FailedPrecondition) => metrics::REFUSED,
        Err(_) => metrics::FAILED,
    }
}

fn refused(refusal: Refusal) -> Status {
    Status::failed_precondition(refusal.to_string())
}
