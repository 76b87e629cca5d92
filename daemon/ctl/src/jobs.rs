//! Commands for jobs and projects.
//!
//! `tranche submit`, `list`, `describe`, `logs`, `exec`, `suspend`, `resume`, `delete`, `history` and `project`.

mod attestation;
mod batch;
mod container;
mod environment;
pub mod file;
mod history;
mod listing;
mod naming;
pub(crate) mod project;
mod projects;
mod report;
mod show;
mod submission;
mod svg;

pub use history::history;
pub use project::PROJECT_FILE;
pub use project::project;
pub use report::report;

use std::io::{IsTerminal, Write, stdout};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::json;
use tranche_domain::jobs::{JobName, JobState, JobView, ProjectName, Submission};
use tranche_rpc::v1;

use crate::cli::{
    DeleteJobsArgs, DescribeArgs, ExecArgs, JobArgs, ListArgs, ListForm, LogsArgs, RunArgs, SizeArgs,
    SubmitArgs,
};
use crate::client::{Daemon, Reconnection};
use crate::errors::Failure;
use crate::listing::canvas;
use crate::terminal::Canvas;
use crate::users::Names;
use crate::when::Clock;
use crate::{out, run};

/// Moves to the upper left corner and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Interval of `--watch`.
const LOOK: Duration = Duration::from_secs(1);

/// Command that runs the best shell of a container.
const CONTAINERS_SHELL: [&str; 3] =
    ["sh", "-c", "if command -v bash >/dev/null; then exec bash; else exec sh; fi"];

/// Submits a job, or all jobs of a file or none, and prints them.
pub fn submit(args: &SubmitArgs, socket: &Path) -> Result<(), Failure> {
    let mut daemon = Daemon::connect(socket)?;
    let Some(file) = &args.file else {
        let job = submit_one(&mut daemon, args)?;
        return report_submitted(args, &job);
    };
    // All of the file is read before the first job is submitted, and all are submitted before the first is printed.
    let jobs = file::jobs(file, args)?;
    let delete = |daemon: &mut Daemon, job: &JobView| delete_one(daemon, &job.project, &job.name);
    let submitted = batch::all_or_none(&mut daemon, file, &jobs, submit_one, delete)?;
    jobs.iter().zip(&submitted).try_for_each(|(args, job)| report_submitted(args, job))
}

fn submit_one(daemon: &mut Daemon, args: &SubmitArgs) -> Result<JobView, Failure> {
    let project = project::which(daemon, args.project.as_ref())?;
    let submission = submission::submission(args, project)?;
    let job = naming::submit_named(daemon, &submission, args.name.as_ref(), with_ticket)?;
    understood(daemon, args, &job)?;
    Ok(job)
}

fn report_submitted(args: &SubmitArgs, job: &JobView) -> Result<(), Failure> {
    if args.output.json {
        return out::json(job);
    }
    warning(args).iter().for_each(|warning| eprintln!("tranche: {warning}"));
    let JobView { name, project, state, .. } = job;
    let reason = if job.reason.is_empty() { String::new() } else { format!(": {}", job.reason) };
    out::print(&format!("submitted {name} to project {project}; it is {state}{reason}"))
}

/// Deletes a job whose limits an earlier release of the daemon has ignored.
fn understood(daemon: &mut Daemon, args: &SubmitArgs, job: &JobView) -> Result<(), Failure> {
    let taken = [
        ("--memory", args.memory.is_none() || job.memory.is_some()),
        ("--compute", args.compute.is_none() || job.compute.is_some()),
        ("--cpus", args.cpus.is_none() || job.cpus.is_some()),
        ("--serve", !args.service.serve || job.service.is_some()),
        ("--mem", args.host_memory.is_none() || job.host_memory.is_some()),
    ];
    match taken.iter().find(|(_, is_taken)| !is_taken) {
        None => Ok(()),
        Some((option, _)) => {
            delete_one(daemon, &job.project, &job.name)?;
            Err(Failure::EarlierDaemon { option })
        }
    }
}

