//! `tranche doctor`: what works on this machine, what does not, and what to do about it.
//!
//! Law: `machine`, `library` and `exports` observe and do not judge; `checks` judges and does not observe.

mod bundle;
mod checks;
mod exports;
mod library;
mod machine;

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use comfy_table::presets::NOTHING;
use comfy_table::{ColumnConstraint, ContentArrangement, Table};
use serde::Serialize;

use crate::cli::DoctorArgs;
use crate::client::Daemon;
use crate::errors::Failure;
use crate::out;
use checks::Evidence;
use library::Library;
use machine::Machine;

/// Severity of a check's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Works without any restriction.
    Ok,
    /// Works, with a restriction.
    Warning,
    /// Slices cannot work until it is solved.
    Problem,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Name of the check.
    pub check: String,
    /// Severity of the observation.
    pub verdict: Verdict,
    /// Observation in words, for the operator.
    pub found: String,
    /// Remedy, if there is one.
    pub remedy: Option<String>,
}

/// Number of problems and warnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    problems: usize,
    warnings: usize,
}

impl Found {
    fn of(checks: &[Check]) -> Self {
        let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
        Self { problems: count(Verdict::Problem), warnings: count(Verdict::Warning) }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: usize, noun: &str| match count {
            0 => format!("no {noun}s"),
            1 => format!("1 {noun}"),
            many => format!("{many} {noun}s"),
        };
        write!(f, "{}, {}", counted(self.problems, "problem"), counted(self.warnings, "warning"))
    }
}

/// Checks this machine and the daemon at `socket`; fails if there is a problem.
pub fn doctor(args: &DoctorArgs, socket: &Path) -> Result<(), Failure> {
    if let Some(path) = &args.bundle {
        return bundle::write(path, socket);
    }
    let checks = checks::all(&evidence(socket));
    if args.output.json {
        out::json(&checks)?;
    } else {
        out::print(&render(&checks))?;
    }
    match Found::of(&checks) {
        Found { problems: 0, .. } => Ok(()),
        found => Err(Failure::Unwell(found)),
    }
}

fn evidence(socket: &Path) -> Evidence {
    let mut daemon = Daemon::connect(socket);
    let node = daemon.as_mut().map_err(|failure| failure.to_string());
    let node = node.and_then(|daemon| daemon.snapshot().map_err(|failure| failure.to_string()));
    let shim = shim_path();
    Evidence {
        socket: socket.to_owned(),
        node,
        daemon: daemon.ok().and_then(|mut daemon| daemon.show().ok()),
        library: Library::read(&shim),
        shim,
        driver: exports::installed(),
        machine: Machine::read(Path::new("/"), env::var_os("CUDA_MPS_PIPE_DIRECTORY").map(PathBuf::from)),
    }
}

/// Folder of the shim, beside the programs: `<exe>/../lib/tranche`.
fn shim_path() -> PathBuf {
    let own = env::current_exe().unwrap_or_default();
    let prefix = own.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
    prefix.join("lib/tranche/libtranche_preload.so")
}

/// Width of the table in columns, for terminals and files alike.
const WIDTH: u16 = 100;

fn render(checks: &[Check]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    for check in checks {
        let remedy = check.remedy.iter().map(|remedy| format!("\n-> {remedy}"));
        let found = check.found.clone() + &remedy.collect::<String>();
        table.add_row([shout(check.verdict), &check.check, &found]);
    }
    // Names are never wrapped; observations are.
    let whole = [ColumnConstraint::ContentWidth, ColumnConstraint::ContentWidth];
    table.set_constraints(whole);
    format!("{}\n\n{}\n", table.trim_fmt(), Found::of(checks))
}

/// Display form of a severity; problems are in capitals.
fn shout(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Warning => "WARNING",
        Verdict::Problem => "PROBLEM",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_has_observation_and_remedy() {
        let check = |verdict, remedy: Option<&str>| Check {
            check: "mps".into(),
            verdict,
            found: "found\nmore".into(),
            remedy: remedy.map(Into::into),
        };
        assert_eq!(
            render(&[check(Verdict::Ok, None), check(Verdict::Problem, Some("do this"))]),
            " ok       mps  found\n\
             \x20              more\n\
             \x20PROBLEM  mps  found\n\
             \x20              more\n\
             \x20              -> do this\n\
             \n\
             1 problem, no warnings\n"
        );
    }

    #[test]
    fn long_findings_are_wrapped() {
        let long =
            Check { check: "kernel".into(), verdict: Verdict::Ok, found: "word ".repeat(60), remedy: None };
        assert!(render(&[long]).lines().all(|line| line.len() <= WIDTH.into()));
    }
}
