//! Draws the picture that the domain compares with what slices say, and does what follows from the comparison.
//!
//! Nothing is decided here. Everything that is asked may be out of date by the next instant, so processes are named by
//! pid and start time throughout, and whoever is killed is killed by a handle that cannot name anybody else.

mod draw;
mod kin;

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
use crate::tenancy::Tenancy;
use draw::Since;
use kin::Kin;

/// Looks for processes that are left of a slice that is ended.
const ROUNDS: usize = 8;
/// How many findings are shown one by one.
const SHOWN: usize = 16;

/// What is found to be wrong, and what is done about it.
#[derive(Debug)]
pub(crate) struct Watch {
    book: Mutex<Book>,
    begun: Instant,
    /// Whether a GPU that a stranger uses takes no slices.
    refuses_strangers: bool,
}

#[derive(Debug)]
struct Book {
    truth: Truth,
    /// Who was killed, as long as it is found to go on.
    killed: BTreeSet<ProcessId>,
}

impl Watch {
    pub(crate) fn new(violations: Violations, refuses_strangers: bool) -> Self {
        let book = Book { truth: Truth::new(violations), killed: BTreeSet::new() };
        Self { book: Mutex::new(book), begun: Instant::now(), refuses_strangers }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("nothing panics while it holds the findings")
    }

    /// What is wrong now, in sentences for the operator.
    pub(crate) fn notes(&self) -> Vec<String> {
        let book = self.book();
        let mut notes: Vec<String> = book.truth.standing().take(SHOWN).map(sentence).collect();
        let rest = book.truth.standing().count().saturating_sub(SHOWN);
        notes.extend((rest > 0).then(|| format!("and {rest} more findings: `tranche events` has them all")));
        notes
    }

    /// Why a GPU takes no slices on account of who uses it, if so.
    pub(crate) fn obstacle(&self, gpu: GpuUuid) -> Option<String> {
        if !self.refuses_strangers {
            return None;
        }
        let book = self.book();
        let is_stranger = |finding: &&Finding| {
            finding.subject.kind == Kind::ForeignProcess && finding.subject.gpu == Some(gpu)
        };
        let pids = book.truth.standing().filter(is_stranger).filter_map(|finding| finding.who);
        let pids: Vec<String> = pids.map(|who| who.pid.to_string()).collect();
        (!pids.is_empty()).then(|| {
            format!("processes that are in no slice use it ({}), and `foreigners` says that it is not shared with them", pids.join(", "))
        })
    }
}

/// How long a slice is looked at more often than others because it holds more than it says, and how long is waited for a
/// driver to answer: after that, it is seen when everybody is.
const EAGER: Duration = Duration::from_secs(1);

/// Of these slices those that hold more than they say since a moment ago: whether they do, the driver is asked. What
/// somebody shrank and freed is to be had by others as soon as that shows.
pub(crate) async fn confirm(agent: &Arc<Agent>, tenancies: &[Arc<Tenancy>]) -> Vec<Arc<Tenancy>> {
    let is_new = |tenancy: &&Arc<Tenancy>| tenancy.doubted_for().is_some_and(|time| time < EAGER);
    let doubted: Vec<_> = tenancies.iter().filter(is_new).cloned().collect();
    if doubted.is_empty() {
        return doubted;
    }
    let (agent, asked) = (Arc::clone(agent), doubted.clone());
    let looked = tokio::task::spawn_blocking(move || {
        for tenancy in &asked {
            draw::sight(&agent, tenancy);
            agent.note_excess(tenancy);
        }
    });
    let _ = tokio::time::timeout(EAGER, looked).await; // or it is seen later
    doubted.into_iter().filter(|tenancy| tenancy.doubted_for().is_some()).collect()
}

/// Looks until the daemon ends.
pub(crate) async fn run(agent: Arc<Agent>) {
    let mut since = Since::new();
    loop {
        let looking = Arc::clone(&agent);
        let looked = tokio::task::spawn_blocking(move || look(&looking, since)).await;
        let again;
        (since, again) = looked.unwrap_or_else(|_| (Since::new(), CALM));
        tokio::time::sleep(at_no_beat(again)).await;
    }
}

/// A little less than that, and each time another: a process must not live between two looks again and again.
fn at_no_beat(time: Duration) -> Duration {
    let chance = RandomState::new().hash_one(Instant::now()) % 256;
    time.saturating_sub(time / 1024 * u32::try_from(chance).unwrap_or_default())
}

/// Asks the driver: this may block.
fn look(agent: &Agent, mut since: Since) -> (Since, Duration) {
    let watch = &agent.truth;
    let picture = draw::picture(agent, watch.refuses_strangers, &mut since);
    let outcome = watch.book().truth.look(&picture, watch.begun.elapsed());
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

/// What somebody holds beyond what he is charged for is charged to his slice, whether or not he ever stands still.
fn charge(agent: &Agent, finding: &Finding) {
    let (Some(slice), Some(gpu), Some(who)) = (&finding.subject.slice, finding.subject.gpu, finding.who)
    else {
        return;
    };
    if finding.subject.kind != Kind::UnderReported {
        return;
    }
    let Some(tenancy) = agent.core().live.get(slice).cloned() else { return };
    let device = tenancy.devices().find(|(_, of)| *of == gpu).map(|(device, _)| device);
    if let (Some(device), Some(seat)) = (device, tenancy.seat_of(who))
        && tenancy.charge_beyond(seat, device, finding.excess)
    {
        agent.note_excess(&tenancy);
    }
}

fn kill(agent: &Agent, condemned: &[Finding]) {
    let whom: BTreeMap<ProcessId, &Finding> =
        condemned.iter().filter_map(|finding| Some((finding.who?, finding))).collect();
    for (who, finding) in &whom {
        if agent.truth.book().killed.contains(who) {
            continue;
        }
        // By its start time as well: whoever has the pid by now may be somebody else.
        match Process::reopen(*who).and_then(|process| process.kill()) {
            Ok(()) => agent.events.record(finding.told_killed()),
            Err(error) => tracing::info!(pid = %who.pid, %error, "who was to be killed could not be"),
        }
        agent.truth.book().killed.insert(*who);
    }
    agent.truth.book().killed.retain(|who| whom.contains_key(who));
}

/// Kills every process of a slice: those that joined, those that entered, and their descendants, or all in its container.
/// The job runner of a slice that is a job's stays, as it says what became of the job.
fn end(agent: &Agent, name: &SliceName, last: &Finding) {
    let core = agent.core();
    let (Some(tenancy), Ok(slice)) = (core.live.get(name).cloned(), core.node.slice(name)) else { return };
    let is_job = slice.job.is_some();
    drop(core);
    let roots = tenancy.occupants().roots;
    let spared = |id: &ProcessId| is_job && roots.contains(id);
    // What is started meanwhile is found by the next round, as long as anything is.
    let mut killed = BTreeSet::new();
    for _ in 0..ROUNDS {
        let its = Kin::of(&agent.tenancies()).all_of(&tenancy);
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
