//! For any bytes in any usage region, every other slice keeps its request: live, on the simulated GPU.
//!
//! Laws:
//! - The simulated GPU's own log judges. The daemon's figures of shares are not read.
//! - A hostile slice begins each play as an honest one that saturates the GPU. The neighbour's share then, in the worst
//!   window and at most its request, is the one that the machine permits, and due to it. A play breaks the promise if
//!   the neighbour has less than 0.9 of that in a window of two seconds while the hostile processes write.
//! - Time is real, and other programs disturb: a play with such a window is repeated, and the better one counts. The
//!   short form judges the neighbour's share over a whole play instead of each window, and repeats twice.

mod liar;
mod play;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, io};

use arena::STRATEGIES;
use bench::node::{Node, run};
use bench::options::{Places, commit, cores};
use bench::stage::Driver;
use bench::{Result, interrupt};
use clap::{Parser, Subcommand};
use play::{Play, Played};
use serde::Serialize;

/// The least part of its due share that a neighbour keeps in each window.
const LEAST: f64 = 0.9;

/// Writes hostile bytes into live usage regions.
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    role: Option<Role>,
    /// Length of the run in minutes.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Seed of drawn strategies.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Half a minute, for machines that do other work, too: windows are reported only.
    #[arg(long)]
    short: bool,
    /// Only plays whose description has this in it.
    #[arg(long, default_value = "", value_name = "TEXT")]
    only: String,
    /// Path of the report in JSON.
    #[arg(long, default_value = "target/report/hostile.json")]
    report: PathBuf,
    #[command(flatten)]
    places: Places,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Role {
    /// A hostile process, started by this program in a slice.
    #[command(hide = true)]
    Liar {
        /// Slot of the record that it writes into.
        slot: usize,
    },
}

/// Results of all plays.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    simulated: bool,
    commit: String,
    daemon: &'static str,
    seed: u64,
    seconds: f64,
    plays: usize,
    repeated: usize,
    windows: usize,
    /// Least part of the due share in a window.
    worst: f64,
    /// Mean part of the due share over all windows.
    mean: f64,
    /// Mean part of the due share over plays, at most 1 for each.
    mean_of_plays: f64,
    /// Events that name the hostile slice as one that holds the GPU and computes nothing.
    named: usize,
    daemon_restarts: u32,
    complaints: Vec<String>,
    /// The worst window beside each strategy.
    strategies: BTreeMap<String, f64>,
    holds: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(Role::Liar { slot }) = options.role {
        return ended(liar::serve(slot).map(|()| true));
    }
    let done = fuzzed(&options);
    interrupt::settle();
    ended(done)
}

fn ended(done: Result<bool>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(complaint) => {
            eprintln!("bench-hostile: {complaint}");
            ExitCode::from(2)
        }
    }
}

