//! What was measured and what was promised, for people and for machines.

use std::path::Path;
use std::{fs, io};

use serde::Serialize;

/// A promise and what came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Claim {
    name: String,
    value: f64,
    unit: &'static str,
    goal: String,
    /// Whether it holds.
    pub(crate) holds: bool,
}

/// One figure of one variant over all rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    name: String,
    variant: String,
    unit: &'static str,
    /// The middle one of the rounds.
    pub(crate) median: f64,
    min: f64,
    max: f64,
    rounds: usize,
}

/// All of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    device: String,
    simulated: bool,
    commit: String,
    /// How the daemon was built; the shim is always the release-like one.
    daemon: String,
    /// The promises.
    pub(crate) claims: Vec<Claim>,
    figures: Vec<Figure>,
}

impl Report {
    /// Nothing measured yet.
    pub(crate) fn new(commit: String, daemon: String) -> Self {
        let device = "a driver stub whose allocation is a pointer bump".into();
        Self { device, simulated: true, commit, daemon, claims: Vec::new(), figures: Vec::new() }
    }

    /// Enters the rounds of a figure; returns their median.
    pub(crate) fn figure(&mut self, name: &str, variant: &str, unit: &'static str, rounds: &[f64]) -> f64 {
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

    /// A promise that `value` is at most `goal`.
    pub(crate) fn at_most(&mut self, name: &str, value: f64, unit: &'static str, goal: f64) {
        self.claim(name, value, unit, format!("<= {goal}"), value <= goal);
    }

    /// A promise that `value` is at least `goal`.
    pub(crate) fn at_least(&mut self, name: &str, value: f64, unit: &'static str, goal: f64) {
        self.claim(name, value, unit, format!(">= {goal}"), value >= goal);
    }

    fn claim(&mut self, name: &str, value: f64, unit: &'static str, goal: String, holds: bool) {
        let value = (value * 1000.0).round() / 1000.0;
        self.claims.push(Claim { name: name.into(), value, unit, goal, holds });
    }

    /// Whether all promises hold.
    pub(crate) fn holds(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds)
    }

    /// Prints the promises.
    pub(crate) fn print(&self) {
        println!("\non {}; daemon: {} build, shim: release-like", self.device, self.daemon);
        for Claim { name, value, unit, goal, holds } in &self.claims {
            let verdict = if *holds { "holds" } else { "DOES NOT HOLD" };
            println!("{name:44} {value:12.3} {unit:6} {goal:10} {verdict}");
        }
    }

    /// Writes all of it as JSON.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, serde_json::to_string_pretty(self).map_err(io::Error::other)?)
    }
}

/// In ascending order.
pub(crate) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The value below which that part of them lies; not a number if there are none.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = ((sorted.len() as f64 * part).ceil() as usize).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|part| quantile(&values, part)), [1.0, 50.0, 99.0, 100.0]);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn one_broken_promise_breaks_the_report() {
        let mut report = Report::new("c".into(), "dev".into());
        report.at_most("a", 1.0, "ns", 1.0);
        assert!(report.holds());
        report.at_least("b", f64::NAN, "ns", 1.0);
        assert!(!report.holds());
    }
}
