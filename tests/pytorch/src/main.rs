//! `pytorch`: two trainings share a GPU at 70 and 30 %, live, with claims and results.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, io};

use clap::Parser;
use e2e::eventually;
use pytorch::drawing::draw;
use pytorch::machine::Machine;
use pytorch::trainee::{Seen, Trainee};
use pytorch::watcher::Watcher;
use stress::report::{Claim, Report, commit};

/// Two PyTorch trainings share a simulated GPU: a full slice, a resize and a killed daemon stop neither
#[derive(Debug, Parser)]
struct Command {
    /// File for the report
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// File for a drawing of loss and step rate
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Time over which shares are measured.
const MEASURE: Duration = Duration::from_secs(8);
/// Time without a daemon.
const WITHOUT: Duration = Duration::from_secs(2);
/// More than the smaller slice has, in MiB.
const TOO_MUCH: u64 = 60_000;
/// Memory that fits after the resize, in MiB.
const ENOUGH: u64 = 50_000;

fn main() -> ExitCode {
    let command = Command::parse();
    let Some(machine) = Machine::with_pytorch() else { return ExitCode::FAILURE };
    let (report, drawing) = Demo::begin(machine).play();
    let written = written(command.report.as_deref(), command.svg.as_deref(), &report, &drawing);
    report.show();
    match written {
        Ok(()) if report.holds() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("pytorch: cannot write the report: {error}");
            ExitCode::from(2)
        }
    }
}

fn written(report: Option<&Path>, svg: Option<&Path>, results: &Report, drawing: &str) -> io::Result<()> {
    report.map_or(Ok(()), |path| results.write(path))?;
    svg.map_or(Ok(()), |path| {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, drawing)
    })
}

struct Demo {
    machine: Machine,
    begin: Instant,
    trainees: [Trainee; 2],
    watcher: Watcher,
    events: Vec<(f64, &'static str)>,
    claims: Vec<Claim>,
}

impl Demo {
    #[track_caller]
    fn begin(machine: Machine) -> Self {
        let begin = Instant::now();
        let watcher = Watcher::begin(&machine.node.gpus());
        let trainees = [("large", "0.7"), ("small", "0.3")].map(|(slice, share)| {
            machine.node.tranche(&["slice", "create", slice, "-g", share]).success();
            Trainee::of(slice, machine.start(&["--slice", slice], "", &["train", "heavy"]), begin)
        });
        let mut demo = Self { machine, begin, trainees, watcher, events: Vec::new(), claims: Vec::new() };
        for trainee in &mut demo.trainees {
            eventually("both train", || match trainee.last() {
                Some(seen) if seen.step > 5 => Ok(()),
                other => Err(format!("{}: {other:?}", trainee.slice)),
            });
            trainee.pid = demo.machine.node.slice(trainee.slice).pids()[0];
        }
        demo
    }

    #[track_caller]
    fn play(mut self) -> (Report, String) {
        self.show(
            "Two trainings in slices of 0.7 and 0.3 (SIMULATED: kernels take time and compute nothing)",
        );
        self.caps();
        self.shares();
        self.full();
        self.resized();
        self.killed();
        self.finish()
    }

    /// Sets the caps that the slices have now for the watcher.
    fn caps(&self) {
        let cap = |trainee: &Trainee| (trainee.pid, self.machine.node.slice(trainee.slice).cap().get());
        self.watcher.set(self.trainees.iter().map(cap).collect());
    }

    fn shares(&mut self) {
        let clock = self.machine.node.timeline(0).end();
        sleep(MEASURE);
        let timeline = self.machine.node.timeline(0);
        let (_, percent) = timeline.share(&[self.trainees[0].pid], clock, timeline.end());
        self.show(&format!("The larger one has {percent:.1} % of the GPU time"));
        let off = ((percent - 70.0).abs() * 100.0).round() as u64;
        self.claims.push(Claim::at_most("share_off_70", off, "0.01 pp", 200));
        let totals = self.totals();
        let caps = ["large", "small"].map(|slice| self.machine.node.slice(slice).cap().get());
        let wrong = totals.iter().zip(caps).filter(|(total, cap)| **total != *cap).count();
        self.claims.push(Claim::exactly("slices_seen_wrong", wrong as u64, "slices", 0));
    }

