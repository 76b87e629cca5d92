//! Start, operation and end of the daemon.

use std::future::Future;
use std::io;
use std::os::unix::net::UnixListener as BlockingListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::UnixListener;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tranche_domain::event::{EventKind, Happening};
use tranche_exposition::BoundListener;
use tranche_inventory::Driver;

use crate::access::{self, Access, Budgeted};
use crate::agent::{self, Agent};
use crate::audit;
use crate::config::{Config, Retention};
use crate::configuration::Configured;
use crate::containers::Described;
use crate::context::{Contexts, PendingMeasurements};
use crate::jobs::{self, JobsService};
use crate::metrics::DaemonMetrics;
use crate::operators::Operators;
use crate::server::{GRACE, routes, server};
use crate::sockets::{DaemonPaths, DaemonScope};
use crate::{idle_parking, ownership, recovery, rotation, sampler, watchdog};
use tranche_linux::{privileges, sealed, supervisor};
use tranche_slices::worker::Worker;
use tranche_telemetry::Telemetry;
use tranche_telemetry::conditions::{ConditionKind as Condition, ConditionSubject, Conditions};
use tranche_timeshare::Governor;

/// Descriptors for a thousand processes; with a lower limit a condition is set.
const ENOUGH_DESCRIPTORS: u64 = 4096;

/// Parts and settings of a daemon.
pub struct Settings {
    /// Paths of the daemon's files, whose locks the caller holds.
    pub layout: DaemonPaths,
    /// True if the system user is missing, so that the main process keeps uid 0.
    pub lacks_user: bool,
    /// Users that may create slices, and quotas.
    pub access: Access,
    /// The configuration, for display and reloads; without it, reloads fail.
    pub configured: Option<Configured>,
    /// Library that tenants preload.
    pub shim: PathBuf,
    /// Access to the GPUs.
    pub driver: Arc<dyn Driver>,
    /// Costs of contexts known so far.
    pub contexts: Contexts,
    /// Uses sealed memory for usage regions where the next daemon could find it. Otherwise they are files, which a
    /// tenant can extend.
    pub seals_regions: bool,
    /// Configuration at the start, for what is not in another field.
    pub config: Config,
    /// Description of the node for documents for containers; `None` for no documents.
    pub described: Option<Described>,
    /// Listener for metrics; `None` to serve none.
    pub metrics: Option<BoundListener>,
    /// Measurements that are still running.
    pub outstanding: Option<PendingMeasurements>,
}

