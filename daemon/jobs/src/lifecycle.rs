//! Lifecycle of a bound member: creation of its slice, start of its job runner, and the runner's end.
//!
//! After a crash of the daemon the next one enters at [`Begin::Again`]; the status file shows how far the
//! start came.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;
use tranche_domain::id::GpuUuid;
use tranche_domain::jobs::MemberId;
use tranche_domain::slice::ProcessId;
use tranche_shm::crash::point;

use crate::controller::JobController;
use crate::folder::{Attempt, StatusContent, is_deserted, kept_of_each};
use crate::launch::{LeftBehind, StartRefusal, StartRequest};
use crate::paused::PausedMember;
use crate::record::{JobRecord, Run, StopReason};
use crate::runner_protocol::{CommandOrder, CommandOutcome, ContainerOrder, RunnerSetup, container_name};
use crate::site::{JobCondition, JobSite, JobSlice, What};
use crate::state::Supervised;
use crate::stopping::stop_runner;

/// Entry point into the lifecycle.
#[derive(Debug)]
pub(crate) enum Begin {
    /// Start on these GPUs.
    Fresh(Vec<GpuUuid>),
    /// Continue a start that an earlier daemon may have made.
    Again,
}

/// Interval of polling for the identity of an earlier daemon's runner.
const LOOK: Duration = Duration::from_millis(10);
/// Interval of reading whether a service has become healthy.
const HEALTH_LOOK: Duration = Duration::from_millis(500);

/// Data of the member that the lifecycle needs.
#[derive(Clone, Debug)]
struct KnownMember {
    attempt: Attempt,
    entry: JobRecord,
    slice: JobSlice,
    supervised: Arc<Supervised>,
}

/// Supervises a member until it has exited.
pub(crate) async fn supervise<S: JobSite>(controller: Arc<JobController<S>>, member: MemberId, begin: Begin) {
    let Some(known) = known(&controller, member) else { return };
    let begun = match begin {
        // It was deleted or suspended since the decision to start it.
        Begin::Fresh(_) if is_leaving(&controller, member) => Ok(None),
        Begin::Fresh(gpus) => {
            let (controller, known) = (Arc::clone(&controller), known.clone());
            let started = tokio::task::spawn_blocking(move || start(&controller, &known, &gpus)).await;
            started.unwrap_or_else(|error| Err(error.to_string().into()))
        }
        Begin::Again => {
            // An earlier daemon may have decided that it returns.
            if !is_leaving(&controller, member) && !controller.state().scheduler.is_parked(member) {
                known.supervised.back.notify_one();
            }
            Ok(find(&controller, &known).await)
        }
    };
    let run = match begun {
        Ok(shepherd) => watch(&controller, &known, shepherd).await,
        Err(StartRefusal { why, for_good: true }) => Run::Barred(why),
        Err(StartRefusal { why, .. }) => Run::Refused(why),
    };
    point("jobs: ended");
    remove_container(&controller, &known, &run).await;
    controller.site.close(&known.slice).await;
    point("jobs: closed");
    let paused = controller.state().pause_after(member, &run, controller.now());
    if let Some(paused) = paused {
        // The mates of its gang do not run without it meanwhile.
        controller.state().scheduler.member_leaves(member);
        controller.bell.notify_one();
        if let Run::Ended { outcome, .. } = &run {
            controller.record_event_of(&controller.state(), member, What::Restarted, &outcome.public());
        }
        pause(&controller, &known, &paused).await;
    }
    controller.left(member, run);
}

/// Waits until the member may be started again, or has to stop.
async fn pause<S: JobSite>(controller: &Arc<JobController<S>>, known: &KnownMember, paused: &PausedMember) {
    let wait = tokio::time::timeout(paused.pause(), known.supervised.leave.notified());
    let condition = JobCondition::NotStarted(known.slice.name.clone());
    let reason = paused.reason(false);
    controller.site.set_condition(condition.clone(), format!("job {}: {reason}", known.slice.name));
    let _ = wait.await;
    controller.site.clear_condition(condition);
}

