//! What slices get of a GPU's time, and what that costs: the same load in slices and on the bare driver, in one run.
//!
//! Laws:
//! - What a tenant got is finished work times what it takes alone: on the simulated GPU its own log says so, on a real
//!   one the programs count. Our ledger is never asked.
//! - Time is real. What is to hold exactly holds in virtual time, in `tests/arena`; here other programs disturb, and
//!   claims that hang on them are reported only, on the simulated GPU.
//! - Windows last a second. A figure is their median, with the least and the greatest beside it.
#![forbid(unsafe_code)]

mod changes;
mod curve;
mod deaths;
mod game;
mod ideal;
mod inference;
mod lab;
mod launches;
mod limits;
mod load;
mod overhead;
mod plot;
mod shares;
mod throughput;

use std::path::PathBuf;
use std::process::ExitCode;

use bench::options::{Places, commit};
use bench::report::Report;
use bench::{Result, interrupt};
use clap::{Parser, ValueEnum};
use lab::{Form, Lab, WhichGpu};

/// Measures what slices get of a GPU's time.
#[derive(Debug, Parser)]
struct Options {
    /// Few windows of everything: says that the bench works, and little else.
    #[arg(long)]
    quick: bool,
    /// Windows of a second for each measurement in slices; half as many for what stands beside it.
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=3600))]
    windows: u64,
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// On which GPU; auto takes a real one that nobody uses, if there is one.
    #[arg(long, value_enum, default_value_t = WhichGpu::Auto)]
    gpu: WhichGpu,
    /// Where to write the report.
    #[arg(long, default_value = "target/report/bench-compute.json")]
    report: PathBuf,
    /// Where to draw shares over time [default: compute-shares.svg beside the report].
    #[arg(long)]
    plot: Option<PathBuf>,
    #[command(flatten)]
    places: Places,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// What a launch costs.
    Launches,
    /// Who gets how much.
    Shares,
    /// What sharing loses.
    Throughput,
    /// What nobody exceeds, and who uses what is idle.
    Limits,
    /// How long requests wait beside training.
    Inference,
    /// How fast new shares hold.
    Changes,
    /// What the daemon uses.
    Daemon,
    /// What the end of a daemon or tenant does to the others.
    Deaths,
    /// Shares over time.
    Plot,
}

fn main() -> ExitCode {
    let done = measured(&Options::parse());
    interrupt::settle();
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(complaint) => {
            eprintln!("bench-compute: {complaint}");
            ExitCode::from(2)
        }
    }
}

fn measured(options: &Options) -> Result<bool> {
    let stage = options.places.stage()?;
    interrupt::watch()?;
    let lab = Lab::set_up(
        &stage,
        options.gpu,
        if options.quick { Form::Quick } else { Form::Long(options.windows) },
    )?;
    let mut report = Report::new(lab.device(), lab.is_simulated(), commit(&stage), options.places.built());
    for part in Part::value_variants() {
        if options.only.is_empty() || options.only.contains(part) {
            // What one part cannot measure keeps nobody from the others' figures.
            if let Err(complaint) = measure(*part, &lab, options, &mut report) {
                eprintln!("bench-compute: {part:?}: {complaint}");
                report.at_most(&format!("parts_not_measured_{part:?}"), 1.0, "", 0.0);
            }
        }
    }
    report.print();
    report
        .write(&options.report)
        .map_err(|error| format!("cannot write {}: {error}", options.report.display()))?;
    Ok(report.holds())
}

fn measure(part: Part, lab: &Lab, options: &Options, report: &mut Report) -> Result<()> {
    match part {
        Part::Launches => launches::all(lab, report),
        Part::Shares => shares::all(lab, report),
        Part::Throughput => throughput::all(lab, report),
        Part::Limits => limits::all(lab, report),
        Part::Inference => inference::all(lab, report),
        Part::Changes => changes::all(lab, report),
        Part::Daemon => overhead::all(lab, report),
        Part::Deaths => deaths::all(lab, report),
        Part::Plot => {
            let plot = options.plot.clone();
            plot::draw(lab, &plot.unwrap_or_else(|| options.report.with_file_name("compute-shares.svg")))
        }
    }
}
