//! Completion of names in shells: slices, jobs, projects and GPUs, from the daemon.

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::{Arg, Command};
use clap_complete::CompletionCandidate;
use clap_complete::engine::ArgValueCandidates;
use tranche_domain::view::NodeView;

use crate::client::{self, Daemon};
use crate::errors::Failure;
use crate::help::command;

/// Variable by which a shell requests completions.
pub const VARIABLE: &str = "TRANCHE_COMPLETE";

/// Time that a shell waits for names. A daemon that is late has none.
const PATIENCE: Duration = Duration::from_millis(150);

/// A name and a remark, which some shells show.
type Named = (String, String);

/// Names of one kind, from the daemon.
type Source = fn(&mut Daemon) -> Result<Vec<Named>, Failure>;

/// The command line, with candidates for its arguments.
pub fn completing() -> Command {
    with_candidates(command(), "tranche")
}

fn with_candidates(command: Command, page: &str) -> Command {
    let own = page.to_owned();
    let command = command.mut_args(move |arg| match names_of(&own, &arg) {
        Some(names) => arg.add(ArgValueCandidates::new(move || candidates(names))),
        None => arg,
    });
    command.mut_subcommands(|sub| {
        let page = format!("{page}-{}", sub.get_name());
        with_candidates(sub, &page)
    })
}

/// Names that the daemon has for an argument.
fn names_of(page: &str, arg: &Arg) -> Option<Source> {
    let of_slice = page.starts_with("tranche-slice-") && page != "tranche-slice-create";
    let of_project = page.starts_with("tranche-project-") && page != "tranche-project-create";
    let of_job = ["describe", "notify", "logs", "exec", "bash", "suspend", "resume", "delete"];
    let of_job = page.strip_prefix("tranche-").is_some_and(|name| of_job.contains(&name));
    match arg.get_id().as_str() {
        "slice" => Some(slices),
        "name" | "names" if of_slice => Some(slices),
        "project" => Some(projects),
        "name" if of_project => Some(projects),
        "name" | "names" | "jobs" if of_job => Some(jobs),
        "after" => Some(jobs),
        "gpu" | "gpus" | "training_gpus" | "interactive_gpus" => Some(gpus),
        _ => None,
    }
}

fn slices(daemon: &mut Daemon) -> Result<Vec<Named>, Failure> {
    let NodeView { slices, .. } = daemon.snapshot()?;
    Ok(slices.into_iter().map(|slice| (slice.name.to_string(), slice.share.to_string())).collect())
}

fn gpus(daemon: &mut Daemon) -> Result<Vec<Named>, Failure> {
    let NodeView { gpus, .. } = daemon.snapshot()?;
    Ok(gpus.into_iter().map(|gpu| (gpu.index.to_string(), gpu.name)).collect())
}

fn jobs(daemon: &mut Daemon) -> Result<Vec<Named>, Failure> {
    let jobs = daemon.jobs(None, None)?;
    let mut named: Vec<Named> = jobs
        .into_iter()
        .map(|job| (job.name.to_string(), format!("{}, {}", job.project, job.state)))
        .collect();
    named.sort();
    named.dedup_by(|later, first| later.0 == first.0);
    Ok(named)
}

fn projects(daemon: &mut Daemon) -> Result<Vec<Named>, Failure> {
    let projects = daemon.projects()?;
    Ok(projects
        .into_iter()
        .map(|view| (view.project.name.to_string(), format!("{} GPUs", view.project.quota)))
        .collect())
}

/// Names from the daemon, or none if it is not there or late.
fn candidates(names: Source) -> Vec<CompletionCandidate> {
    let socket: PathBuf = client::socket(None);
    let (sender, receiver) = mpsc::channel();
    // The thread is not joined: the process ends when the shell has its answer.
    thread::spawn(move || {
        let named = Daemon::connect(&socket).and_then(|mut daemon| names(&mut daemon));
        let _ = sender.send(named); // the receiver may have given up
    });
    let named = receiver.recv_timeout(PATIENCE).ok().and_then(Result::ok).unwrap_or_default();
    let candidate = |(name, remark): Named| CompletionCandidate::new(name).help(Some(remark.into()));
    named.into_iter().map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands and arguments for which the daemon has names.
    fn completed(command: &Command, page: &str) -> Vec<String> {
        let args = command.get_arguments().filter(|arg| names_of(page, arg).is_some());
        let own: Vec<_> = args.map(|arg| format!("{} {}", &page[7..], arg.get_id())).collect();
        let subs =
            command.get_subcommands().flat_map(|sub| completed(sub, &format!("{page}-{}", sub.get_name())));
        own.into_iter().chain(subs).collect()
    }

    #[test]
    fn arguments_with_names_are_completed() {
        let found = completed(&command(), "tranche");
        for expected in [
            "-run slice",
            "-run gpu",
            "-run project",
            "-slice-show name",
            "-slice-delete names",
            "-gpu-drain gpus",
            "-logs name",
            "-submit after",
            "-delete names",
            "-delete project",
            "-project-set name",
            "-events slice",
            "-submit project",
        ] {
            assert!(found.iter().any(|arg| arg == expected), "{expected} is missing: {found:?}");
        }
        for new in ["-slice-create name", "-submit name", "-project-create name", "-run name"] {
            assert!(found.iter().all(|arg| arg != new), "{new} is a new name");
        }
    }
}
