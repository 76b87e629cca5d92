//! Audit: gathers what the domain compares with the reports of slices, and carries out the outcome.
//!
//! Nothing is decided here. Every answer may be outdated an instant later, so processes are identified by pid and
//! start time throughout, and are killed through a pidfd, which cannot refer to another process.

pub(crate) mod findings;
mod observation;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tranche_domain::event::{EventKind, Happening};
use tranche_domain::id::{HostPid, SliceName};
use tranche_domain::slice::ProcessId;
use tranche_domain::truth::{CALM, Finding};
use tranche_inventory::InventoryError;

use crate::agent::Agent;
use crate::attribution::{Attribution, ProcessOwner};
use crate::gpu_users::GpuUserKind;
use crate::parking::{EndedProcesses, ParkFailure};
use observation::Since;
use tranche_linux::process::Process;
use tranche_slices::slice_runtime::SliceRuntime;

/// Time for which a slice that holds more than it reports is resampled more often.
/// It also bounds the wait for the driver. After that the regular audit covers the slice.
const RESAMPLE_WINDOW: Duration = Duration::from_secs(1);

/// Longest wait until the driver no longer lists processes that were checkpointed.
const UNLISTED_PATIENCE: Duration = Duration::from_secs(5);
/// Interval of querying the driver meanwhile.
const UNLISTED_PERIOD: Duration = Duration::from_millis(20);

/// Resamples the slices that recently began to hold more than they report; returns those that still do.
/// Memory that a shrunken slice freed becomes available to others as soon as the driver shows it.
pub(crate) async fn resample(agent: &Arc<Agent>, runtimes: &[Arc<SliceRuntime>]) -> Vec<Arc<SliceRuntime>> {
    let is_new = |runtime: &&Arc<SliceRuntime>| {
        runtime.driver_use.doubtful_for().is_some_and(|time| time < RESAMPLE_WINDOW)
    };
    let doubtful: Vec<_> = runtimes.iter().filter(is_new).cloned().collect();
    if doubtful.is_empty() {
        return doubtful;
    }
    let (agent, resampled) = (Arc::clone(agent), doubtful.clone());
    let audited = tokio::task::spawn_blocking(move || {
        for runtime in &resampled {
            observation::resample(&agent, runtime);
            agent.note_excess(runtime);
        }
    });
    let _ = tokio::time::timeout(RESAMPLE_WINDOW, audited).await; // the regular audit covers a timeout
    doubtful.into_iter().filter(|runtime| runtime.driver_use.doubtful_for().is_some()).collect()
}

/// Waits until the driver lists no process of a slice that has just left its GPUs.
///
/// # Errors
/// One is still listed after [`UNLISTED_PATIENCE`], or the driver does not answer.
pub(crate) fn wait_until_unlisted(agent: &Agent, runtime: &Arc<SliceRuntime>) -> Result<(), ParkFailure> {
    let deadline = Instant::now() + UNLISTED_PATIENCE;
    loop {
        let name = || runtime.name.clone();
        let listed = listed(agent, runtime).map_err(|error| ParkFailure::Unseen(name(), error))?;
        let Some(pid) = listed else { return Ok(()) };
        if Instant::now() >= deadline {
            return Err(ParkFailure::StillListed { name: name(), pid });
        }
        std::thread::sleep(UNLISTED_PERIOD);
    }
}

/// A process of the slice that the driver lists on one of its GPUs, attached or not.
fn listed(agent: &Agent, runtime: &Arc<SliceRuntime>) -> Result<Option<HostPid>, InventoryError> {
    let attribution = Attribution::of(&agent.runtimes());
    let users = agent.core().gpu_users();
    let is_unattached = |gpu, pid| match users.classify(gpu, pid) {
        GpuUserKind::Unattached(slice) => slice == runtime.name,
        GpuUserKind::Member | GpuUserKind::Foreign => false,
    };
    for gpu in &runtime.gpus {
        for process in agent.driver.processes(*gpu)? {
            let owner = attribution.find(process.pid).map(|(_, owner)| owner);
            let is_its = matches!(owner, Some(ProcessOwner::Slice(of)) if Arc::ptr_eq(&of, runtime));
            if is_its || is_unattached(*gpu, process.pid) {
                return Ok(Some(process.pid));
            }
        }
    }
    Ok(None)
}

