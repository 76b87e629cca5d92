//! `tranche doctor --setup`: steps to make a host ready for slices, and their state.
//!
//! Law: `host` observes and does not judge; `steps` judges and does not observe; commands are run here alone.

pub mod error;
mod host;
mod steps;

use std::path::Path;
use std::process::Command;

use nix::unistd::geteuid;

use super::evidence::Evidence;
use super::report;
use crate::errors::Failure;
use crate::out;
use error::{SetupError, left};
use host::HostState;
use steps::{SetupStep, StepState};

/// Prints the steps of the setup; with `apply` carries out those that are left first.
pub(super) fn setup(socket: &Path, apply: bool, json: bool) -> Result<(), Failure> {
    if apply {
        carry_out(&observed(socket))?;
    }
    let steps = observed(socket);
    if json {
        out::json(&steps)?;
    } else {
        out::print(&rendered(&steps))?;
    }
    match steps.iter().filter(|step| step.is_left()).count() {
        0 => Ok(()),
        count => Err(SetupError::StepsLeft(count).into()),
    }
}

fn observed(socket: &Path) -> Vec<SetupStep> {
    let evidence = Evidence::gather(socket);
    steps::all(&HostState::observe(Path::new("/"), &evidence))
}

/// Runs the commands of the steps that are left, in their order, up to the first that fails.
fn carry_out(steps: &[SetupStep]) -> Result<(), SetupError> {
    if !geteuid().is_root() {
        return Err(SetupError::NotRoot);
    }
    for step in steps {
        match &step.state {
            StepState::Manual if is_package_missing(step) => {
                return Err(SetupError::NotInstalled { remedy: step.remedy.clone() });
            }
            StepState::Missing => step.commands.iter().try_for_each(|words| run(words))?,
            StepState::Done | StepState::Manual | StepState::Optional => {}
        }
    }
    Ok(())
}

fn run(words: &[String]) -> Result<(), SetupError> {
    let command = words.join(" ");
    eprintln!("+ {command}");
    let (program, arguments) = words.split_first().map_or(("true", words), |(first, rest)| (&**first, rest));
    let status = Command::new(program).args(arguments).status();
    let status = status.map_err(|cause| SetupError::Start { command: command.clone(), cause })?;
    if status.success() { Ok(()) } else { Err(SetupError::Command { command, status }) }
}

fn rendered(steps: &[SetupStep]) -> String {
    let rows = steps.iter().map(|step| {
        let remedy = Some(&step.remedy).filter(|remedy| !remedy.is_empty());
        let remedy = remedy.map(|remedy| format!("\n-> {remedy}"));
        let commands = step.commands.iter().map(|words| format!("\n$ {}", words.join(" ")));
        [
            word(&step.state).into(),
            step.step.into(),
            remedy.into_iter().chain(commands).fold(step.found.clone(), |text, line| text + &line),
        ]
    });
    let count = steps.iter().filter(|step| step.is_left()).count();
    let is = |state| move |step: &&SetupStep| step.state == state;
    let advice =
        match (steps.iter().find(is(StepState::Missing)), steps.iter().find(|step| is_package_missing(step)))
        {
            (None, _) => "",
            (Some(_), Some(_)) => "; the package comes first",
            (Some(_), None) => ": `sudo tranche doctor --setup --apply` runs the commands",
        };
    format!("{}\n\n{}{advice}\n", report::table(rows), left(count))
}

/// Tests if nothing is installed on which commands could work.
fn is_package_missing(step: &SetupStep) -> bool {
    step.step == steps::PACKAGE && step.is_left()
}

/// Display form of a state; what is left is in capitals.
const fn word(state: &StepState) -> &'static str {
    match state {
        StepState::Done => "done",
        StepState::Missing => "MISSING",
        StepState::Manual => "BY HAND",
        StepState::Optional => "optional",
    }
}
