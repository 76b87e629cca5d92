//! Processor time of what shows a node all the time: `tranche top` and `tranche-page`.
//!
//! Laws:
//! - The node has sixteen GPUs, held by thirteen idle jobs whose shown durations change with each look.
//! - Programs are the real ones: `tranche top` draws to a terminal, and a browser's stream follows the page. A program
//!   that shows nothing makes the bench fail.
//! - Processor time is that of the kernel's accounting, for all threads of a process.
#![forbid(unsafe_code)]

mod browser;
mod jobs;
mod screen;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use bench::node::Node;
use bench::options::{Places, commit, cores};
use bench::report::Report;
use bench::stage::Stage;
use bench::stats::mean;
use bench::{Result, cpu, interrupt};
use clap::Parser;

use browser::Page;
use jobs::Jobs;
use screen::Screen;

/// Most processor time of a view, in percent of a core.
const MOST_CPU: f64 = 1.0;
/// Most that a browser has to load, in kB.
const MOST_KB: f64 = 200.0;
/// Time after the start in which programs settle.
const SETTLE: Duration = Duration::from_secs(1);
/// Configuration by which what holds a GPU is soon idle.
const IDLE_SOON: &str = "idle_after_s = 2\n";

/// Measures the processor time of views.
#[derive(Debug, Parser)]
struct Options {
    /// One short window: shows that the bench works, and little else.
    #[arg(long)]
    quick: bool,
    /// Path of the report in JSON; Markdown is written beside it.
    #[arg(long, default_value = "target/report/bench-views.json")]
    report: PathBuf,
    #[command(flatten)]
    places: Places,
}

fn main() -> ExitCode {
    let done = measured(&Options::parse());
    interrupt::settle();
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(complaint) => {
            eprintln!("bench-views: {complaint}");
            ExitCode::from(2)
        }
    }
}

fn measured(options: &Options) -> Result<bool> {
    let stage = options.places.stage()?;
    interrupt::watch()?;
    let device = format!("16 GPUs held by {} idle jobs, {} cores", jobs::COUNT, cores());
    let mut report = Report::new(&device, true, commit(&stage), options.places.built());
    views(&stage, options.quick, &mut report)?;
    report.print();
    report
        .write(&options.report)
        .map_err(|error| format!("cannot write {}: {error}", options.report.display()))?;
    Ok(report.holds())
}

/// Processor time of processes in each window, in percent of a core.
fn windows(pids: &[u32], quick: bool) -> Result<Vec<Vec<f64>>> {
    let (windows, length) = if quick { (1, Duration::from_secs(3)) } else { (6, Duration::from_secs(15)) };
    let used = || pids.iter().map(|pid| cpu::used(*pid)).collect::<Result<Vec<_>>>();
    let mut percent = vec![Vec::new(); pids.len()];
    for _ in 0..windows {
        let (begun, before) = (Instant::now(), used()?);
        sleep(length);
        let (took, after) = (begun.elapsed().as_secs_f64(), used()?);
        for ((windows, before), after) in percent.iter_mut().zip(&before).zip(&after) {
            windows.push(100.0 * (*after - *before).as_secs_f64() / took);
        }
    }
    Ok(percent)
}

fn views(stage: &Stage, quick: bool, report: &mut Report) -> Result<()> {
    let node = Node::simulated(stage, "v100x16", IDLE_SOON)?;
    let _jobs = Jobs::start(&node)?;
    sleep(SETTLE);
    let alone = windows(&[node.daemon_pid()], quick)?;
    report.figure("daemon_cpu", "alone", "%", &alone[0]);

    let screen = Screen::open(&node)?;
    let (watched, unwatched) = (Page::serve(&node)?, Page::serve(&node)?);
    let stream = watched.follow()?;
    sleep(SETTLE);
    let (frames, events) = (screen.bytes(), stream.events());
    let pids = [screen.pid(), watched.pid(), unwatched.pid(), node.daemon_pid()];
    let used = windows(&pids, quick)?;
    if screen.bytes() == frames || stream.events() == events {
        return Err("nothing new was shown while it was measured".into());
    }
    screen.shows("16 GPUs: 16 allocated (16 idle)")?;
    for (at, (name, variant)) in
        [("top_cpu", "120x40"), ("page_cpu", "one viewer"), ("page_cpu", "no viewer")].into_iter().enumerate()
    {
        report.figure(name, variant, "%", &used[at]);
        let claim = format!("{name}_{}", variant.replace(' ', "_"));
        report.at_most(&claim, mean(&used[at]), "%", MOST_CPU);
    }
    report.figure("daemon_cpu", "top and page", "%", &used[3]);
    let kb = watched.loaded_bytes()? / 1e3;
    report.figure("page_kb", "all files", "kB", &[kb]);
    report.at_most("page_kb", kb, "kB", MOST_KB);
    Ok(())
}
