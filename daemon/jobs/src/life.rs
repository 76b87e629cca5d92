//! The life of a member between a place and its leaving it: a slice is made, a shepherd started in it, and waited for.
//!
//! Whatever the daemon dies in the midst of, the next one begins at [`Begin::Again`], and what is written down of the
//! start says how far it came.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::sleep;
use tranche_domain::id::GpuUuid;
use tranche_domain::jobs::MemberId;
use tranche_domain::slice::ProcessId;
use tranche_shm::crash::point;

use crate::desk::Desk;
use crate::entry::{Entry, Run};
use crate::flock::{Hail, Order};
use crate::folder::{Attempt, Written, is_deserted, kept_of_each};
use crate::launch::{Refusal, Wanted};
use crate::site::{JobSlice, Site, What};
use crate::state::Tended;

/// Where a life is entered.
#[derive(Debug)]
pub(crate) enum Begin {
    /// It starts on these GPUs.
    Fresh(Vec<GpuUuid>),
    /// An earlier daemon started it, perhaps.
    Again,
}

/// How often a shepherd of an earlier daemon is looked for that has not said who it is.
const LOOK: Duration = Duration::from_millis(10);
/// Beyond what it was given, until a shepherd that does not leave is ended with all of its slice.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a life needs to know of its member.
#[derive(Clone, Debug)]
struct Known {
    attempt: Attempt,
    entry: Entry,
    slice: JobSlice,
    tended: Arc<Tended>,
}

/// Looks after a member until it has left.
pub(crate) async fn live<S: Site>(desk: Arc<Desk<S>>, member: MemberId, begin: Begin) {
    let Some(known) = known(&desk, member) else { return };
    let begun = match begin {
        Begin::Fresh(gpus) => begin_fresh(&desk, &known, gpus).await,
        Begin::Again => Ok(find(&desk, &known).await),
    };
    let run = match begun {
        Ok(shepherd) => watch(&desk, &known, shepherd).await,
        Err(Refusal { why, for_good: true }) => Run::Barred(why),
        Err(Refusal { why, .. }) => Run::Refused(why),
    };
    point("jobs: ended");
    desk.site.close(&known.slice).await;
    point("jobs: closed");
    if let Run::Refused(why) = &run {
        let pause = desk.state().refuse(member, why.clone());
        // Or it need not be tried again.
        let wait = tokio::time::timeout(pause, known.tended.leave.notified());
        let _ = noted(&desk.site, format!("job {}: {why}", known.slice.name), wait).await;
    }
    desk.left(member, run);
}

/// Waits for something, and notes meanwhile what is so until then.
async fn noted<T>(site: &impl Site, note: String, wait: impl Future<Output = T>) -> T {
    site.note(note.clone());
    let came = wait.await;
    site.withdraw(&note);
    came
}

fn known<S: Site>(desk: &Desk<S>, member: MemberId) -> Option<Known> {
    let state = desk.state();
    let entry = state.entries.get(&member.job)?.clone();
    let start = entry.members.get(&member.index).map_or(0, |known| known.starts);
    let tended = Arc::clone(state.tended.get(&member)?);
    let slice = JobSlice { name: entry.slice(member), member };
    Some(Known { attempt: Attempt { member, start }, slice, entry, tended })
}

/// Starts a member where there is nobody yet.
async fn begin_fresh<S: Site>(
    desk: &Arc<Desk<S>>,
    known: &Known,
    gpus: Vec<GpuUuid>,
) -> Result<Option<ProcessId>, Refusal> {
    let (desk, known) = (Arc::clone(desk), known.clone());
    let started = tokio::task::spawn_blocking(move || start(&desk, &known, &gpus)).await;
    started.map_err(|error| error.to_string())?.map(Some)
}