/// Audits periodically until the daemon ends.
pub(crate) async fn run(agent: Arc<Agent>) {
    let mut since = Since::new();
    loop {
        let auditing = Arc::clone(&agent);
        let audited = tokio::task::spawn_blocking(move || audit_once(&auditing, since)).await;
        let again;
        (since, again) = audited.unwrap_or_else(|_| (Since::new(), CALM));
        tokio::time::sleep(jittered(again)).await;
    }
}

/// Shortens a period by up to a quarter at random.
/// A process therefore cannot time its life to fall between two audits.
fn jittered(time: Duration) -> Duration {
    let chance = RandomState::new().hash_one(Instant::now()) % 256;
    time.saturating_sub(time / 1024 * u32::try_from(chance).unwrap_or_default())
}

/// One audit. Queries the driver, and so may block.
fn audit_once(agent: &Arc<Agent>, mut since: Since) -> (Since, Duration) {
    let audit = &agent.audit;
    let observed = observation::observe(agent, audit.refuses_foreign, &mut since);
    let outcome = audit.findings().truth.look(&observed, audit.begun.elapsed());
    for finding in &outcome.news {
        agent.telemetry.record(finding.told());
    }
    for finding in &outcome.charge {
        charge(agent, finding);
    }
    agent.governor.mistrust(&outcome.hiding);
    agent.governor.expect_nothing(&outcome.hollow);
    for finding in &outcome.over {
        agent.telemetry.record(finding.told_over());
    }
    kill(agent, &outcome.kill);
    for (slice, last) in &outcome.end {
        end(agent, slice, last);
    }
    (since, outcome.again)
}

/// Charges a slice for memory that one of its processes holds beyond its charge.
/// The charge is also made while the process never pauses.
fn charge(agent: &Agent, finding: &Finding) {
    let (Some(slice), Some(gpu), Some(who)) = (&finding.subject.slice, finding.subject.gpu, finding.who)
    else {
        return;
    };
    if finding.subject.kind != EventKind::UnderReported {
        return;
    }
    let Some(runtime) = agent.core().live.get(slice).cloned() else { return };
    let device = runtime.devices().find(|(_, of)| *of == gpu).map(|(device, _)| device);
    if let (Some(device), Some(seat)) = (device, runtime.seat_of(who))
        && runtime.charge_beyond(seat, device, finding.excess)
    {
        agent.note_excess(&runtime);
    }
}

fn kill(agent: &Arc<Agent>, condemned: &[Finding]) {
    let targets: BTreeMap<ProcessId, &Finding> =
        condemned.iter().filter_map(|finding| Some((finding.who?, finding))).collect();
    for (who, finding) in &targets {
        if agent.audit.findings().killed.contains(who) {
            continue;
        }
        let (who, told) = (*who, finding.told_killed());
        // By start time as well: the pid may have been reused.
        let kill = move |agent: &Agent| match Process::reopen(who).and_then(|process| process.kill()) {
            Ok(()) => agent.telemetry.record(told),
            Err(error) => tracing::info!(pid = %who.pid, %error, "who was to be killed could not be"),
        };
        let has_begun = match &finding.subject.slice {
            Some(slice) => agent.end_processes(slice, EndedProcesses::One(who), kill),
            None => {
                kill(agent);
                true
            }
        };
        if has_begun {
            agent.audit.findings().killed.insert(who);
        }
    }
    agent.audit.findings().killed.retain(|who| targets.contains_key(who));
}

/// Kills every process of a slice: attached ones, roots and their descendants, or all in its container. The job
/// runner of a job's slice is spared, because it reports the outcome of the job.
fn end(agent: &Arc<Agent>, name: &SliceName, last: &Finding) {
    let core = agent.core();
    let (Some(runtime), Ok(slice)) = (core.live.get(name).cloned(), core.node.slice(name)) else { return };
    let is_job = slice.job.is_some();
    drop(core);
    let told = last.told_ended();
    agent.end_processes(name, EndedProcesses::All, move |agent| kill_all(agent, &runtime, is_job, told));
}

fn kill_all(agent: &Agent, runtime: &Arc<SliceRuntime>, is_job: bool, told: Happening) {
    let roots = runtime.occupants().roots;
    let mut is_any_killed = false;
    agent.kill_each(runtime, |id| is_job && roots.contains(id), |_| is_any_killed = true);
    if is_any_killed {
        agent.telemetry.record(told);
    }
}
