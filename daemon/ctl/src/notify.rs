//! `tranche notify`: follows jobs, and reports their changes to a command, a webhook or by mail.
//!
//! It runs as its user and needs no right that `tranche list` does not need, so that the daemon starts no programs and
//! opens no connections for users.

pub mod delivery;
mod message;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use tranche_domain::event::{Event, EventKind};
use tranche_domain::jobs::{JobName, JobState, JobView, ProjectName};

use crate::cli::{JobChange, NotifyArgs};
use crate::client::Daemon;
use crate::errors::Failure;
use crate::jobs::project;
use crate::when;
use message::{ChangeReport, change, subject};

/// Pause before another attempt to reach a daemon that has gone.
const PAUSE: Duration = Duration::from_secs(2);
/// Interval at which the end of a deleted job is looked for.
const STOPPING_PAUSE: Duration = Duration::from_millis(200);

/// Progress of the notifications.
struct JobFollower<'a> {
    args: &'a NotifyArgs,
    socket: &'a Path,
    project: Option<ProjectName>,
    /// Named jobs that have not ended.
    left: BTreeSet<JobName>,
    /// Number and time of the last event that was handled.
    last: (u64, u64),
    began_unix_ms: u64,
    undelivered: usize,
}

/// Follows jobs until those that are named have ended, or until interrupted.
pub fn notify(args: &NotifyArgs, socket: &Path) -> Result<(), Failure> {
    delivery::check(args)?;
    let mut daemon = Daemon::connect(socket)?;
    let named = !args.jobs.is_empty();
    let project = match (&args.project, named) {
        (project, true) => Some(project::which(&mut daemon, project.as_ref())?),
        (project, false) => project.clone(),
    };
    let left = args.jobs.iter().cloned().collect();
    let began_unix_ms = when::now_unix_ms();
    let mut follower =
        JobFollower { args, socket, project, left, last: (0, 0), began_unix_ms, undelivered: 0 };
    follower.check_ended(&mut daemon)?;
    while !named || !follower.left.is_empty() {
        if let Err(failure) = follower.follow(&mut daemon) {
            eprintln!("tranche: {failure}\ntranche: the daemon is tried again every {} s", PAUSE.as_secs());
        }
        if named && follower.left.is_empty() {
            break;
        }
        daemon = reconnected(socket);
        // The events of jobs that ended or were deleted meanwhile may be forgotten.
        let caught_up = follower.drop_deleted(&mut daemon).and_then(|()| follower.check_ended(&mut daemon));
        if let Err(failure) = caught_up {
            eprintln!("tranche: {failure}");
        }
    }
    match follower.undelivered {
        0 => Ok(()),
        count => Err(Failure::Undelivered(count)),
    }
}

fn reconnected(socket: &Path) -> Daemon {
    loop {
        sleep(PAUSE);
        if let Ok(daemon) = Daemon::connect(socket) {
            return daemon;
        }
    }
}

impl JobFollower<'_> {
    /// Reports named jobs that have ended already.
    fn check_ended(&mut self, daemon: &mut Daemon) -> Result<(), Failure> {
        let Some(project) = self.project.clone() else { return Ok(()) };
        for name in self.left.clone() {
            let jobs = daemon.jobs(Some(&project), Some(&name))?;
            for job in jobs.iter().filter(|job| job.state.is_final()) {
                self.report(JobChange::Ended, job, None, "", job.ended_unix_ms.unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Handles events until the connection ends, or nothing is left to follow.
    fn follow(&mut self, daemon: &mut Daemon) -> Result<(), Failure> {
        let (mut lookup, named) = (Daemon::connect(self.socket)?, !self.args.jobs.is_empty());
        daemon.events(0, None, true, |event| {
            self.handle(&event, &mut lookup)?;
            let done = named && self.left.is_empty();
            Ok(if done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
    }

    fn handle(&mut self, event: &Event, lookup: &mut Daemon) -> Result<(), Failure> {
        let known = event.seq <= self.last.0 && event.time_unix_ms <= self.last.1;
        if known || event.time_unix_ms < self.began_unix_ms {
            return Ok(());
        }
        self.look(event, lookup)?;
        // Only now, so that an event whose job could not be looked up is handled after the next connection.
        self.last = (event.seq, event.time_unix_ms);
        Ok(())
    }

    fn look(&mut self, event: &Event, lookup: &mut Daemon) -> Result<(), Failure> {
        if event.kind == EventKind::JobDeleted {
            return self.drop_deleted(lookup);
        }
        let Some((project, name, member)) = subject(event) else { return Ok(()) };
        let other = self.project.as_ref().is_some_and(|own| *own != project);
        if other || !self.args.jobs.is_empty() && !self.left.contains(&name) {
            return Ok(());
        }
        let Some(jobs) = found(lookup.jobs(Some(&project), Some(&name)))? else {
            return self.drop_deleted(lookup);
        };
        let of_user = |job: &&JobView| self.args.all || !self.args.jobs.is_empty() || job.uid == own_uid();
        if let Some(job) = jobs.iter().find(of_user)
            && let Some(change) = change(event, job)
        {
            self.report(change, job, Some(member), &event.evidence, event.time_unix_ms);
        }
        Ok(())
    }

    /// Drops named jobs that were deleted, as they have nothing more to report.
    fn drop_deleted(&mut self, lookup: &mut Daemon) -> Result<(), Failure> {
        let Some(project) = self.project.clone() else { return Ok(()) };
        for name in self.left.clone() {
            // A deleted job stops before it is gone, and no event follows.
            while let Some(jobs) = found(lookup.jobs(Some(&project), Some(&name)))? {
                if jobs.iter().all(|job| job.state != JobState::Stopping) {
                    break;
                }
                sleep(STOPPING_PAUSE);
            }
            if found(lookup.jobs(Some(&project), Some(&name)))?.is_none() {
                eprintln!("tranche: job {name} of project {project} was deleted");
                self.left.remove(&name);
            }
        }
        Ok(())
    }

    fn report(
        &mut self,
        change: JobChange,
        job: &JobView,
        member: Option<u32>,
        evidence: &str,
        time_unix_ms: u64,
    ) {
        if self.args.on.contains(&change) {
            let report = ChangeReport::new(change, job, member, evidence, time_unix_ms);
            for error in delivery::deliver(self.args, &report) {
                eprintln!("tranche: not reported: {}: {error}", report.text);
                self.undelivered += 1;
            }
        }
        if change == JobChange::Ended {
            self.left.remove(&job.name);
        }
    }
}

/// The answer, or `None` where the job does not exist.
fn found<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Failure::Refused(status)) if status.code() == tonic::Code::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn own_uid() -> u32 {
    nix::unistd::getuid().as_raw()
}
