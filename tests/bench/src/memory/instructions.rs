//! Instructions of calls, counted by callgrind: figures that no busy machine disturbs.
//!
//! The calls are an allocation with its release, a launch, and a fill that is not counted.

use std::path::Path;
use std::process::Command;

use bench::Result;
use bench::node::{Node, run};
use bench::stage::{Driver, Stage};
use bench::variant::Variant;

const FEW: u64 = 2_000;
const MANY: u64 = 12_000;

/// True if `valgrind` is installed.
pub(crate) fn possible() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Calls of the short run; the long run has 11 times as many: work done once in thousands counts.
const LAUNCHES: u64 = 20_000;

/// Instructions of an allocation and its release.
pub(crate) fn of_a_pair(node: &Node, stage: &Stage, variant: &Variant) -> Result<f64> {
    of_each(node, stage, variant, &["pairs", "2097152", "1000"], (FEW, MANY))
}

/// Calls of one function, in a form of the client that makes no others.
struct Calls {
    what: &'static str,
    form: &'static str,
    function: &'static str,
    /// Most instructions that a slice may add to a call that is passed to the driver at once. Some are not; their
    /// number depends on the clock.
    most: f64,
    /// Most that it may add on average with all that it calls, where that does not depend on the clock.
    most_in_all: Option<f64>,
}

const LAUNCHING: Calls =
    Calls { what: "a launch", form: "launches", function: "cuLaunchKernel", most: 40.0, most_in_all: None };
const MOVING: Calls = Calls {
    what: "a copy over the bus",
    form: "transfers",
    function: "cuMemcpyHtoDAsync_v2",
    most: 10.0,
    most_in_all: Some(90.0),
};

/// Instructions of one call: with all that it calls, and of the functions of its name alone.
fn of_a_call(node: &Node, stage: &Stage, variant: &Variant, calls: &Calls) -> Result<[f64; 2]> {
    let each = of_each(node, stage, variant, &[calls.form], (LAUNCHES, 11 * LAUNCHES))?;
    let counted = std::env::temp_dir().join(format!("bench-calls-{}", std::process::id()));
    let mut command = node.program(variant, Path::new("valgrind"));
    command.args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"]);
    command.arg(format!("--callgrind-out-file={}", counted.display())).arg(stage.client());
    run(command.args([calls.form, &LAUNCHES.to_string()]))?;
    let text = std::fs::read_to_string(&counted).map_err(|error| format!("{}: {error}", counted.display()));
    let _ = std::fs::remove_file(&counted);
    Ok([each, own_cost(&text?, calls.function) as f64 / LAUNCHES as f64])
}

/// Own cost of the functions of a name in callgrind's output.
///
/// It is the sum of the lines of numbers after `fn=`, without each after `calls=`, which has the callee's cost.
fn own_cost(text: &str, name: &str) -> u64 {
    let (mut inside, mut called, mut sum) = (false, false, 0);
    for line in text.lines() {
        if let Some(function) = line.strip_prefix("fn=") {
            inside = function == name;
        } else if line.starts_with("calls=") {
            called = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok());
            sum += cost.filter(|_| inside && !called).unwrap_or(0);
            called = false;
        }
    }
    sum
}

fn of_each(
    node: &Node,
    stage: &Stage,
    variant: &Variant,
    form: &[&str],
    (few, many): (u64, u64),
) -> Result<f64> {
    let more = count(node, stage, variant, form, many)? - count(node, stage, variant, form, few)?;
    Ok(more as f64 / (many - few) as f64)
}

fn count(node: &Node, stage: &Stage, variant: &Variant, form: &[&str], times: u64) -> Result<u64> {
    let mut command = node.program(variant, Path::new("valgrind"));
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(stage.client());
    command.args(form).arg(times.to_string());
    // Callgrind reports on the standard error.
    let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let counted = stderr.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    counted
        .filter(|_| output.status.success())
        .ok_or_else(|| format!("{command:?}: {}\n{stderr}", output.status))
}

/// True if a slice adds at most `most` instructions to an allocation and its release.
///
/// Launches and copies over the bus have bounds of their own.
pub(crate) fn gate(stage: &Stage, most: u64) -> Result<bool> {
    run(Command::new("valgrind").arg("--version"))?;
    let node = Node::start(stage, Driver::Stub, "0.9")?;
    let native = of_a_pair(&node, stage, &Variant::Native)?;
    let ours = of_a_pair(&node, stage, &Variant::Ours)?;
    let added = ours - native;
    println!(
        "an allocation and its release: {native:.0} instructions bare, {added:.0} added, at most {most} allowed"
    );
    let launches = is_cheap(&node, stage, &LAUNCHING)?;
    let transfers = is_cheap(&node, stage, &MOVING)?;
    Ok(added <= most as f64 && launches && transfers)
}

/// Prints the instructions that a slice adds to each call; true if they are within bounds.
fn is_cheap(node: &Node, stage: &Stage, calls: &Calls) -> Result<bool> {
    let [native, native_own] = of_a_call(node, stage, &Variant::Native, calls)?;
    let [ours, ours_own] = of_a_call(node, stage, &Variant::Ours, calls)?;
    let (mean, own, Calls { what, most, .. }) = (ours - native, ours_own - native_own, calls);
    println!(
        "{what}: {native:.0} instructions bare, {own:.1} added, at most {most:.0} allowed; {mean:.1} added on average \
         with all that is done now and then"
    );
    if own <= 0.0 {
        return Err(format!("{what} did not pass through the slice's function"));
    }
    Ok(own <= *most && calls.most_in_all.is_none_or(|most| mean <= most))
}
