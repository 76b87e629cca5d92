//! `stress`: see the library of this package.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use stress::board::Board;
use stress::chance::Chance;
use stress::points::Aim;
use stress::storm::Storm;
use stress::tenant::Birth;
use stress::wrong::Broken;
use stress::{daemon, nursery, tenant};

/// Kills tenants and daemons at every step of their protocol, and counts what is left.
#[derive(Debug, Parser)]
struct Command {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// A whole run, with its report.
    Run(Run),
    /// Forks tenants: a part of a run.
    #[command(hide = true)]
    Nursery {
        place: PathBuf,
        #[arg(long)]
        tenants: usize,
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        broken: Option<Broken>,
    },
    /// A tenant that was another program before: a part of a run.
    #[command(hide = true)]
    Tenant {
        place: PathBuf,
        tenant: usize,
        #[arg(long)]
        seed: u64,
    },
    /// The daemon: a part of a run.
    #[command(hide = true)]
    Daemon {
        place: PathBuf,
        #[arg(long, requires = "passing")]
        point: Option<usize>,
        #[arg(long, requires = "point")]
        passing: Option<u64>,
    },
    /// Charges all of the slice: a part of a run.
    #[command(hide = true)]
    Fill { place: PathBuf },
}

#[derive(Debug, Args)]
struct Run {
    /// Least number of tenants that die
    #[arg(long, default_value_t = 30_000)]
    deaths: u64,
    /// Number of tenants at a time, at most 16
    #[arg(long, default_value_t = 12)]
    tenants: usize,
    /// Seed of random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Longest time of the run, in seconds
    #[arg(long, default_value_t = 1800)]
    at_most: u64,
    /// Longest time that a thread may be blocked, in milliseconds
    #[arg(long, default_value_t = 100)]
    blocked_ms: u64,
    /// Fault of the protocol, made on purpose
    #[arg(long)]
    broken: Option<Broken>,
    /// Folder of the simulated driver's libraries
    #[arg(long, default_value = "target/stage/sim")]
    libraries: PathBuf,
    /// Path of the report in JSON
    #[arg(long)]
    report: Option<PathBuf>,
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match play(Command::parse().part) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("stress: {failure}");
            ExitCode::from(2)
        }
    }
}

fn play(part: Part) -> Result<ExitCode, Failure> {
    match part {
        Part::Run(run) => return run.run(),
        Part::Nursery { place, tenants, seed, broken } => {
            nursery::run(&place, tenants, seed, broken)?;
        }
        Part::Tenant { place, tenant, seed } => tenant::live(reborn(place, tenant, seed)?),
        Part::Daemon { place, point, passing } => {
            let aim = point.zip(passing).map(|(point, passing)| Aim { point, passing });
            daemon::run(&place, aim)?;
        }
        Part::Fill { place } => println!("{}", tenant::fill(Board::open(&board(&place))?)),
    }
    Ok(ExitCode::SUCCESS)
}

fn reborn(place: PathBuf, tenant: usize, seed: u64) -> Result<Birth, Failure> {
    let board = Board::open(&board(&place))?;
    let node = simgpu::Node::attach(&place.join("node"))?;
    let (lane, chance) = (board.lane(tenant), Chance::new(seed));
    Ok(Birth { place, board, tenant, lane, node, aim: None, chance, broken: None, may_have_children: false })
}

fn board(place: &Path) -> PathBuf {
    place.join("board")
}

impl Run {
    fn run(self) -> Result<ExitCode, Failure> {
        if !self.libraries.join("libnvidia-ml.so.1").is_file() {
            let libraries = self.libraries.display();
            return Err(format!("{libraries} holds no simulated NVML: run `make build` first").into());
        }
        let storm = Storm {
            deaths: self.deaths,
            tenants: self.tenants.clamp(1, stress::board::TENANTS),
            seed: self.seed,
            at_most: Duration::from_secs(self.at_most),
            blocked: Duration::from_millis(self.blocked_ms),
            broken: self.broken,
            libraries: std::path::absolute(&self.libraries)?,
        };
        let report = storm.run()?;
        report.show();
        if let Some(path) = &self.report {
            report.write(path)?;
        }
        Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