/// Submits a job with a ticket of the job launcher.
fn with_ticket(daemon: &mut Daemon, submission: Submission) -> Result<JobView, Failure> {
    let ticket = attestation::ticket(&daemon.socket, &submission)?;
    daemon.submit(Submission { ticket: ticket.clone(), ..submission }).inspect_err(|_| {
        ticket.into_iter().for_each(|ticket| attestation::revoke(&daemon.socket, ticket));
    })
}

/// Warning about a job that cannot start as submitted.
fn warning(args: &SubmitArgs) -> Option<String> {
    let is_ours = args.container.image.is_none();
    let missing = args.workdir.as_ref().filter(|folder| is_ours && !folder.is_dir())?;
    Some(format!(
        "there is no folder {} now: if there is none when it is to start, it fails",
        missing.display()
    ))
}

/// Prints the jobs of a project or of all; repeatedly with `--watch`.
pub fn list(args: &ListArgs, socket: &Path) -> Result<(), Failure> {
    let mut daemon = Daemon::connect(socket)?;
    let chosen = match &args.project {
        None if !args.all => project::chosen(&mut daemon)?,
        named => named.clone(),
    };
    let before = if stdout().is_terminal() { CLEAR } else { "" };
    let mut reconnection = Reconnection::new(socket);
    loop {
        let jobs = match daemon.jobs(chosen.as_ref(), None) {
            Err(failure) if args.watch => {
                daemon = reconnection.after(failure)?;
                continue;
            }
            jobs => jobs?,
        };
        let listing = listing::of(jobs, &Names::default(), SystemTime::now());
        match (args.listing.form(), args.watch) {
            (_, false) => return listing.print(&args.listing),
            (Some(ListForm::Json), true) => out::json_line(&listing.selected(&args.listing)?.views())?,
            (Some(ListForm::Csv | ListForm::Name), true) => listing.print(&args.listing)?,
            (None | Some(ListForm::Wide), true) => {
                out::page_after(before, &listing.selected(&args.listing)?.page(canvas(&args.listing)))?;
            }
        }
        std::thread::sleep(LOOK);
    }
}

/// Shows a job in detail.
pub fn describe(args: &DescribeArgs, clock: Clock, socket: &Path) -> Result<(), Failure> {
    let job = one(&mut Daemon::connect(socket)?, &args.job)?;
    if args.output.json {
        out::json(&job)
    } else {
        out::page(&show::description(&job, clock, Canvas::of_stdout()))
    }
}

fn one(daemon: &mut Daemon, args: &JobArgs) -> Result<JobView, Failure> {
    let project = project::which(daemon, args.project.as_ref())?;
    let jobs = daemon.jobs(Some(&project), Some(&args.name))?;
    let gone =
        || Failure::Refused(tonic::Status::not_found(format!("job {} is not there any more", args.name)));
    jobs.into_iter().next().ok_or_else(gone)
}

/// Shows a job's output.
pub fn logs(args: &LogsArgs, socket: &Path) -> Result<(), Failure> {
    let mut daemon = Daemon::connect(socket)?;
    let project = project::which(&mut daemon, args.job.project.as_ref())?;
    let request = v1::FollowLogRequest {
        project: project.to_string(),
        name: args.job.name.to_string(),
        member: args.member,
        last_lines: args.tail,
        follow: args.follow,
        from_byte: None,
    };
    let mut reconnection = Reconnection::new(socket);
    let mut printed = None;
    let job = loop {
        let from_byte = printed;
        let followed = daemon.log(v1::FollowLogRequest { from_byte, ..request.clone() }, |part, next| {
            printed = Some(next);
            let mut out = stdout().lock();
            out.write_all(part).and_then(|()| out.flush()).map_err(Failure::Output)
        });
        match followed.and_then(|()| daemon.jobs(Some(&project), Some(&args.job.name))) {
            Ok(jobs) => break jobs.into_iter().next(),
            // An earlier release of the daemon sends no offsets: what was printed would be printed again.
            Err(failure) if args.follow && printed != Some(0) => daemon = reconnection.after(failure)?,
            Err(failure) => return Err(failure),
        }
    };
    job.iter()
        .flat_map(|job| about_log(job, args.member, printed.is_some()))
        .for_each(|note| eprintln!("tranche: {note}"));
    Ok(())
}

