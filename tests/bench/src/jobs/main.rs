//! Costs of a decision, a submission and a list with thousands of jobs queued on sixteen GPUs.
//!
//! Laws:
//! - Decisions are measured on the quota scheduler by itself, submissions at the job controller with its store and
//!   through the daemon's socket.
//! - An operation that waits for a disk is measured beside that disk's own time for a page, sample by sample, and once
//!   more in memory: a goal that the disk alone takes up is reported and not decided.
//! - The crowd of projects and jobs is the same in every run.
#![forbid(unsafe_code)]

mod crowd;
mod decide;
mod desk;
mod disk;
mod plot;
mod scale;
mod socket;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench::options::{Places, commit, cores};
use bench::report::Report;
use bench::{Result, interrupt};
use clap::{Parser, ValueEnum};

use scale::Scale;

/// Measures jobs by the thousand.
#[derive(Debug, Parser)]
struct Options {
    /// A tenth of the jobs.
    #[arg(long)]
    quick: bool,
    /// Measure only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Path of the report in JSON; the store that is measured lies beside it meanwhile.
    #[arg(long, default_value = "target/report/bench-jobs.json")]
    report: PathBuf,
    /// Path of the drawing of decision costs [default: jobs-decisions.svg beside the report].
    #[arg(long)]
    plot: Option<PathBuf>,
    #[command(flatten)]
    places: Places,
}

/// Part that can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Cost of a decision of the quota scheduler.
    Decisions,
    /// Cost of submissions and lists in the job controller.
    JobController,
    /// Cost of submissions and lists through the daemon's socket.
    Socket,
}

fn main() -> ExitCode {
    let done = measured(&Options::parse());
    interrupt::settle();
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(complaint) => {
            eprintln!("bench-jobs: {complaint}");
            ExitCode::from(2)
        }
    }
}

fn measured(options: &Options) -> Result<bool> {
    let stage = options.places.stage()?;
    interrupt::watch()?;
    let scale = Scale::of(options.quick);
    let device = format!("{} jobs of {} projects on 16 GPUs, {} cores", scale.jobs, scale.projects, cores());
    let mut report = Report::new(&device, true, commit(&stage), options.places.built());
    let wanted = |part| options.only.is_empty() || options.only.contains(&part);
    if wanted(Part::Decisions) {
        let plot = options.plot.clone();
        let plot = plot.unwrap_or_else(|| options.report.with_file_name("jobs-decisions.svg"));
        plot::draw(&plot, &decide::all(scale, &mut report)?)?;
    }
    let folder = options.report.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    for place in disk::places(folder)? {
        if wanted(Part::JobController) {
            desk::all(scale, &place, &mut report)?;
        }
        if wanted(Part::Socket) {
            socket::all(scale, &place, &stage, &mut report)?;
        }
    }
    report.print();
    report
        .write(&options.report)
        .map_err(|error| format!("cannot write {}: {error}", options.report.display()))?;
    Ok(report.holds())
}
