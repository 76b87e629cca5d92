//! Jobs on this node: connects the job controller with the daemon's slices and processes.

mod service;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use tranche_domain::event::{EventCause, EventKind, Happening, Instigator};
use tranche_domain::id::{GpuSelector, GpuUuid, SliceName};
use tranche_domain::jobs::{JobSpec, MemberId, MilliGpus, PoolGpu, UserSlice};
use tranche_domain::node::Refusal;
use tranche_domain::request::SliceRequest;
use tranche_domain::slice::{ProcessId, Slice};
use tranche_jobs::{
    Happened, JobClaims, JobCondition, JobController, JobOwner, JobSite, JobSlice, Launcher, NodeUse,
    OpenError, Preemption, Retention, SliceUse, UnparkFailure, UserDemand, What,
};

use crate::agent::{Agent, Core};
use crate::failure::{RequestFailure, Requested};
use crate::sockets::job_runner_beside;
use tranche_linux::process::{Process, has_ended};
use tranche_telemetry::conditions::{ConditionKind as Condition, ConditionSubject};

pub(crate) use service::JobsService;

/// Variable that leads a process to its slice.
const SLICE_SOCKET: &str = "TRANCHE_SLICE_SOCKET";

/// Job controller of this node.
pub(crate) type NodeDesk = JobController<Hands>;

/// Operations on the node that the job controller needs.
pub(crate) struct Hands {
    agent: Arc<Agent>,
}

/// Takes over the jobs of an earlier daemon.
pub(crate) fn open(agent: &Arc<Agent>, ended: Retention) -> Result<Arc<NodeDesk>, OpenError> {
    let hands = Hands { agent: Arc::clone(agent) };
    let launcher =
        Launcher { program: job_runner_beside(&agent.shim), socket: agent.layout.runtime.join("jobs.sock") };
    let desk = JobController::open(&agent.layout.state, hands, launcher)?;
    Ok(Arc::new(desk.keeping(ended)))
}

/// Runs the job controller, at once whenever capacity may have appeared. Never returns.
pub(crate) async fn run(agent: Arc<Agent>, desk: Arc<NodeDesk>) {
    let (mut room, mut requests) = (agent.room.subscribe(), agent.requests.subscribe());
    let looking = async {
        loop {
            let changed = tokio::select! {
                changed = room.changed() => changed,
                changed = requests.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
            desk.look_again();
        }
    };
    tokio::join!(Arc::clone(&desk).run(), looking);
}

/// Owner of a member's slice, stranded or not. `None` if there is no slice that was created for the member.
fn owner(core: &Core, slice: &JobSlice) -> Option<u32> {
    let found = core.slice(&slice.name).ok()?;
    (found.job == Some(slice.member)).then_some(found.owner_uid)
}

/// Reason why a slice's name is not available to a member.
fn taken(core: &Core, slice: &JobSlice) -> String {
    let name = &slice.name;
    match core.slice(name).ok().filter(|found| found.job != Some(slice.member)) {
        Some(other) => format!(
            "slice {name} was not made for this job but by uid {}: have it deleted (`tranche slice delete {name}`), or \
             submit the job under another name",
            other.owner_uid
        ),
        None => format!("its slice {name} is being deleted"),
    }
}

/// A slice with its parts of GPUs, before its use is read.
fn slice_use((slice, gpus): (&Slice, Vec<(GpuUuid, MilliGpus)>)) -> SliceUse {
    SliceUse {
        name: slice.name.clone(),
        created_unix_ms: slice.created_unix_ms,
        owner_uid: slice.owner_uid,
        user: String::new(),
        pod: slice.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name)),
        is_jobs: slice.job.is_some(),
        gpus,
        used: BTreeMap::new(),
        idle: false,
    }
}

impl Hands {
    /// Carries out an operation on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Agent) -> Requested<T> + Send + 'static,
    ) -> Result<T, String> {
        let agent = Arc::clone(&self.agent);
        let done = tokio::task::spawn_blocking(move || operation(&agent)).await;
        done.map_err(RequestFailure::from).flatten().map_err(|failure| failure.to_string())
    }
}

impl JobSite for Hands {
    fn gpus(&self, members: &BTreeSet<MemberId>) -> Vec<PoolGpu> {
        self.agent.core().node.for_jobs(members)
    }