/// Remarks on a log: an absent, cut or ended one.
fn about_log(job: &JobView, member: u32, printed: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let reason = if job.reason.is_empty() { String::new() } else { format!(": {}", job.reason) };
    if !printed {
        notes.push(format!("it has printed nothing; job {} is {}{reason}", job.name, listing::word(job)));
    }
    if job.completions > 1 && member == 0 {
        notes.push(format!("this is member 0 of {}; -m shows another's", job.completions));
    }
    notes
}

/// Runs a program in the slice of a job.
pub fn exec(args: ExecArgs, socket: &Path) -> Result<u8, Failure> {
    let job = one(&mut Daemon::connect(socket)?, &args.job)?;
    let running = job.members.iter().find(|member| member.state == JobState::Running);
    let slice = running.and_then(|member| member.slice.clone()).ok_or_else(|| Failure::NotRunning {
        job: job.name.to_string(),
        state: listing::word(&job),
        is_over: job.state.is_final(),
        reason: job.reason.clone(),
    })?;
    let is_contained = job.image.is_some();
    let command = if is_contained { container::inside(&job, &slice, args.command)? } else { args.command };
    let inside = RunArgs { size: SizeArgs::default(), name: None, slice: Some(slice), command };
    if is_contained {
        return run::run(&inside, socket);
    }
    let Some(environment) = running.and_then(|member| environment::of_member(member.pid?)) else {
        eprintln!(
            "tranche: the job's environment is another user's or cannot be read: the command gets this shell's"
        );
        return run::run(&inside, socket);
    };
    run::run_with(&inside, socket, environment)
}

/// Opens a shell in the slice of a job.
pub fn bash(job: JobArgs, socket: &Path) -> Result<u8, Failure> {
    let image = one(&mut Daemon::connect(socket)?, &job)?.image;
    // Many images have no other shell.
    let shell = if image.is_some() { CONTAINERS_SHELL.map(Into::into).into() } else { vec!["bash".into()] };
    exec(ExecArgs { job, command: shell }, socket)
}

/// Suspends or resumes a job.
pub fn suspend(args: &DescribeArgs, suspended: bool, socket: &Path) -> Result<(), Failure> {
    let DescribeArgs { job: JobArgs { name, project }, output } = args;
    let mut daemon = Daemon::connect(socket)?;
    let project = project::which(&mut daemon, project.as_ref())?;
    let job = daemon.suspend(&project, name, suspended)?;
    if output.json {
        return out::json(&job);
    }
    let done = if suspended { "suspended" } else { "resumed" };
    out::print(&format!("{done} {name} of project {project}"))
}

/// Stops and deletes a job, and revokes its ticket.
pub(crate) fn delete_one(daemon: &mut Daemon, project: &ProjectName, name: &JobName) -> Result<(), Failure> {
    daemon.delete_job(project, name)?;
    attestation::revoke_job(&daemon.socket, project, name);
    Ok(())
}

/// Stops and deletes jobs; continues after a failure.
pub fn delete(args: &DeleteJobsArgs, socket: &Path) -> Result<(), Failure> {
    let mut daemon = Daemon::connect(socket)?;
    let project = project::which(&mut daemon, args.project.as_ref())?;
    let (mut deleted, mut failed) = (Vec::new(), Vec::new());
    for name in &args.names {
        match delete_one(&mut daemon, &project, name) {
            Ok(()) if args.output.json => deleted.push(name),
            Ok(()) => out::print(&format!("deleted {name} of project {project}"))?,
            Err(failure) => failed.push(failure),
        }
    }
    if args.output.json {
        out::json(&json!({"project": project, "deleted": deleted}))?;
    }
    out::failures(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn remark_on_a_log_has_the_state_that_lists_show() {
        let reason = "it ran for 2 s, which is its --max-runtime".to_owned();
        let job = JobView { state: JobState::Failed, overdue: true, reason, ..sample::job("a", "od") };
        let notes = about_log(&job, 0, false);
        let expected =
            "it has printed nothing; job od is Overdue: it ran for 2 s, which is its --max-runtime"
                .to_owned();
        assert_eq!(notes, [expected]);
    }
}
