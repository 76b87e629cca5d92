//! Figures and claims of a bench, as text, Markdown and JSON.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use serde::Serialize;

use crate::stats::{quantile, sorted};

/// A claim: a measured value beside its goal.
#[derive(Debug, Serialize)]
pub struct Claim {
    name: String,
    value: f64,
    unit: &'static str,
    goal: String,
    holds: bool,
    /// True if the measurement cannot decide the claim.
    reported: bool,
}

impl Claim {
    const fn verdict(&self) -> &'static str {
        match (self.holds, self.reported) {
            (true, false) => "holds",
            (false, false) => "DOES NOT HOLD",
            (true, true) => "holds (reported)",
            (false, true) => "DOES NOT HOLD (reported)",
        }
    }
}

/// One figure of one variant over all rounds.
#[derive(Debug, Serialize)]
pub struct Figure {
    name: String,
    variant: String,
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
    rounds: usize,
}

impl Figure {
    fn cell(&self) -> String {
        let Self { unit, median, min, max, rounds, .. } = self;
        match rounds {
            1 => format!("{median:.2} {unit}"),
            _ => format!("{median:.2} {unit}, {min:.2} to {max:.2}"),
        }
    }
}

/// Figures and claims of one run of a bench.
#[derive(Debug, Serialize)]
pub struct Report {
    device: String,
    simulated: bool,
    commit: String,
    /// Build profile of the daemon; the shim is always the release-like one.
    daemon: &'static str,
    claims: Vec<Claim>,
    figures: Vec<Figure>,
}

impl Report {
    /// An empty report on a device. A simulated one decides fewer claims than a real one.
    pub fn new(device: &str, simulated: bool, commit: String, daemon: &'static str) -> Self {
        Self { device: device.into(), simulated, commit, daemon, claims: Vec::new(), figures: Vec::new() }
    }

    /// Records the rounds of a figure; returns their median.
    pub fn figure(&mut self, name: &str, variant: &str, unit: &'static str, rounds: &[f64]) -> f64 {
        let sorted = sorted(rounds);
        let median = quantile(&sorted, 0.5);
        let (min, max) = (quantile(&sorted, 0.0), quantile(&sorted, 1.0));
        println!(
            "{name:34} {variant:8} {median:14.3} {unit:8} {min:14.3} .. {max:.3} ({} rounds)",
            sorted.len()
        );
        let (name, variant) = (name.into(), variant.into());
        self.figures.push(Figure { name, variant, unit, median, min, max, rounds: rounds.len() });
        median
    }

    /// Claims that `value` is at most `goal`.
    pub fn at_most(&mut self, name: &str, value: f64, unit: &'static str, goal: f64) {
        self.claim(name, value, unit, format!("<= {goal}"), value <= goal);
    }

    /// Claims that `value` differs from `goal` by at most `tolerance`.
    pub fn near(&mut self, name: &str, value: f64, unit: &'static str, goal: f64, tolerance: f64) {
        let holds = (value - goal).abs() <= tolerance;
        self.claim(name, value, unit, format!("{goal} +- {tolerance}"), holds);
    }

    /// Claims that `value` is at least `goal`.
    pub fn at_least(&mut self, name: &str, value: f64, unit: &'static str, goal: f64) {
        self.claim(name, value, unit, format!(">= {goal}"), value >= goal);
    }

    fn claim(&mut self, name: &str, value: f64, unit: &'static str, goal: String, holds: bool) {
        let value = (value * 1000.0).round() / 1000.0;
        self.claims.push(Claim { name: name.into(), value, unit, goal, holds, reported: false });
    }

    /// Makes the last claim reported only on a simulated device, whose real time other programs disturb.
    pub fn undecided_in_simulation(&mut self) {
        if let Some(claim) = self.claims.last_mut() {
            claim.reported = self.simulated;
        }
    }

    /// True if all claims hold that the run can decide.
    pub fn holds(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds || claim.reported)
    }

    /// Prints the claims with their verdicts.
    pub fn print(&self) {
        println!("\non {}; daemon: {} build, shim: release-like", self.device, self.daemon);
        for claim in &self.claims {
            let Claim { name, value, unit, goal, .. } = claim;
            println!("{name:44} {value:12.3} {unit:6} {goal:12} {}", claim.verdict());
        }
    }

    /// The claims and figures as tables.
    pub fn markdown(&self) -> String {
        let simulated = if self.simulated { ", **simulated**" } else { "" };
        let header = format!("{}{simulated}; commit {}\n\n", self.device, self.commit);
        header + &self.promises() + "\n" + &self.side_by_side()
    }

    fn promises(&self) -> String {
        let row = |claim: &Claim| {
            let Claim { name, value, unit, goal, .. } = claim;
            format!("| `{name}` | {value} {unit} | {goal} | {} |\n", claim.verdict())
        };
        let header = "| promise | measured | goal | |\n|---|---|---|---|\n".to_string();
        header + &self.claims.iter().map(row).collect::<String>()
    }

    /// A row for each figure, and a column for each variant.
    fn side_by_side(&self) -> String {
        let variants: BTreeSet<&str> = self.figures.iter().map(|figure| figure.variant.as_str()).collect();
        let columns: Vec<&str> = variants.iter().copied().collect();
        let header = format!("| figure | {} |\n|---{}|\n", columns.join(" | "), "|---".repeat(columns.len()));
        let first = |at: usize| self.figures[..at].iter().all(|before| before.name != self.figures[at].name);
        let row = |at: usize| {
            let name = &self.figures[at].name;
            let of = |variant: &&str| {
                let mut figures = self.figures.iter();
                let found = figures.find(|figure| figure.name == *name && figure.variant == **variant);
                found.map_or_else(String::new, Figure::cell)
            };
            format!("| `{name}` | {} |\n", columns.iter().map(of).collect::<Vec<_>>().join(" | "))
        };
        header + &(0..self.figures.len()).filter(|at| first(*at)).map(row).collect::<String>()
    }

    /// Writes the report as JSON, and as Markdown beside it.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path.with_extension("md"), self.markdown())?;
        fs::write(path, serde_json::to_string_pretty(self).map_err(io::Error::other)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(simulated: bool) -> Report {
        Report::new("none", simulated, "c".into(), "dev")
    }

    #[test]
    fn one_broken_promise_breaks_the_report() {
        let mut report = report(true);
        report.at_most("a", 1.0, "ns", 1.0);
        report.near("b", 1.5, "ns", 1.0, 0.5);
        assert!(report.holds());
        report.at_least("c", f64::NAN, "ns", 1.0);
        assert!(!report.holds());
    }

    #[test]
    fn variants_of_a_figure_stand_side_by_side() {
        let mut report = report(true);
        report.figure("a", "ours", "ns", &[1.0, 2.0, 4.0]);
        report.figure("b", "ours", "ns", &[5.0]);
        report.figure("a", "native", "ns", &[3.0]);
        let text = report.markdown();
        assert!(text.contains("| figure | native | ours |"), "{text}");
        assert!(text.contains("| `a` | 3.00 ns | 2.00 ns, 1.00 to 4.00 |"), "{text}");
        assert!(text.contains("| `b` |  | 5.00 ns |"), "{text}");
    }

    #[test]
    fn what_a_simulation_cannot_decide_breaks_only_a_report_about_a_real_device() {
        for simulated in [true, false] {
            let mut report = report(simulated);
            report.at_most("a", 2.0, "ns", 1.0);
            report.undecided_in_simulation();
            assert_eq!(report.holds(), simulated);
        }
    }
}
