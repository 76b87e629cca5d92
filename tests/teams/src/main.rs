//! `teams`: the four teams, live, with the promises to them and the results.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use std::{fs, io};

use clap::Parser;
use stress::report::{Report, commit};
use teams::claims::Promises;
use teams::scenario::{PREEMPTED, STAGES, Stage};
use teams::world::World;

/// Four teams share sixteen GPUs: they borrow what is idle, give it back, and divide what is left over
#[derive(Debug, Parser)]
struct Command {
    /// File for the report
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// File for a drawing of each team's GPUs over time
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn main() -> ExitCode {
    let command = Command::parse();
    match Demo::begin().play(&command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("teams: {error}");
            ExitCode::from(2)
        }
    }
}

struct Demo {
    began: Instant,
    world: World,
    promises: Promises,
}

impl Demo {
    fn begin() -> Self {
        let began = Instant::now();
        let demo = Self { began, world: World::begin(), promises: Promises::default() };
        demo.say(
            "Four teams, sixteen V100s in two islands (SIMULATED: kernels take time and compute nothing)",
        );
        demo.table(&["project", "list"]);
        demo
    }

    fn play(mut self, command: &Command) -> io::Result<bool> {
        for stage in &STAGES {
            self.stage(stage);
        }
        self.resumed();
        self.end();
        if let Some(path) = &command.svg {
            self.draw(path)?;
        }
        self.say("What was promised, and what came of it");
        let report = self.report();
        report.show();
        command.report.as_ref().map_or(Ok(()), |path| report.write(path))?;
        Ok(report.holds())
    }

    fn stage(&mut self, stage: &Stage) {
        self.say(stage.title);
        for step in stage.steps {
            print!("          {}", self.world.act(&step.act).stdout);
            if !step.then.is_empty() {
                self.promises.step(step, &self.world.settle(step.then));
            }
        }
        self.table(&["project", "list"]);
        for seen in self.world.ten_rounds() {
            self.promises.round(stage, &seen);
        }
        self.promises.after(stage, &self.world);
    }

    fn resumed(&mut self) {
        self.say("Preempted jobs continue from their own checkpoints");
        for job in PREEMPTED {
            let runs = self.world.runs(job).all;
            if let [.., before, now] = runs.as_slice() {
                let (saved, from) = (before.saved.unwrap_or_default(), now.from);
                println!(
                    "          {job} was warned and saved after {saved} kernels; it has begun again from {from}"
                );
            }
        }
        self.promises.resumed(&self.world);
    }

    fn end(&mut self) {
        self.say("There is no more work: every job comes to its end, those that waited too");
        let seen = self.world.finish();
        self.table(&["list", "-A"]);
        self.promises.ended(&self.world, &seen);
    }

    fn draw(&self, path: &Path) -> io::Result<()> {
        let drawing = self.world.node.tranche(&["history", "--by", "project", "--svg"]).success();
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, drawing)?;
        self.say(&format!("GPUs of each team over time: {}", path.display()));
        Ok(())
    }

    fn say(&self, text: &str) {
        println!("\n[{:5.1} s] {text}", self.began.elapsed().as_secs_f64());
    }

    fn table(&self, words: &[&str]) {
        println!("{}", self.world.node.tranche(words).success().trim_end());
    }

    fn report(self) -> Report {
        let took_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Report {
            device: "Tesla V100-SXM2-32GB".into(),
            simulated: true,
            commit: commit(),
            claims: self.promises.into_claims(),
            figures: BTreeMap::from([("took_ms", took_ms)]),
            deaths_at: BTreeMap::new(),
        }
    }
}
