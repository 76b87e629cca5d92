//! Compares the loaded driver with public facts about drivers.
//!
//! Each row of `data/driver.tsv` is a few calls, what they return, and where that is written or was measured.
//!
//! Law: each fact runs in a process of its own, so that one that crashes or breaks a context spoils no other.
#![deny(unsafe_code)]

mod codes;
#[allow(unsafe_code)] // functions of the driver are called by name
mod driver;
mod machine;
mod script;
mod table;

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use serde::Serialize;

use crate::driver::Driver;
use crate::machine::{Machine, Outcome};
use crate::table::Fact;

/// Longest time of one fact.
const PATIENCE: Duration = Duration::from_secs(30);
/// The kernel of the tests, as PTX.
const PTX: &str = include_str!("../../workload/spin_ns.ptx");

#[derive(Debug, Parser)]
#[command(about = "Holds the driver that is loaded to public facts about drivers")]
struct Args {
    /// Only facts whose id contains this
    #[arg(long)]
    only: Option<String>,
    /// Writes a report as JSON there
    #[arg(long)]
    json: Option<PathBuf>,
    /// Prints the facts that hold, too
    #[arg(long)]
    verbose: bool,
    /// Runs one fact in this process
    #[arg(long, hide = true)]
    one: Option<String>,
}

/// Facts of one run, by outcome.
#[derive(Debug, Default, Serialize)]
struct Report {
    driver: i32,
    passed: usize,
    /// Ids, with what was found instead.
    failed: Vec<String>,
    /// Facts of other versions.
    elsewhere: usize,
    /// Ids, with the function that the driver lacks.
    absent: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("facts: {why}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<ExitCode, String> {
    let facts = table::facts().map_err(|bad| bad.to_string())?;
    if let Some(id) = &args.one {
        let fact =
            facts.iter().find(|fact| fact.id == id).ok_or_else(|| format!("no fact is called {id}"))?;
        return alone(fact);
    }
    let mut report = Report { driver: version()?, ..Report::default() };
    let wanted = |fact: &&Fact| args.only.as_ref().is_none_or(|part| fact.id.contains(part.as_str()));
    for fact in facts.iter().filter(wanted) {
        enter(&mut report, fact, args.verbose)?;
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report).map_err(|why| why.to_string())?;
        std::fs::write(path, text).map_err(|why| format!("cannot write {}: {why}", path.display()))?;
    }
    println!(
        "{} passed, {} failed, {} absent, {} of other versions (CUDA {})",
        report.passed,
        report.failed.len(),
        report.absent.len(),
        report.elsewhere,
        report.driver
    );
    Ok(if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn enter(report: &mut Report, fact: &Fact, verbose: bool) -> Result<(), String> {
    if !fact.is_for(report.driver) {
        report.elsewhere += 1;
        return Ok(());
    }
    match apart(fact)? {
        Outcome::Holds => {
            report.passed += 1;
            if verbose {
                println!("ok      {}", fact.id);
            }
        }
        Outcome::Absent(function) => {
            println!("absent  {}: the driver has no {function}", fact.id);
            report.absent.push(format!("{}: {function}", fact.id));
        }
        Outcome::Broken(how) => {
            let open = if fact.note.is_empty() { String::new() } else { format!("; {}", fact.note) };
            println!("FAILED  {}: {how} [{}{open}]", fact.id, fact.sources.join(", "));
            report.failed.push(format!("{}: {how}", fact.id));
        }
    }
    Ok(())
}

fn version() -> Result<i32, String> {
    let mut machine = Machine::new(Driver::load()?, &[]);
    let steps = script::parse("cuDriverGetVersion(&v)", &|_| None).map_err(|bad| bad.to_string())?;
    if let broken @ (Outcome::Broken(_) | Outcome::Absent(_)) = machine.run(&steps) {
        return Err(format!("the driver does not say its version: {broken:?}"));
    }
    i32::try_from(machine.variable("v")).map_err(|_| "the driver's version is no number of CUDA's".to_owned())
}

/// Runs a fact in this process and prints its outcome.
fn alone(fact: &Fact) -> Result<ExitCode, String> {
    let mut machine = Machine::new(Driver::load()?, &[("ptx", PTX)]);
    match machine.run(&fact.steps) {
        Outcome::Holds => println!("holds"),
        Outcome::Absent(function) => println!("absent {function}"),
        Outcome::Broken(how) => println!("broken {how}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a fact in a process of its own.
fn apart(fact: &Fact) -> Result<Outcome, String> {
    let program = std::env::current_exe().map_err(|why| why.to_string())?;
    let mut child = Command::new(program)
        .args(["--one", fact.id])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|why| format!("cannot start a process for {}: {why}", fact.id))?;
    let began = Instant::now();
    while child.try_wait().map_err(|why| why.to_string())?.is_none() {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(Outcome::Broken(format!("no end within {} s", PATIENCE.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().map_err(|why| why.to_string())?;
    if let Some(signal) = output.status.signal() {
        return Ok(Outcome::Broken(format!("the process ended by signal {signal}")));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(match said.trim().split_once(' ').unwrap_or((said.trim(), "")) {
        ("holds", _) => Outcome::Holds,
        ("absent", function) => Outcome::Absent(function.to_owned()),
        ("broken", how) => Outcome::Broken(how.to_owned()),
        _ => Outcome::Broken(format!("the process ended with {} and no word", output.status)),
    })
}
