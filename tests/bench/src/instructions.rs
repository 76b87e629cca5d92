//! Instructions per allocation and its release, counted by callgrind: the figure that no busy machine disturbs.

use std::path::Path;
use std::process::Command;

use crate::node::{Node, Result, Stage, Variant, run};

const FEW: u64 = 2_000;
const MANY: u64 = 12_000;

/// Whether there is something to count with.
pub(crate) fn possible() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Instructions of one pair.
pub(crate) fn of_a_pair(node: &Node, stage: &Stage, variant: &Variant) -> Result<f64> {
    let (few, many) = (count(node, stage, variant, FEW)?, count(node, stage, variant, MANY)?);
    Ok((many - few) as f64 / (MANY - FEW) as f64)
}

fn count(node: &Node, stage: &Stage, variant: &Variant, pairs: u64) -> Result<u64> {
    let mut command = node.program(variant, Path::new("valgrind"));
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(stage.client());
    command.args(["pairs", "2097152", "1000", &pairs.to_string()]);
    // Callgrind reports on the standard error.
    let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let counted = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    counted
        .filter(|_| output.status.success())
        .ok_or_else(|| format!("{command:?}: {}\n{said}", output.status))
}

/// Fails if a slice adds more instructions than that.
pub(crate) fn gate(stage: &Stage, most: u64) -> Result<bool> {
    run(Command::new("valgrind").arg("--version"))?;
    let node = Node::start(stage, stage.stub(), "0.9")?;
    let native = of_a_pair(&node, stage, &Variant::Native)?;
    let ours = of_a_pair(&node, stage, &Variant::Ours)?;
    let added = ours - native;
    println!(
        "an allocation and its release: {native:.0} instructions bare, {added:.0} added, at most {most} allowed"
    );
    Ok(added <= most as f64)
}