    fn full(&mut self) {
        self.mark("60 GB refused", "The smaller one wants more than its slice has");
        let small = &self.trainees[1];
        let before = small.last().map_or(0, |seen| seen.step);
        small.hold(TOO_MUCH);
        eventually("it is refused, and trains on", || match (small.refusals(), small.last()) {
            (1.., Some(seen)) if seen.step > before + 5 => Ok(()),
            other => Err(format!("{other:?}")),
        });
        self.claims.push(Claim::at_least("refusals_survived", small.refusals(), "refusals", 1));
    }

    fn resized(&mut self) {
        self.mark("0.5 and 0.5", "Both are resized to one half while they train");
        self.machine.node.tranche(&["slice", "resize", "large", "-g", "0.5"]).success();
        self.machine.node.tranche(&["slice", "resize", "small", "-g", "0.5"]).success();
        self.caps();
        let half = self.machine.node.slice("small").cap().get();
        eventually("both see it", || match self.totals() {
            totals if totals == [half, half] => Ok(()),
            totals => Err(format!("{totals:?}")),
        });
        self.trainees[1].hold(ENOUGH);
        let (pid, wanted) = (self.trainees[1].pid, ENOUGH << 20);
        eventually("now more fits", || match self.machine.node.device().held_by(0, &[pid]).get() {
            held if held >= wanted => Ok(()),
            held => Err(format!("{held} bytes")),
        });
        self.claims.push(Claim::exactly(
            "refusals_after_resize",
            self.trainees[1].refusals() - 1,
            "refusals",
            0,
        ));
        sleep(MEASURE / 2);
    }

    fn killed(&mut self) {
        self.mark("daemon killed", "The daemon is killed");
        self.machine.node.kill_daemon();
        let before = self.trainees.each_ref().map(steps);
        sleep(WITHOUT);
        let without = self.trainees.each_ref().map(steps);
        let made = before.iter().zip(without).map(|(before, now)| now - before).min();
        self.claims.push(Claim::at_least("steps_without_daemon", made.unwrap_or(0), "steps", 1));
        self.mark("daemon again", "The next daemon takes over");
        self.machine.node.start_daemon();
        let found = ["large", "small"].map(|slice| self.machine.node.slice(slice).pids());
        let lost = found.iter().zip(&self.trainees).filter(|(pids, one)| **pids != [one.pid]).count();
        self.claims.push(Claim::exactly("slices_lost", lost as u64, "slices", 0));
        sleep(MEASURE / 4);
        let after = self.trainees.each_ref().map(steps);
        let made = without.iter().zip(after).map(|(before, now)| now - before).min();
        self.claims.push(Claim::at_least("steps_after_daemon", made.unwrap_or(0), "steps", 1));
    }

    #[track_caller]
    fn finish(mut self) -> (Report, String) {
        let seen = self.trainees.each_ref().map(Trainee::seen);
        let rises = seen.iter().map(|seen| rises(seen)).sum();
        self.claims.push(Claim::exactly("losses_that_rose", rises, "losses", 0));
        let failed =
            self.trainees.map(Trainee::end).into_iter().filter(|outcome| outcome.code != Some(0)).count();
        self.claims.push(Claim::exactly("trainings_failed", failed as u64, "programs", 0));
        let watched = self.watcher.end();
        self.claims.push(Claim::exactly("bytes_over_cap", watched.over, "bytes", 0));
        self.claims.push(Claim::at_least("samples_per_second", watched.per_second, "samples", 1000));
        let [large, small] = seen;
        let figures = [&large, &small].map(|seen| seen.last().map_or(0, |last| last.step));
        let drawing = draw(&[("0.7, then 0.5", large), ("0.3, then 0.5", small)], &self.events);
        let report = Report {
            device: "NVIDIA H200".into(),
            simulated: true,
            commit: commit(),
            claims: self.claims,
            figures: [("steps_large", figures[0]), ("steps_small", figures[1])].into(),
            deaths_at: Default::default(),
        };
        (report, drawing)
    }

    fn totals(&self) -> [u64; 2] {
        self.trainees.each_ref().map(|trainee| trainee.last().map_or(0, |seen| seen.total))
    }

    fn mark(&mut self, short: &'static str, text: &str) {
        self.events.push((self.begin.elapsed().as_secs_f64(), short));
        self.show(text);
    }

    fn show(&self, text: &str) {
        println!("[{:5.1} s] {text}", self.begin.elapsed().as_secs_f64());
    }
}

fn steps(trainee: &Trainee) -> u64 {
    trainee.last().map_or(0, |seen| seen.step)
}

/// Number of losses that are not below the one before.
fn rises(seen: &[Seen]) -> u64 {
    seen.windows(2).filter(|pair| pair[1].loss >= pair[0].loss).count() as u64
}
