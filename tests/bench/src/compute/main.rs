//! GPU time of slices and its cost: the same load in slices and on the bare driver, in one run.
//!
//! Laws:
//! - GPU time is finished work times its length alone: the log of a simulated GPU states it, and the programs on a real
//!   one count it. The daemon's own figures are not read.
//! - Time is real. Exact claims are tested in virtual time, in `tests/arena`; here other programs disturb, and
//!   claims that depend on them are reported only, on the simulated GPU.
//! - Windows last a second. A figure is their median, with the least and the greatest beside it.
#![forbid(unsafe_code)]

mod busy;
mod changes;
mod curve;
mod deaths;
mod game;
mod handover;
mod ideal;
mod inference;
mod lab;
mod launches;
mod limits;
mod load;
mod overhead;
mod plot;
mod shares;
mod streams;
mod targets;
mod throughput;
mod transfers;

use std::path::PathBuf;
use std::process::ExitCode;

use bench::options::{Places, commit};
use bench::report::Report;
use bench::{Result, interrupt};
use clap::{Parser, ValueEnum};
use lab::{Form, Lab, WhichGpu};

/// Measures the GPU time of slices and its cost.
#[derive(Debug, Parser)]
struct Options {
    /// Few windows of each measurement: shows that the bench works, and little else.
    #[arg(long)]
    quick: bool,
    /// Windows of a second for each measurement in slices; half as many for those without.
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=3600))]
    windows: u64,
    /// Measure only these parts.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// GPU to measure on; auto takes a real one, if there is one.
    #[arg(long, value_enum, default_value_t = WhichGpu::Auto)]
    gpu: WhichGpu,
    /// Path of the report in JSON; Markdown is written beside it.
    #[arg(long, default_value = "target/report/bench-compute.json")]
    report: PathBuf,
    /// Path of the drawing of shares over time [default: compute-shares.svg beside the report].
    #[arg(long)]
    plot: Option<PathBuf>,
    #[command(flatten)]
    places: Places,
}

/// Part that can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Cost of a launch in a slice.
    Launches,
    /// GPU time of tenants beside their shares.
    Shares,
    /// GPU time that is lost by sharing.
    Throughput,
    /// Limits that no slice exceeds, and the use of idle GPU time.
    Limits,
    /// Waits of requests beside training.
    Inference,
    /// Work of a program whose streams run side by side.
    Streams,
    /// Work and shares while other programs want the processors.
    Busy,
    /// Requests of slices with latency targets.
    Targets,
    /// Time from one slice's last kernel to the next one's first.
    Handover,
    /// Cost of copies that are counted, and what they take from others if they are not.
    Transfers,
    /// Time until a new share takes effect.
    Changes,
    /// Processor time of the daemon.
    Daemon,
    /// Effects of the end of a daemon or a tenant on the tenants that remain.
    Deaths,
    /// Drawing of shares over time.
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
            // A part that fails does not prevent the measurement of the next.
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
        Part::Streams => streams::all(lab, report),
        Part::Busy => busy::all(lab, report),
        Part::Targets => targets::all(lab, report),
        Part::Handover => handover::all(lab, report),
        Part::Transfers => transfers::all(lab, report),
        Part::Changes => changes::all(lab, report),
        Part::Daemon => overhead::all(lab, report),
        Part::Deaths => deaths::all(lab, report),
        Part::Plot => {
            let plot = options.plot.clone();
            plot::draw(lab, &plot.unwrap_or_else(|| options.report.with_file_name("compute-shares.svg")))
        }
    }
}