fn fuzzed(options: &Options) -> Result<bool> {
    let stage = options.places.stage()?;
    interrupt::watch()?;
    let node = Node::empty(&stage, Driver::Simulated)?;
    let begun = Instant::now();
    let length = Duration::from_secs_f64(if options.short { 20.0 } else { options.minutes * 60.0 });
    let mut report = Report {
        device: format!("h200x1 on {} cores", cores()),
        simulated: true,
        commit: commit(&stage),
        daemon: options.places.built(),
        seed: options.seed,
        seconds: 0.0,
        plays: 0,
        repeated: 0,
        windows: 0,
        worst: f64::MAX,
        mean: 0.0,
        mean_of_plays: 0.0,
        named: 0,
        daemon_restarts: 0,
        complaints: Vec::new(),
        strategies: BTreeMap::new(),
        holds: true,
    };
    let mut sums = Vec::new();
    let mut all = Vec::new();
    for number in 0.. {
        if begun.elapsed() >= length {
            break;
        }
        let play = drawn(options.seed, number, options.short);
        if !play.to_string().contains(&options.only) {
            continue;
        }
        let judged = |played: &Played| if options.short { played.whole } else { played.worst() };
        let mut played = play.run(&node)?;
        for _ in 0..if options.short { 2 } else { 1 } {
            if judged(&played) >= LEAST || !node.daemon_lives() {
                break;
            }
            report.repeated += 1;
            println!(
                "{play}: {:.3} of what is due, in windows {:.2?}; once more",
                judged(&played),
                played.windows
            );
            let again = play.run(&node)?;
            if judged(&again) > judged(&played) {
                played = again;
            }
        }
        report.enter(&node, &play, &played, judged(&played))?;
        sums.push(played.whole.min(1.0));
        all.extend(played.windows);
    }
    report.name(&node)?;
    report.seconds = begun.elapsed().as_secs_f64();
    report.windows = all.len();
    report.mean = bench::stats::mean(&all);
    report.mean_of_plays = bench::stats::mean(&sums);
    report.holds = report.plays > 0 && report.complaints.is_empty();
    report.write(options).map_err(|error| format!("cannot write {}: {error}", options.report.display()))?;
    println!(
        "{} plays, {} windows: {:.3} of what is due in the worst, {:.3} in the mean; {} daemons ended: {}",
        report.plays,
        report.windows,
        report.worst,
        report.mean,
        report.daemon_restarts,
        if report.holds { "holds" } else { "DOES NOT HOLD" }
    );
    Ok(report.holds)
}

/// The play with a number: known strategies, drawn ones, words, bits and whole regions by turns.
fn drawn(seed: u64, number: u64, short: bool) -> Play {
    let splits = [(50, 50), (10, 90), (90, 10)];
    let drawn = seed.wrapping_mul(1000).wrapping_add(number);
    let known = number / 2 % STRATEGIES.len() as u64;
    let (kind, seed, works) = match number % 8 {
        0 | 2 | 4 | 6 => ("known", known, false),
        1 | 5 => ("drawn", drawn, false),
        3 => ("flips", drawn, true),
        _ if number % 16 == 7 => ("region", drawn, true),
        _ => ("words", drawn, false),
    };
    let split = splits[(number % 3) as usize];
    let kernel = [1_000_000, 300_000][(number / 3 % 2) as usize];
    let seconds = if short { 2 } else { 6 };
    Play { kind, seed, works, split, kernel, liars: 1 + (number / 4 % 2) as usize, seconds }
}

impl Report {
    fn enter(&mut self, node: &Node, play: &Play, played: &Played, judged: f64) -> Result<()> {
        let worst = played.worst();
        println!("{play}: {worst:.3} of what is due in the worst window, {:.3} in all", played.whole);
        self.plays += 1;
        self.worst = self.worst.min(worst);
        let before = self.strategies.entry(play.strategy()).or_insert(worst);
        *before = before.min(worst);
        if judged < LEAST {
            self.complaints.push(format!("{play}: {judged:.3} of what is due"));
        }
        if !played.is_sampled {
            self.complaints.push(format!("{play}: the daemon shows no use of the GPU"));
        }
        if !node.daemon_lives() {
            self.daemon_restarts += 1;
            self.complaints.push(format!("{play}: the daemon ended"));
            node.start_daemon()?;
        }
        Ok(())
    }

    /// Counts the events that name the hostile slice; one that names the neighbour is a complaint.
    fn name(&mut self, node: &Node) -> Result<()> {
        let events = run(node.tranche().arg("events"))?;
        let of = |slice: &str| {
            let slice = format!("slice {slice} ");
            events.lines().filter(|line| line.contains("gpu-held-idle") && line.contains(&slice)).count()
        };
        self.named = of("hostile");
        if of("honest") > 0 {
            self.complaints
                .push("the neighbour was named as one that holds the GPU and computes nothing".into());
        }
        Ok(())
    }

    fn write(&self, options: &Options) -> io::Result<()> {
        if let Some(folder) = options.report.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&options.report, serde_json::to_string_pretty(self).map_err(io::Error::other)?)
    }
}