/// Removes the container of a member whose runner was ended before it could. A container whose runner ended by itself
/// was removed by that.
async fn remove_container<S: JobSite>(controller: &Arc<JobController<S>>, known: &KnownMember, run: &Run) {
    if !matches!(run, Run::Ended { outcome: CommandOutcome::Lost, .. }) || known.entry.image.is_none() {
        return;
    }
    let (controller, lost) = (Arc::clone(controller), known.clone());
    let removed = tokio::task::spawn_blocking(move || {
        let KnownMember { attempt: Attempt { member, .. }, entry, slice, .. } = &lost;
        let launch = controller.store.launch(member.job).map_err(|error| error.to_string())?;
        let Some(spec) = launch.and_then(|launch| launch.container) else { return Ok(()) };
        let left = LeftBehind {
            owner: entry.owner,
            index: member.index,
            ticket: entry.ticket.as_ref(),
            name: container_name(&slice.name),
            spec: &spec,
        };
        let removed = controller.launcher.remove(&left);
        removed.inspect_err(|why| {
            let name = &left.name;
            controller.folders.note(
                *member,
                &format!("container {name} may be left: {why}; `podman rm -f {name}` removes it"),
            );
        })
    });
    if let Ok(Err(error)) = removed.await {
        tracing::warn!(slice = %known.slice.name, %error, "the container of a lost job runner may be left");
    }
}

fn known<S: JobSite>(controller: &JobController<S>, member: MemberId) -> Option<KnownMember> {
    let state = controller.state();
    let entry = state.entries.get(&member.job)?.clone();
    let start = entry.members.get(&member.index).map_or(0, |known| known.starts);
    let supervised = Arc::clone(state.supervised.get(&member)?);
    let slice = JobSlice { name: entry.slice(member), member };
    Some(KnownMember { attempt: Attempt { member, start }, slice, entry, supervised })
}

/// Starts the command of a member that has no runner; `None` if a stop was requested before its order.
fn start<S: JobSite>(
    controller: &JobController<S>,
    known: &KnownMember,
    gpus: &[GpuUuid],
) -> Result<Option<ProcessId>, StartRefusal> {
    let KnownMember { attempt, entry, slice, supervised } = known;
    controller.site.open(slice, &entry.spec, gpus, entry.owner)?;
    point("jobs: opened");
    let launch = controller.store.launch(attempt.member.job).map_err(|error| error.to_string())?;
    let launch = launch.ok_or_else(|| {
        "what it is to run is not in the store any more; delete it and submit it again".to_owned()
    })?;
    controller
        .folders
        .prepare(*attempt)
        .map_err(|error| format!("cannot make a file for what it prints: {error}"))?;
    point("jobs: prepared");
    let shepherd = controller.launcher.start(&StartRequest {
        setup: RunnerSetup {
            uid: entry.owner.uid,
            gid: entry.owner.gid,
            attempt: controller.folders.attempt(*attempt),
            log: controller.folders.log(attempt.member),
            kept: kept_of_each(entry.spec.completions),
            limits: entry.terms.host,
        },
        index: attempt.member.index,
        ticket: entry.ticket.as_ref(),
        launch: &launch,
        service: entry.spec.service.as_ref(),
    })?;
    point("jobs: hailed");
    let own = entry.environment_of(attempt.member);
    let environment = launch.environment.into_iter().chain(own).collect();
    let environment = controller.site.enter(slice, shepherd.process, environment)?;
    point("jobs: entered");
    if is_leaving(controller, attempt.member) {
        return Ok(None);
    }
    let process = shepherd.order(&CommandOrder {
        command: launch.command,
        environment,
        workdir: launch.workdir.into(),
        farewell: entry.terms.farewell,
        container: launch.container.map(|spec| ContainerOrder {
            name: container_name(&slice.name),
            spec,
            document: controller.site.document(slice),
        }),
        health: entry.spec.service.as_ref().and_then(|service| service.health.clone()),
    })?;
    point("jobs: ordered");
    let _ = supervised.shepherd.set(process);
    controller.state().paused.remove(&attempt.member);
    controller.record_event(attempt.member, What::Started);
    Ok(Some(process))
}

