//! `chaos`: see the library of this package.
#![forbid(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use chaos::campaign::{self, Outcome, Part, Size};
use chaos::full::OWN_MOUNTS;
use clap::Parser;

/// Causes faults on a node while tenants work, and counts what is lost.
#[derive(Debug, Parser)]
struct Command {
    /// Run for a minute, with a little of each part
    #[arg(long)]
    short: bool,
    /// Run only this part; may be repeated
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// Least number of daemons that die
    #[arg(long, value_name = "N")]
    deaths: Option<u64>,
    /// Number of slices that are created and deleted
    #[arg(long, value_name = "N")]
    cycles: Option<u64>,
    /// Seed of random numbers
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Path of the report in JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let command = Command::parse();
    with_own_mounts();
    match command.run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("chaos: {failure}");
            ExitCode::from(2)
        }
    }
}

/// Executes this program again in its own mount namespace, if that is permitted.
///
/// Otherwise the part that needs one is skipped.
fn with_own_mounts() {
    let unshare = || {
        let mut unshare = process::Command::new("unshare");
        unshare.arg("--mount");
        unshare
    };
    let has_them = std::env::var_os(OWN_MOUNTS).is_some();
    let may =
        || unshare().arg("true").stderr(process::Stdio::null()).status().is_ok_and(|ended| ended.success());
    if let (false, true, Ok(program)) = (has_them, may(), std::env::current_exe()) {
        let failed = unshare().arg(program).args(std::env::args_os().skip(1)).env(OWN_MOUNTS, "yes").exec();
        eprintln!("chaos: cannot start again with its own mounts: {failed}");
    }
}

impl Command {
    fn run(&self) -> Result<bool, Failure> {
        let size = self.size()?;
        let parts = if self.only.is_empty() { &Part::ALL[..] } else { &self.only };
        let outcomes: Vec<(Part, Outcome)> = parts.iter().map(|part| played(*part, &size)).collect();
        if let Some(path) = &self.report {
            write(path, &outcomes)?;
        }
        Ok(outcomes.iter().all(|(_, outcome)| outcome.holds()))
    }

    fn size(&self) -> Result<Size, Failure> {
        let daemon = std::env::current_exe()?.with_file_name("tranched-with-points");
        if !daemon.is_file() {
            return Err(format!("{} is not there: build all of this package", daemon.display()).into());
        }
        let of = |long, short| if self.short { short } else { long };
        Ok(Size {
            deaths: self.deaths.unwrap_or(of(600, 60)),
            tears: of(60, 4),
            jumps: of(40, 6),
            losses: of(12, 2),
            connections: of(2000, 300),
            cycles: self.cycles.unwrap_or(of(10_000, 120)),
            passages: of(1000, 24),
            preemptions: of(1000, 12),
            seed: self.seed,
            daemon,
        })
    }
}

fn played(part: Part, size: &Size) -> (Part, Outcome) {
    let outcome = campaign::run(part, size);
    campaign::show(part, &outcome);
    (part, outcome)
}

fn write(path: &Path, outcomes: &[(Part, Outcome)]) -> Result<(), Failure> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    let mut text = serde_json::to_string_pretty(&campaign::report(outcomes))?;
    text.push('\n');
    Ok(std::fs::write(path, text)?)
}
