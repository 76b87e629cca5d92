//! Claims and figures of a run, in the form that every report has.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

/// A claim, with its value and its goal.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// Name that identifies the claim.
    pub name: String,
    /// Value that was counted or measured.
    pub value: u64,
    /// Unit of value and goal.
    pub unit: &'static str,
    /// Bound of the value: `=`, `>=` or `<=`, and a number.
    pub goal: String,
    /// True if the value is within the bound.
    pub holds: bool,
}

impl Claim {
    /// Claims that `value` is `goal`.
    pub fn exactly(name: impl Into<String>, value: u64, unit: &'static str, goal: u64) -> Self {
        Self { name: name.into(), value, unit, goal: format!("= {goal}"), holds: value == goal }
    }

    /// Claims that `value` is at least `goal`.
    pub fn at_least(name: impl Into<String>, value: u64, unit: &'static str, goal: u64) -> Self {
        Self { name: name.into(), value, unit, goal: format!(">= {goal}"), holds: value >= goal }
    }

    /// Claims that `value` is at most `goal`.
    pub fn at_most(name: impl Into<String>, value: u64, unit: &'static str, goal: u64) -> Self {
        Self { name: name.into(), value, unit, goal: format!("<= {goal}"), holds: value <= goal }
    }
}

/// Claims and figures of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Product name of the GPU.
    pub device: String,
    /// True if the GPU was simulated.
    pub simulated: bool,
    /// Abbreviated hash of the commit that was built.
    pub commit: String,
    /// Claims, each with its verdict.
    pub claims: Vec<Claim>,
    /// Further figures, about which nothing is claimed.
    pub figures: BTreeMap<&'static str, u64>,
    /// Number of deaths at each crash point.
    pub deaths_at: BTreeMap<String, u64>,
}

impl Report {
    /// Writes the report as JSON.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        fs::write(path, text)
    }

    /// Prints the report as text.
    pub fn show(&self) {
        for (point, deaths) in &self.deaths_at {
            println!("  {deaths:>6} deaths at {point}");
        }
        for (name, value) in &self.figures {
            println!("  {name:<30} {value:>12}");
        }
        for Claim { name, value, unit, goal, holds } in &self.claims {
            let verdict = if *holds { "holds" } else { "DOES NOT HOLD" };
            println!("  {name:<30} {value:>12} {unit:<10} {goal:<12} {verdict}");
        }
    }

    /// True if all claims hold.
    pub fn holds(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds)
    }
}

/// Commit of the tree around the working folder, or `unknown` without git.
pub fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let read = output.ok().filter(|output| output.status.success());
    read.map_or("unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_string())
}
