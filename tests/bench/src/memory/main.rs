//! Cost of slices in memory management.
//!
//! The same program runs bare, in a slice, and under a third party's library if one is given, in turns.
//!
//! Laws:
//! - A figure is the median of rounds, with the least and the greatest beside it; each round measures every
//!   variant before the next round begins. Short loops are timed in batches, and a round counts the quickest
//!   batch: the one that other programs disturbed least.
//! - The driver is a stub that answers at once, so that the rest is the slice's cost; where memory really has to be
//!   counted, the simulated driver counts it.
//! - A claim that does not hold makes the program fail.
#![forbid(unsafe_code)]

mod amounts;
mod answers;
mod instructions;
mod measure;

use std::path::PathBuf;
use std::process::ExitCode;

use bench::options::{Places, commit};
use bench::report::Report;
use bench::{Result, interrupt};
use clap::Parser;
use measure::Part;

/// Measures the cost of slices in memory management.
#[derive(Debug, Parser)]
struct Options {
    /// Measure 3 rounds instead of 15, and fewer repetitions in each.
    #[arg(long)]
    quick: bool,
    /// Measure only these parts.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// Only count instructions, and fail above this many added to an allocation and its release.
    #[arg(long, value_name = "MOST")]
    instructions: Option<u64>,
    /// Path of the report in JSON; Markdown is written beside it.
    #[arg(long, default_value = "target/report/bench-memory.json")]
    report: PathBuf,
    #[command(flatten)]
    places: Places,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match options.instructions {
        Some(most) => options.places.stage().and_then(|stage| instructions::gate(&stage, most)),
        None => measured(&options),
    };
    interrupt::settle();
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(complaint) => {
            eprintln!("bench-memory: {complaint}");
            ExitCode::from(2)
        }
    }
}

fn measured(options: &Options) -> Result<bool> {
    let stage = options.places.stage()?;
    interrupt::watch()?;
    let device = "a driver stub whose allocation is a pointer bump";
    let mut report = Report::new(device, true, commit(&stage), options.places.built());
    measure::all(&stage, options.quick, &options.only, &mut report)?;
    report.print();
    report
        .write(&options.report)
        .map_err(|error| format!("cannot write {}: {error}", options.report.display()))?;
    Ok(report.holds())
}