fn start<S: Site>(desk: &Desk<S>, known: &Known, gpus: &[GpuUuid]) -> Result<ProcessId, Refusal> {
    let Known { attempt, entry, slice, tended } = known;
    desk.site.open(slice, entry.spec.size, gpus, entry.owner)?;
    point("jobs: opened");
    let launch = desk.store.launch(attempt.member.job).map_err(|error| error.to_string())?;
    let launch = launch.ok_or_else(|| {
        "what it is to run is not in the store any more; delete it and submit it again".to_owned()
    })?;
    desk.folders
        .prepare(*attempt)
        .map_err(|error| format!("cannot make a file for what it prints: {error}"))?;
    point("jobs: prepared");
    let shepherd = desk.launcher.start(&Wanted {
        hail: Hail {
            uid: entry.owner.uid,
            gid: entry.owner.gid,
            attempt: desk.folders.attempt(*attempt),
            log: desk.folders.log(attempt.member),
            kept: kept_of_each(entry.spec.completions),
        },
        index: attempt.member.index,
        ticket: entry.ticket.as_ref(),
        launch: &launch,
    })?;
    point("jobs: hailed");
    let environment = launch.environment.into_iter().chain(own_environment(entry, attempt.member)).collect();
    let environment = desk.site.enter(slice, shepherd.process, environment)?;
    point("jobs: entered");
    let process = shepherd.order(&Order {
        command: launch.command,
        environment,
        workdir: launch.workdir.into(),
        farewell: entry.terms.farewell,
    })?;
    point("jobs: ordered");
    let _ = tended.shepherd.set(process);
    desk.state().refused.remove(&attempt.member);
    desk.tell(attempt.member, What::Started);
    Ok(process)
}

/// What tells members of a job apart, and where they are.
fn own_environment(entry: &Entry, member: MemberId) -> Vec<(String, String)> {
    let pair = |name: &str, value: String| (name.to_owned(), value);
    vec![
        pair("TRANCHE_JOB_NAME", entry.spec.name.to_string()),
        pair("TRANCHE_JOB_PROJECT", entry.spec.project.to_string()),
        pair("TRANCHE_JOB_INDEX", member.index.to_string()),
        pair("TRANCHE_JOB_COMPLETIONS", entry.spec.completions.to_string()),
        pair(
            "TRANCHE_JOB_START",
            entry.members.get(&member.index).map_or(1, |known| known.starts).to_string(),
        ),
    ]
}

/// Finds the shepherd that an earlier daemon started, if there is one.
async fn find<S: Site>(desk: &Arc<Desk<S>>, known: &Known) -> Option<ProcessId> {
    let path = desk.folders.attempt(known.attempt);
    loop {
        let deserted = is_deserted(&path);
        let shepherd = Written::read(&path).shepherd.filter(|_| !deserted);
        if let Some(shepherd) = shepherd {
            let _ = known.tended.shepherd.set(shepherd);
        }
        if deserted || shepherd.is_some() {
            return shepherd;
        }
        sleep(LOOK).await;
    }
}

/// Waits for a shepherd, and tells it to end its command when that is to leave; returns what came of it.
async fn watch<S: Site>(desk: &Arc<Desk<S>>, known: &Known, shepherd: Option<ProcessId>) -> Run {
    if let Some(shepherd) = shepherd {
        // One who was to leave before we came is told again.
        if is_leaving(desk, known.attempt.member) {
            known.tended.leave.notify_one();
        }
        tokio::select! {
            () = desk.site.ended(shepherd) => {}
            () = known.tended.leave.notified() => see_off(desk, known, shepherd).await,
        }
    }
    Written::read(&desk.folders.attempt(known.attempt)).run()
}

fn is_leaving<S: Site>(desk: &Desk<S>, member: MemberId) -> bool {
    let state = desk.state();
    let member = state.entries.get(&member.job).and_then(|entry| entry.members.get(&member.index));
    member.is_some_and(|member| member.farewell.is_some())
}

async fn see_off<S: Site>(desk: &Arc<Desk<S>>, known: &Known, shepherd: ProcessId) {
    desk.site.signal(shepherd, Signal::SIGTERM);
    point("jobs: told");
    let patience = known.entry.terms.farewell.grace * 2 + PATIENCE;
    if tokio::time::timeout(patience, desk.site.ended(shepherd)).await.is_err() {
        let note = format!("job {} did not end as it was told to, and is killed", known.slice.name);
        let killed = async {
            desk.site.close(&known.slice).await;
            desk.site.ended(shepherd).await;
        };
        noted(&desk.site, note, killed).await;
    }
}

impl<S: Site> Desk<S> {
    /// A member has left, and its slice is gone.
    fn left(&self, member: MemberId, run: Run) {
        let mut state = self.state();
        let slice = state.entries.get(&member.job).map(|entry| entry.slice(member));
        let end = state.left(member, run, self.now());
        point("jobs: left");
        if !state.entries.contains_key(&member.job) {
            self.folders.remove(member.job);
        }
        if let (Some(slice), Some(end)) = (slice, end) {
            let what = if end.success { What::Succeeded } else { What::Failed };
            self.site.record(crate::site::Happened { what, slice, evidence: end.public().into() });
        }
        drop(state);
        self.bell.notify_one();
    }
}