    fn user_demand(&self) -> UserDemand {
        let core = self.agent.core();
        UserDemand { slices: core.node.user_slices(), requests: core.waiting.user_requests(&core.claims) }
    }

    fn node_use(&self) -> NodeUse {
        let core = self.agent.core();
        let mut slices: Vec<SliceUse> = core.node.holdings().map(slice_use).collect();
        drop(core);
        let readings = self.agent.governor.readings();
        for slice in &mut slices {
            let used =
                |(gpu, _): &(GpuUuid, _)| Some((*gpu, *readings.live.get(&(slice.name.clone(), *gpu))?));
            slice.used = slice.gpus.iter().filter_map(used).collect();
            slice.user = self.agent.users.name(slice.owner_uid);
            slice.idle = self.agent.idleness.idle(&slice.name).is_some();
        }
        NodeUse { slices, ended: readings.ended }
    }

    fn grant(&self, request: u64, gpus: Vec<GpuUuid>) {
        let waits = self.agent.core().waiting.grant(request, gpus);
        if waits {
            self.agent.notify_capacity();
        }
    }

    fn set_claims(&self, claims: JobClaims) {
        let mut core = self.agent.core();
        let fewer = core.claims.kept != claims.kept;
        core.node.set_kept(claims.kept.clone());
        core.claims = claims;
        drop(core);
        if fewer {
            self.agent.notify_capacity();
        }
    }

    async fn end_user_slice(&self, slice: &UserSlice, reason: String) {
        self.agent.end_user_slice(slice, reason).await;
    }

    fn open(
        &self,
        slice: &JobSlice,
        spec: &JobSpec,
        gpus: &[GpuUuid],
        owner: JobOwner,
    ) -> Result<(), String> {
        let (share, memory, compute) = spec.amounts();
        let request = SliceRequest {
            name: Some(slice.name.clone()),
            memory,
            compute,
            priority: spec.slice_priority(),
            latency: spec.latency,
            gang: spec.gang_of(slice.member.job),
            gpus: gpus.iter().map(|gpu| GpuSelector::Uuid(*gpu)).collect(),
            ..SliceRequest::of(share)
        };
        match self.agent.create_for(&request, owner.uid, slice.member) {
            Ok(_) => Ok(()),
            Err(RequestFailure::Refused(Refusal::Exists(_))) => Err(taken(&self.agent.core(), slice)),
            Err(failure) => Err(failure.to_string()),
        }
    }

    fn claim(&self, slice: &JobSlice) {
        self.agent.core().claim(&slice.name, slice.member);
        self.agent.save();
    }

    fn enter(
        &self,
        slice: &JobSlice,
        process: ProcessId,
        environment: Vec<(String, String)>,
    ) -> Result<Vec<(String, String)>, String> {
        let shim = &self.agent.shim;
        if !shim.is_file() {
            return Err(RequestFailure::NoShim(shim.display().to_string()).to_string());
        }
        let mut core = self.agent.core();
        // The slice may have been deleted meanwhile, and another created under its name.
        let name = owner(&core, slice).map(|_| &slice.name).ok_or_else(|| taken(&core, slice))?;
        let entered = self.agent.admit(&mut core, name, process).map_err(|failure| failure.to_string())?;
        drop(core);
        let gpus: Vec<String> = entered.parts.iter().map(|part| part.gpu.to_string()).collect();
        let mut inside: BTreeMap<String, String> = environment.into_iter().collect();
        let preloaded = inside.remove("LD_PRELOAD").filter(|list| !list.is_empty());
        let list = [Some(shim.display().to_string()), preloaded].into_iter().flatten().collect::<Vec<_>>();
        inside.insert("LD_PRELOAD".into(), list.join(":"));
        inside.insert(SLICE_SOCKET.into(), self.agent.layout.attach(name).display().to_string());
        inside.insert("CUDA_VISIBLE_DEVICES".into(), gpus.join(","));
        Ok(inside.into_iter().collect())
    }

    fn document(&self, slice: &JobSlice) -> Option<PathBuf> {
        self.agent.containers.document(&slice.name)
    }

