//! Audit: gathers the observation that the domain compares with what slices report, and carries out its outcome.
//!
//! Nothing is decided here. Every answer may be outdated an instant later, so processes are identified by pid and
//! start time throughout, and are killed through a pidfd, which cannot refer to another process.

mod attribution;
mod observation;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tranche_domain::event::Kind;
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::slice::ProcessId;
use tranche_domain::truth::{CALM, Finding, Truth, Violations};

use crate::agent::Agent;
use crate::process::Process;
use crate::slice_runtime::SliceRuntime;
use attribution::Attribution;
use observation::Since;

/// Passes over the process list when all processes of a slice are killed.
const KILL_PASSES: usize = 8;
/// Number of findings that are listed individually.
const SHOWN: usize = 16;

/// The audit's findings and the measures taken for them.
#[derive(Debug)]
pub(crate) struct Audit {
    findings: Mutex<Findings>,
    begun: Instant,
    /// True if a GPU that a foreign process uses takes no slices.
    refuses_foreign: bool,
}

#[derive(Debug)]
struct Findings {
    truth: Truth,
    /// Processes that were killed and are still found.
    killed: BTreeSet<ProcessId>,
}

impl Audit {
    pub(crate) fn new(violations: Violations, refuses_foreign: bool) -> Self {
        let findings = Findings { truth: Truth::new(violations), killed: BTreeSet::new() };
        Self { findings: Mutex::new(findings), begun: Instant::now(), refuses_foreign }
    }

    fn findings(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().expect("nothing panics while it holds the findings")
    }

    /// Current findings, as sentences for the operator.
    pub(crate) fn notes(&self) -> Vec<String> {
        let findings = self.findings();
        let mut notes: Vec<String> = findings.truth.standing().take(SHOWN).map(sentence).collect();
        let rest = findings.truth.standing().count().saturating_sub(SHOWN);
        notes.extend((rest > 0).then(|| format!("and {rest} more findings: `tranche events` has them all")));
        notes
    }

    /// Reason why foreign processes keep a GPU from taking slices, if they do.
    pub(crate) fn obstacle(&self, gpu: GpuUuid) -> Option<String> {
        if !self.refuses_foreign {
            return None;
        }
        let findings = self.findings();
        let is_foreign = |finding: &&Finding| {
            finding.subject.kind == Kind::ForeignProcess && finding.subject.gpu == Some(gpu)
        };
        let pids = findings.truth.standing().filter(is_foreign).filter_map(|finding| finding.who);
        let pids: Vec<String> = pids.map(|who| who.pid.to_string()).collect();
        (!pids.is_empty()).then(|| {
            format!("processes that are in no slice use it ({}), and `foreigners` says that it is not shared with them", pids.join(", "))
        })
    }
}

/// Time for which a slice that holds more than it reports is resampled more often, and the longest wait for the
/// driver then. After that the regular audit covers it.
const RESAMPLE_WINDOW: Duration = Duration::from_secs(1);

/// Resamples the slices that began to hold more than they report a moment ago, and returns those that still do.
/// Memory that a shrunken slice freed becomes available to others as soon as the driver shows it.
pub(crate) async fn resample(agent: &Arc<Agent>, runtimes: &[Arc<SliceRuntime>]) -> Vec<Arc<SliceRuntime>> {
    let is_new =
        |runtime: &&Arc<SliceRuntime>| runtime.doubtful_for().is_some_and(|time| time < RESAMPLE_WINDOW);
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
    doubtful.into_iter().filter(|runtime| runtime.doubtful_for().is_some()).collect()
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

/// Shortens a period by up to a quarter at random, so that a process cannot time its life between two audits.
fn jittered(time: Duration) -> Duration {
    let chance = RandomState::new().hash_one(Instant::now()) % 256;
    time.saturating_sub(time / 1024 * u32::try_from(chance).unwrap_or_default())
}

/// One audit. Queries the driver, and so may block.
fn audit_once(agent: &Agent, mut since: Since) -> (Since, Duration) {
    let audit = &agent.audit;
    let observed = observation::observe(agent, audit.refuses_foreign, &mut since);
    let outcome = audit.findings().truth.look(&observed, audit.begun.elapsed());
    for finding in &outcome.news {
        agent.events.record(finding.told());
    }
    for finding in &outcome.charge {
        charge(agent, finding);
    }
    agent.governor.mistrust(&outcome.hiding);
    agent.governor.expect_nothing(&outcome.hollow);
    for finding in &outcome.over {
        agent.events.record(finding.told_over());
    }
    kill(agent, &outcome.kill);
    for (slice, last) in &outcome.end {
        end(agent, slice, last);
    }
    (since, outcome.again)
}

/// Charges a slice for what one of its processes was seen to hold beyond its charge, even if it never pauses.
fn charge(agent: &Agent, finding: &Finding) {
    let (Some(slice), Some(gpu), Some(who)) = (&finding.subject.slice, finding.subject.gpu, finding.who)
    else {
        return;
    };
    if finding.subject.kind != Kind::UnderReported {
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

fn kill(agent: &Agent, condemned: &[Finding]) {
    let targets: BTreeMap<ProcessId, &Finding> =
        condemned.iter().filter_map(|finding| Some((finding.who?, finding))).collect();
    for (who, finding) in &targets {
        if agent.audit.findings().killed.contains(who) {
            continue;
        }
        // By start time as well: the pid may have been reused.
        match Process::reopen(*who).and_then(|process| process.kill()) {
            Ok(()) => agent.events.record(finding.told_killed()),
            Err(error) => tracing::info!(pid = %who.pid, %error, "who was to be killed could not be"),
        }
        agent.audit.findings().killed.insert(*who);
    }
    agent.audit.findings().killed.retain(|who| targets.contains_key(who));
}

/// Kills every process of a slice: attached ones, roots and their descendants, or all in its container. The job
/// runner of a job's slice is spared, because it reports the outcome of the job.
fn end(agent: &Agent, name: &SliceName, last: &Finding) {
    let core = agent.core();
    let (Some(runtime), Ok(slice)) = (core.live.get(name).cloned(), core.node.slice(name)) else { return };
    let is_job = slice.job.is_some();
    drop(core);
    let roots = runtime.occupants().roots;
    let spared = |id: &ProcessId| is_job && roots.contains(id);
    // Processes started meanwhile are found by the next pass.
    let mut killed = BTreeSet::new();
    for _ in 0..KILL_PASSES {
        let its = Attribution::of(&agent.runtimes()).all_of(&runtime);
        let left: Vec<_> = its.into_iter().filter(|id| !spared(id) && !killed.contains(id)).collect();
        if left.is_empty() {
            break;
        }
        for id in left {
            if let Err(error) = Process::reopen(id).and_then(|process| process.kill()) {
                tracing::info!(slice = %name, pid = %id.pid, %error, "a process of a slice that ends could not be killed");
            }
            killed.insert(id);
        }
    }
    if !killed.is_empty() {
        agent.events.record(last.told_ended());
    }
}

fn sentence(finding: &Finding) -> String {
    let of = finding.subject.slice.as_ref().map(|slice| format!(" of slice {slice}"));
    let who = finding.who.map(|who| format!(" process {}", who.pid));
    let of = of.unwrap_or_default();
    format!("{}:{}{of}: {}", finding.subject.kind, who.unwrap_or_default(), finding.evidence)
}