/// Failure to start or run the daemon.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum StartError {
    #[error("cannot take over what an earlier daemon left: {0}")]
    Recovery(io::Error),
    #[error("cannot keep the GPUs to slices, as the configuration's `only_slices` says: {0}")]
    OnlySlices(io::Error),
    #[error("cannot govern compute: {0}")]
    Compute(io::Error),
    #[error("cannot start a thread for the tenants: {0}")]
    Worker(io::Error),
    #[error("cannot start a thread for the faults of GPUs: {0}")]
    Faults(io::Error),
    #[error("cannot start a thread for the service supervisor: {0}")]
    Watchdog(io::Error),
    #[error("cannot serve at the gRPC socket: {0}")]
    Door(io::Error),
    #[error("cannot serve at the operators' socket: {0}")]
    Operators(Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot listen to SIGHUP: {0}")]
    Hangup(io::Error),
    #[error("the gRPC server failed: {0}")]
    Server(#[from] tonic::transport::Error),
}

/// Starts the tasks that park slices unasked.
fn start_parking(agent: &Arc<Agent>) -> [JoinHandle<()>; 2] {
    [tokio::spawn(idle_parking::run(Arc::clone(agent))), tokio::spawn(rotation::run(Arc::clone(agent)))]
}

/// Takes over existing slices, and serves at `door` until `stop` resolves.
/// Slices and regions are left for the next daemon.
///
/// # Errors
/// See [`StartError`]. Slices that cannot be taken over become conditions and do not prevent the start.
pub async fn serve(
    settings: Settings,
    door: BlockingListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), StartError> {
    let ServerParts { agent, governor, worker: _worker, ended_jobs, metrics, outstanding } = build(settings)?;
    allow_descriptors(&agent);
    recovery::recover(&agent).map_err(StartError::Recovery)?;
    privileges::keep_gpus().map_err(StartError::OnlySlices)?;
    let _governing = governor.start().map_err(StartError::Compute)?;
    if let Some(outstanding) = outstanding.filter(|outstanding| !outstanding.is_empty()) {
        let agent = Arc::clone(&agent);
        tokio::task::spawn_blocking(move || apply_late_measurements(&agent, outstanding));
    }
    let guard = agent.usage_guard.as_ref();
    guard.map_or(Ok(()), |guard| guard.start(&agent.worker)).map_err(StartError::Worker)?;
    agent.faults.start().map_err(StartError::Faults)?;
    let mut tasks =
        vec![tokio::spawn(sampler::run(Arc::clone(&agent))), tokio::spawn(audit::run(agent.clone()))];
    let calls =
        access::incoming(Arc::clone(&agent.gate), UnixListener::from_std(door).map_err(StartError::Door)?);
    finish_passages(&agent);
    let (jobs, working) = start_jobs(&agent, ended_jobs);
    tasks.extend(working.into_iter().chain(start_parking(&agent)));
    let published = DaemonMetrics { agent: Arc::clone(&agent), desk: jobs.desk.as_ref().ok().cloned() };
    let (told, mut stopping) = tokio::sync::watch::channel(false);
    let operators = answer_operators(&agent, jobs.clone(), stopping.clone())?;
    tasks.push(tokio::spawn(tranche_exposition::serve(metrics, Arc::new(published))));
    tasks.extend(reload_on_hangup(&agent).map_err(StartError::Hangup)?);
    ready(&agent);
    watchdog::start(&agent, Handle::current()).map_err(StartError::Watchdog)?;
    let following = Arc::clone(&agent);
    let stopped = async move {
        stop.await;
        supervisor::stopping();
        following.faults.stop();
        following.telemetry.events.end_followers();
        told.send_replace(true);
    };
    let server = server()
        .layer(Budgeted(Arc::clone(&agent.gate)))
        .add_routes(routes(&agent, jobs))
        .serve_with_incoming_shutdown(calls, stopped);
    tokio::select! {
        ended = server => ended?,
        () = async { let _ = stopping.wait_for(|stop| *stop).await; tokio::time::sleep(GRACE).await } => {}
    }
    // Its calls in progress have had the same time to end.
    let _ = tokio::task::spawn_blocking(move || drop(operators)).await;
    tasks.iter().for_each(JoinHandle::abort);
    agent.save();
    agent
        .telemetry
        .record(Happening::new(EventKind::DaemonStopped, "slices and their processes stay as they are"));
    agent.workers.end();
    agent.telemetry.events.stop();
    tracing::info!("stopped; slices and their processes stay as they are");
    Ok(())
}

/// A daemon before its start.
struct ServerParts {
    agent: Arc<Agent>,
    governor: Arc<Governor>,
    worker: Worker,
    ended_jobs: Retention,
    metrics: Option<BoundListener>,
    outstanding: Option<PendingMeasurements>,
}

fn build(settings: Settings) -> Result<ServerParts, StartError> {
    let governor = Governor::new(settings.config.transfers.counted()).map_err(StartError::Compute)?;
    let governor = Arc::new(governor);
    let worker = Worker::start("worker").map_err(StartError::Worker)?;
    let Settings { layout, config, metrics, outstanding, .. } = settings;
    let ended_jobs = config.ended_jobs();
    let telemetry = Arc::new(Telemetry::open(&layout.state));
    if settings.lacks_user {
        telemetry.conditions.set(Condition::RunsAsRoot, ConditionSubject::NODE, ownership::fallback());
    }
    let agent = Agent::new(agent::AgentParts {
        seals_regions: settings.seals_regions && can_seal(&layout, &telemetry.conditions),
        layout,
        access: settings.access,
        shim: settings.shim,
        driver: settings.driver,
        contexts: settings.contexts,
        config,
        configured: settings.configured,
        described: settings.described,
        governor: Arc::clone(&governor),
        telemetry,
        worker: worker.work(),
    });
    Ok(ServerParts { agent, governor, worker, ended_jobs, metrics, outstanding })
}

fn answer_operators(
    agent: &Arc<Agent>,
    jobs: JobsService,
    stopping: tokio::sync::watch::Receiver<bool>,
) -> Result<Operators, StartError> {
    let listener = agent.layout.open_operators_door().map_err(|error| StartError::Operators(error.into()))?;
    Operators::start(agent, jobs, listener, stopping).map_err(|error| StartError::Operators(error.into()))
}

/// Starts the job controller. A failure affects jobs only.
fn start_jobs(agent: &Arc<Agent>, ended: Retention) -> (JobsService, Option<JoinHandle<()>>) {
    let desk = jobs::open(agent, ended).map_err(|error| error.to_string());
    if let Err(error) = &desk {
        let message = format!("this node takes no jobs: {error}");
        agent.telemetry.conditions.set(Condition::JobsUnavailable, ConditionSubject::NODE, message);
    }
    let working = desk.as_ref().ok().map(|desk| tokio::spawn(jobs::run(Arc::clone(agent), Arc::clone(desk))));
    (JobsService { gate: Arc::clone(&agent.gate), agent: Arc::clone(agent), desk }, working)
}

/// Reloads the configuration on SIGHUP, as is customary.
fn reload_on_hangup(agent: &Arc<Agent>) -> io::Result<Option<JoinHandle<()>>> {
    if agent.configured.is_none() {
        return Ok(None);
    }
    let (mut hangup, agent) = (signal(SignalKind::hangup())?, Arc::clone(agent));
    Ok(Some(tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            let agent = Arc::clone(&agent);
            // The outcome has been logged.
            let _ = tokio::task::spawn_blocking(move || agent.reload(None).map(drop)).await;
        }
    })))
}