    async fn close(&self, slice: &JobSlice) {
        let name = &slice.name;
        // Repeated until all processes have ended, however long the driver takes to release their memory.
        loop {
            if owner(&self.agent.core(), slice).is_none() {
                return;
            }
            match self.agent.end(name, true, Instigator::rule(EventCause::JobEnd)).await {
                Ok(_) | Err(RequestFailure::Refused(Refusal::Unknown(_))) => return,
                Err(failure) => {
                    tracing::warn!(slice = %name, %failure, "the slice of a job does not end");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    fn preemption(&self) -> Preemption {
        self.agent.parking.terms().preemption
    }

    async fn park(&self, slice: &JobSlice) -> Result<(), String> {
        let slice = slice.clone();
        self.blocking(move |agent| agent.park_member(&slice)).await
    }

    async fn unpark(&self, slice: &JobSlice) -> Result<bool, UnparkFailure> {
        let moved = slice.clone();
        let back = self.blocking(move |agent| agent.unpark_member(&moved)).await;
        let is_its = |found: &Slice| found.job == Some(slice.member) && found.is_away();
        // One whose GPU is not on the node at present is where it was.
        let is_parked = self.agent.core().slice(&slice.name).is_ok_and(is_its);
        back.map_err(if is_parked { UnparkFailure::Parked } else { UnparkFailure::OnItsWay })
    }

    async fn prepare_signal(&self, slice: &JobSlice, signal: Signal) {
        let is_its = |core: &Core| core.slice(&slice.name).is_ok_and(|found| found.job == Some(slice.member));
        if !is_its(&self.agent.core()) {
            return;
        }
        let (agent, name) = (Arc::clone(&self.agent), slice.name.clone());
        // Processes that could not be prepared are signalled all the same.
        let _ = tokio::task::spawn_blocking(move || agent.prepare_signal(&name, signal)).await;
    }

    async fn ended(&self, process: ProcessId) {
        while !has_ended(process) {
            if let Ok(process) = Process::reopen(process)
                && process.ended().await.is_ok()
            {
                return;
            }
            // Probably out of descriptors, which is not the process's end.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn signal(&self, process: ProcessId, signal: Signal) {
        let told = Process::reopen(process).and_then(|process| process.signal(signal));
        if let Err(error) = told {
            tracing::debug!(pid = %process.pid, %error, "cannot be told {signal}");
        }
    }

    fn unused(&self, slice: &SliceName) -> Duration {
        self.agent.idleness.unused(slice)
    }

    fn idle(&self, slice: &SliceName) -> Option<Duration> {
        self.agent.idleness.idle(slice)
    }

    fn set_condition(&self, condition: JobCondition, message: String) {
        let (kind, subject) = key(condition);
        self.agent.telemetry.conditions.set(kind, subject, message);
    }

    fn clear_condition(&self, condition: JobCondition) {
        let (kind, subject) = key(condition);
        self.agent.telemetry.conditions.clear(kind, subject);
    }

    fn record(&self, happened: Happened) {
        let Happened { what, slice, evidence } = happened;
        let kind = match what {
            What::Started => EventKind::JobStarted,
            What::Preempted => EventKind::JobPreempted,
            What::Overdue => EventKind::JobOverdue,
            What::Succeeded => EventKind::JobSucceeded,
            What::Failed => EventKind::JobFailed,
            What::Restarted => EventKind::JobRestarted,
        };
        self.agent.telemetry.record(Happening::new(kind, evidence).of(&slice));
    }
}

/// Key of a condition of the job controller among the node's.
fn key(condition: JobCondition) -> (Condition, ConditionSubject) {
    match condition {
        JobCondition::NotSaved => (Condition::JobsNotSaved, ConditionSubject::NODE),
        JobCondition::LogsNotCut => (Condition::JobLogsNotCut, ConditionSubject::NODE),
        JobCondition::NotRestored(number) => {
            (Condition::JobsNotRestored, ConditionSubject::Node(number.to_string()))
        }
        JobCondition::UnknownGpus(project) => {
            (Condition::JobsNotRestored, ConditionSubject::Node(format!("project {project}")))
        }
        JobCondition::Idle(slice) => (Condition::SliceIdle, ConditionSubject::Slice(slice)),
        JobCondition::NotStarted(slice) => (Condition::JobNotStarted, ConditionSubject::Slice(slice)),
        JobCondition::Killed(slice) => (Condition::JobKilled, ConditionSubject::Slice(slice)),
    }
}
