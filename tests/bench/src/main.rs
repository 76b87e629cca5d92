//! What slices cost in memory management: the same program bare, in a slice, and under a third party's library
//! where one is given, in turns.
//!
//! Laws:
//! - A figure is the median of rounds, with the least and the greatest beside it; each round measures every
//!   variant before the next round begins. Short loops are timed in batches, and a round counts the quickest
//!   batch: the one that other programs disturbed least.
//! - The driver is a stub that answers at once, so that what is left is ours; where memory really has to be
//!   counted, the simulated driver counts it.
//! - A claim that does not hold makes the program fail.
#![forbid(unsafe_code)]

mod answers;
mod instructions;
mod measure;
mod node;
mod report;

use std::env;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Parser;
use node::{Result, Stage};
use report::Report;

/// Measures what slices cost.
#[derive(Debug, Parser)]
struct Options {
    /// Fewer rounds.
    #[arg(long)]
    quick: bool,
    /// Only count instructions, and fail above this many added to an allocation and its release.
    #[arg(long, value_name = "MOST")]
    instructions: Option<u64>,
    /// Where to write the report.
    #[arg(long, default_value = "target/report/bench-memory.json")]
    report: PathBuf,
    /// The staged tree. Default: the one this program is in, else target/stage.
    #[arg(long)]
    stage: Option<PathBuf>,
    /// The folder of `tranched` and `tranche`. Default: the staged ones, which are a dev build.
    #[arg(long)]
    programs: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match options.instructions {
        Some(most) => stage(&options).and_then(|stage| instructions::gate(&stage, most)),
        None => measured(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(complaint) => {
            eprintln!("bench-memory: {complaint}");
            ExitCode::from(2)
        }
    }
}

fn stage(options: &Options) -> Result<Stage> {
    let beside = env::current_exe().ok().and_then(|program| Some(program.parent()?.parent()?.to_owned()));
    let beside = beside.filter(|root| root.join("bench/client").exists());
    let root = options.stage.clone().or(beside).unwrap_or_else(|| "target/stage".into());
    let root =
        root.canonicalize().map_err(|_| format!("{} is not there: run make build first", root.display()))?;
    let programs = options.programs.clone().unwrap_or_else(|| root.join("bin"));
    let stage = Stage { root, programs };
    match stage.client().exists() {
        true => Ok(stage),
        false => Err(format!("{} is not there: run make build first", stage.client().display())),
    }
}

fn measured(options: &Options) -> Result<bool> {
    let stage = stage(options)?;
    let built = if options.programs.is_some() { "release" } else { "dev" };
    let mut report = Report::new(commit(), built.into());
    measure::all(&stage, options.quick, &mut report)?;
    report.print();
    report
        .write(&options.report)
        .map_err(|error| format!("cannot write {}: {error}", options.report.display()))?;
    Ok(report.holds())
}

fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
    text.unwrap_or_else(|_| "unknown".into())
}