/// Finds the runner of an earlier daemon, if it exists.
async fn find<S: JobSite>(controller: &Arc<JobController<S>>, known: &KnownMember) -> Option<ProcessId> {
    let path = controller.folders.attempt(known.attempt);
    loop {
        let deserted = is_deserted(&path);
        let shepherd = StatusContent::read(&path).shepherd.filter(|_| !deserted);
        if let Some(shepherd) = shepherd {
            let _ = known.supervised.shepherd.set(shepherd);
        }
        if deserted || shepherd.is_some() {
            return shepherd;
        }
        sleep(LOOK).await;
    }
}

/// Waits for the runner, and returns the result.
async fn watch<S: JobSite>(
    controller: &Arc<JobController<S>>,
    known: &KnownMember,
    shepherd: Option<ProcessId>,
) -> Run {
    if let Some(shepherd) = shepherd {
        attend(controller, known, shepherd).await;
        // A return that was repeated until the member's end leaves none behind.
        controller.site.clear_condition(JobCondition::NotStarted(known.slice.name.clone()));
    }
    StatusContent::read(&controller.folders.attempt(known.attempt)).run()
}

/// Parks, brings back or stops a member as requested, until its runner has ended.
async fn attend<S: JobSite>(controller: &Arc<JobController<S>>, known: &KnownMember, shepherd: ProcessId) {
    let KnownMember { attempt: Attempt { member, .. }, slice, supervised, .. } = known;
    // A stop request from before a restart of the daemon is repeated.
    if controller.state().has_to_leave(*member) {
        supervised.leave.notify_one();
    }
    loop {
        tokio::select! {
            () = controller.site.ended(shepherd) => return,
            () = supervised.leave.notified() => {
                if !controller.park(*member, slice).await {
                    return stop_runner(controller, &known.entry, slice, shepherd).await;
                }
            }
            () = supervised.back.notified() => {
                if !controller.unpark(*member, slice).await {
                    supervised.back.notify_one();
                }
            }
            never = observe_health(controller, known) => match never {},
        }
    }
}

/// Notes once the service has passed its check of health. Never returns.
async fn observe_health<S: JobSite>(controller: &JobController<S>, known: &KnownMember) -> Infallible {
    let path = controller.folders.attempt(known.attempt);
    if known.entry.spec.service.as_ref().is_some_and(|service| service.health.is_some()) {
        while !StatusContent::read(&path).healthy {
            sleep(HEALTH_LOOK).await;
        }
        known.supervised.healthy.store(true, Ordering::Relaxed);
    }
    std::future::pending().await
}

fn is_leaving<S: JobSite>(controller: &JobController<S>, member: MemberId) -> bool {
    controller.state().farewell(member).is_some()
}

impl<S: JobSite> JobController<S> {
    /// Handles the exit of a member whose slice is gone.
    fn left(&self, member: MemberId, run: Run) {
        let mut state = self.state();
        let entry = state.entries.get(&member.job);
        let slice = entry.map(|entry| entry.slice(member));
        let farewell = state.farewell(member);
        let is_service = entry.is_some_and(|entry| entry.spec.service.is_some());
        let ended = match &run {
            Run::Ended { outcome, .. } => Some(outcome.clone()),
            Run::Never | Run::Refused(_) | Run::Barred(_) => None,
        };
        let end = state.left(member, run, self.now());
        point("jobs: left");
        match state.entries.get(&member.job) {
            None => self.folders.remove(member.job),
            Some(_) if end.is_none() => {
                if let Some(outcome) = ended.as_ref().filter(|_| farewell.is_none() && !is_service) {
                    self.record_event_of(&state, member, What::Restarted, &outcome.public());
                }
                let farewell = farewell.as_ref();
                let reason = farewell
                    .map(|farewell| format!("stopped, {farewell}"))
                    .or(ended.map(|outcome| outcome.to_string()));
                reason.into_iter().for_each(|reason| {
                    self.folders.note(member, &format!("{reason}; it starts again in its turn"));
                });
            }
            Some(_) => {}
        }
        // A deletion has an event of its own.
        let final_end = end.filter(|end| end.success || farewell != Some(StopReason::Deleted));
        if let (Some(slice), Some(end)) = (slice, final_end) {
            let what = if end.success { What::Succeeded } else { What::Failed };
            self.site.record(crate::site::Happened { what, slice, evidence: end.public().into() });
        }
        drop(state);
        self.bell.notify_one();
    }
}
