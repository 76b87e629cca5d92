//! `parkdemo`: a notebook sleeps, a training has its memory, and the notebook wakes.
#![forbid(unsafe_code)]

mod curves;
mod measure;
mod rotate;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, io};

use clap::Parser;
use e2e::{Kind, Node, Process, Tenant};
use stress::report::{Claim, Report, commit};
use tranche_domain::units::Bytes;

use watch::Watch;

/// Driver that checkpoints processes.
const DRIVER: &str = "580";
/// Memory of the notebook, written before it sleeps.
const NOTEBOOK: Bytes = Bytes::mib(512);
/// Memory of the training, more than is left beside the notebook's slice.
const TRAINING: &str = "14Gi";
/// Time for which the training computes, in seconds.
const TRAINS: &str = "4";
/// Longest wait for a step.
const PATIENCE: Duration = Duration::from_secs(30);

/// A notebook sleeps, a training has its memory, and the notebook wakes
#[derive(Debug, Parser)]
struct Command {
    /// File for the report
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Measure the times to park and to return, by memory
    #[arg(long)]
    measure: bool,
    /// Measure the shares of slices that rotate, and their stays
    #[arg(long, conflicts_with = "measure")]
    rotate: bool,
    /// File for a drawing of device and host memory over time
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn main() -> ExitCode {
    match play(&Command::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("parkdemo: {error}");
            ExitCode::from(2)
        }
    }
}

fn play(command: &Command) -> io::Result<bool> {
    let mut node = Node::with_driver("v100x8", DRIVER);
    if command.rotate {
        return rotate::run(&mut node, command.report.as_deref());
    }
    if command.measure {
        return measure::run(&node, command.report.as_deref());
    }
    println!("GPU 0 of a node of V100s (SIMULATED: memory is the host's, and kernels only take time)");
    let mut watch = Watch::begin(&node);
    let mut claims = Vec::new();

    watch.step("notebook: -g 0.6 --park-idle 3s");
    let (mut notebook, piece, sum) = notebook(&node);
    watch.has_notebook(notebook.pid());
    let beside = train(&node).end();
    println!("    a training of 0.6 beside it: {}", beside.stderr.lines().next().unwrap_or_default());
    claims.push(Claim::exactly("training_refused_beside_it", u64::from(beside.code != Some(0)), "", 1));

    watch.step("its user sleeps");
    let sleeps = watch.until(PATIENCE, |now| now.host > Bytes::ZERO && now.notebook == Bytes::ZERO);
    claims.push(Claim::exactly("notebook_parked", u64::from(sleeps), "", 1));
    println!("{}", node.tranche(&["slice", "list"]).success().trim_end());

    watch.step("a training has its memory");
    let mut training = train(&node);
    claims.push(Claim::exactly(
        "training_runs",
        u64::from(watch.until(PATIENCE, |now| now.training >= Bytes::mib(14 << 10))),
        "",
        1,
    ));

    watch.until(Duration::from_secs(1), |_| false);
    watch.step("the user is back: the next cell waits");
    let asked = Instant::now();
    notebook.say(&format!("sum {piece}"));
    watch.until(PATIENCE, |_| !training.runs());
    watch.step("the training has ended");
    let ended = Instant::now();
    let heard = notebook.hear_numbers();
    let woke = ended.elapsed();
    watch.step("the notebook continues");
    watch.until(Duration::from_secs(1), |_| false);
    println!(
        "    it waited {} ms for the training, and {} ms for its memory",
        ended.duration_since(asked).as_millis(),
        woke.as_millis()
    );

    claims.push(Claim::exactly("contents_equal", u64::from(heard == Ok(vec![sum])), "", 1));
    claims.push(Claim::at_most(
        "most_on_the_gpu",
        watch.most().whole_mib(),
        "MiB",
        node.smi().gpus[0].capacity.whole_mib(),
    ));
    if let Some(path) = &command.svg {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, watch.draw())?;
        println!("    memory over time: {}", path.display());
    }
    let report = Report {
        device: "Tesla V100-SXM2-32GB".into(),
        simulated: true,
        commit: commit(),
        claims,
        figures: BTreeMap::from([("wake_ms", u64::try_from(woke.as_millis()).unwrap_or(u64::MAX))]),
        deaths_at: BTreeMap::new(),
    };
    report.show();
    command.report.as_ref().map_or(Ok(()), |path| report.write(path))?;
    Ok(report.holds())
}

/// The notebook, its memory, and the sum of what it wrote there.
fn notebook(node: &Node) -> (Tenant, u64, u64) {
    let options = ["-g", "0.6", "--gpu", "0", "--name", "notebook", "--park-idle", "3s"];
    let mut notebook = node.tenant(&options).ready();
    let piece = notebook.alloc(Kind::Plain, NOTEBOOK).expect("the slice is empty");
    notebook.ask(&format!("write {piece} 7")).expect("it is its own");
    let sum = notebook.number(&format!("sum {piece}")).expect("it is its own");
    (notebook, piece, sum)
}

/// Starts a training of as large a part.
fn train(node: &Node) -> Process {
    let workload = node.stage().workload().display().to_string();
    let program =
        [&workload, "--memory", TRAINING, "--kernel-ns", "2000000", "--seconds", TRAINS].map(str::to_string);
    Process::start(&mut node.run_in_slice(&["-g", "0.6", "--gpu", "0", "--name", "training"], &program))
}
