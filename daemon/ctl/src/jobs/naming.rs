//! Names of jobs that are submitted without one.

use std::collections::BTreeSet;
use std::path::Path;

use tranche_domain::jobs::{JobName, LaunchSpec, ProjectName, Submission};

use crate::client::Daemon;
use crate::errors::Failure;

const FALLBACK: &str = "job";
/// Length of the part of a name before its number, in bytes.
const LONGEST_BASE: usize = 24;
/// Attempts at a name: another submitter may take one between the list and the submission.
const ATTEMPTS: u32 = 8;

/// Submits a job under the name, or under a generated one; returns what `submit` does.
pub(super) fn submit_named<T>(
    daemon: &mut Daemon,
    submission: &Submission,
    name: Option<&JobName>,
    submit: impl Fn(&mut Daemon, Submission) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let named = |name: JobName| {
        let mut submission = submission.clone();
        submission.spec.name = name;
        submission
    };
    if let Some(name) = name {
        return submit(daemon, named(name.clone()));
    }
    let mut left = ATTEMPTS;
    loop {
        let name = free_name(daemon, &submission.spec.project, &words(&submission.launch))?;
        left -= 1;
        match submit(daemon, named(name)) {
            Err(Failure::Refused(status)) if status.code() == tonic::Code::AlreadyExists && left > 0 => {}
            done => return done,
        }
    }
}

/// The command, or the last part of the image's repository where the image has the command.
fn words(launch: &LaunchSpec) -> Vec<String> {
    let image = launch.container.as_ref().filter(|_| launch.command.is_empty());
    let Some(image) = image.map(|container| container.image.as_str()) else { return launch.command.clone() };
    let last = image.rsplit('/').next().unwrap_or(image);
    vec![last.split([':', '@']).next().unwrap_or(last).to_owned()]
}

/// Name that no job of the project has.
fn free_name(daemon: &mut Daemon, project: &ProjectName, command: &[String]) -> Result<JobName, Failure> {
    let jobs = daemon.jobs(Some(project), None)?;
    Ok(generated(command, &jobs.into_iter().map(|job| job.name).collect()))
}

/// Name after the command's script or program, with the lowest number that makes it a new one.
fn generated(command: &[String], taken: &BTreeSet<JobName>) -> JobName {
    let base = base(command);
    let numbered = (2_u64..).map(|number| format!("{base}-{number}"));
    let mut names = std::iter::once(base.clone()).chain(numbered).filter_map(|name| name.parse().ok());
    names.find(|name| !taken.contains(name)).unwrap_or_else(fallback)
}

/// Name of a job whose command gives none.
pub(super) fn fallback() -> JobName {
    FALLBACK.parse().expect("it is a valid name")
}

/// Stem of the first argument that is a script, else of the program, in the letters of a name.
fn base(command: &[String]) -> String {
    let script = |word: &&String| !word.starts_with('-') && Path::new(word).extension().is_some();
    let script = command.iter().skip(1).take_while(|word| !word.contains(' ')).find(script);
    let stem = script.or(command.first()).and_then(|word| Path::new(word).file_stem()?.to_str());
    let letter = |letter: char| match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9') => letter,
        _ => '-',
    };
    let text: String = stem.unwrap_or(FALLBACK).chars().map(letter).take(LONGEST_BASE).collect();
    let text = text.trim_matches('-');
    if text.is_empty() { FALLBACK.to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use tranche_domain::jobs::{ContainerSpec, PullPolicy};

    use super::*;

    fn name(command: &[&str], taken: &[&str]) -> String {
        let command: Vec<String> = command.iter().map(ToString::to_string).collect();
        generated(&command, &taken.iter().map(|name| name.parse().unwrap()).collect()).to_string()
    }

    #[test]
    fn job_without_a_command_is_named_after_its_image() {
        let container = |image: &str| ContainerSpec {
            image: image.parse().unwrap(),
            mounts: Vec::new(),
            ports: Vec::new(),
            shm: None,
            pull: PullPolicy::Missing,
            workdir: None,
            engine: Vec::new(),
        };
        let mut launch = LaunchSpec {
            command: Vec::new(),
            environment: Vec::new(),
            workdir: "/".into(),
            container: Some(container("localhost:5000/jupyter/base-notebook:v1.2")),
        };
        assert_eq!(generated(&words(&launch), &BTreeSet::new()).as_str(), "base-notebook");
        launch.command = vec!["python".into(), "train.py".into()];
        assert_eq!(generated(&words(&launch), &BTreeSet::new()).as_str(), "train");
    }

    #[test]
    fn name_is_that_of_the_script_or_program() {
        assert_eq!(name(&["python", "-u", "src/Train_GPT.py", "--lr", "0.1"], &[]), "train-gpt");
        assert_eq!(name(&["/usr/bin/nvidia-smi", "-l"], &[]), "nvidia-smi");
        assert_eq!(name(&["sh", "-c", "python x.py"], &[]), "sh");
        assert_eq!(name(&["jupyter", "lab", "--no-browser"], &[]), "jupyter");
        assert_eq!(name(&["./___.sh"], &[]), "job");
        assert_eq!(name(&["Ünïcode-name-that-is-far-too-long-for-this"], &[]).len(), 23);
        assert_eq!(name(&[], &[]), "job");
    }

    #[test]
    fn taken_name_gets_the_lowest_free_number() {
        assert_eq!(name(&["train"], &["train"]), "train-2");
        assert_eq!(name(&["train"], &["train", "train-2", "train-4"]), "train-3");
    }
}
