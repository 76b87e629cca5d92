//! What is claimed of a run, in the form that every report has.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

/// One claim.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// What is claimed.
    pub name: String,
    /// What was counted or measured.
    pub value: u64,
    /// In which unit.
    pub unit: &'static str,
    /// What was promised.
    pub goal: String,
    /// True if the promise was kept.
    pub holds: bool,
}

impl Claim {
    /// This and no other number.
    pub fn exactly(name: impl Into<String>, value: u64, unit: &'static str, goal: u64) -> Self {
        Self { name: name.into(), value, unit, goal: format!("= {goal}"), holds: value == goal }
    }

    /// This number or more.
    pub fn at_least(name: impl Into<String>, value: u64, unit: &'static str, goal: u64) -> Self {
        Self { name: name.into(), value, unit, goal: format!(">= {goal}"), holds: value >= goal }
    }

    /// This number or less.
    pub fn at_most(name: impl Into<String>, value: u64, unit: &'static str, goal: u64) -> Self {
        Self { name: name.into(), value, unit, goal: format!("<= {goal}"), holds: value <= goal }
    }
}

/// A report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Product name of the GPU.
    pub device: String,
    /// True if it was simulated.
    pub simulated: bool,
    /// What was built from.
    pub commit: String,
    /// What was promised and what came of it.
    pub claims: Vec<Claim>,
    /// Further figures, about which nothing is promised.
    pub figures: BTreeMap<&'static str, u64>,
    /// Deaths at each point.
    pub deaths_at: BTreeMap<String, u64>,
}

impl Report {
    /// Writes it.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        fs::write(path, text)
    }

    /// Shows it to a person.
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

    /// Tests if all claims hold.
    pub fn holds(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds)
    }
}

/// The commit of the tree around the working folder, as far as git tells.
pub fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let told = output.ok().filter(|output| output.status.success());
    told.map_or("unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_string())
}