/// Returns true if usage regions can be sealed memory here.
fn can_seal(layout: &DaemonPaths, conditions: &Conditions) -> bool {
    match sealed::can_be_found() {
        Ok(()) => true,
        // A user's own daemon cannot inspect other processes, and its tenants are that user.
        Err(_) if layout.reach == DaemonScope::User => false,
        Err(error) => {
            let message = format!(
                "usage regions are files, which a tenant can make take more of {}: the next daemon could not open what \
                 processes map ({error}); it takes CAP_SYS_ADMIN, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH of the machine itself",
                layout.runtime.display()
            );
            conditions.set(Condition::UsageNotSealed, ConditionSubject::NODE, message);
            false
        }
    }
}

/// Brings slices back that an earlier daemon left on their way to host memory, or back.
fn finish_passages(agent: &Arc<Agent>) {
    let agent = Arc::clone(agent);
    tokio::task::spawn_blocking(move || agent.finish_passages());
}

/// Raises RLIMIT_NOFILE to its hard limit. Each attached process takes a few descriptors, and a slice may have
/// thousands.
fn allow_descriptors(agent: &Agent) {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, most)| {
        setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
        Ok(most)
    });
    match raised {
        Ok(most) if most < ENOUGH_DESCRIPTORS => {
            let message = format!(
                "at most {most} files may be open: enough for about {} processes, {} of them in one slice; raise the limit \
                 (LimitNOFILE) for more",
                most / 4,
                most / 16
            );
            agent.telemetry.conditions.set(Condition::FewDescriptors, ConditionSubject::NODE, message);
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "cannot raise the number of files that may be open"),
    }
}

/// Applies measurements that finish after the start.
fn apply_late_measurements(agent: &Agent, mut outstanding: PendingMeasurements) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while let Some(arrived) = outstanding.next(deadline) {
        let (model, mut contexts) = (arrived.0.clone(), agent.core().contexts.clone());
        contexts.take(arrived, &agent.layout.state);
        contexts.report_of(&model, &agent.telemetry.conditions);
        agent.set_contexts(contexts.costs);
    }
}

/// Reports in the log and to the supervisor that calls are served.
fn ready(agent: &Agent) {
    let (gpus, slices) = (agent.gpus.len(), agent.core().node.slices().len());
    tracing::info!(socket = %agent.layout.door().display(), gpus, slices, "ready");
    let version = env!("CARGO_PKG_VERSION");
    let told = format!("tranched {version} serves {gpus} GPUs and took over {slices} slices");
    agent.telemetry.record(Happening::new(EventKind::DaemonStarted, told));
    supervisor::ready(slices, gpus);
}
