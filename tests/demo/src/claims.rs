//! Claims of the demonstration, with measured values.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Serialize, Serializer};

use crate::error::DemoError;
use crate::narrator::Narrator;

/// A measured value and its goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Claim {
    /// Name of the measured value.
    pub(crate) name: &'static str,
    /// Measured value, rounded to a tenth.
    #[serde(serialize_with = "plainly")]
    pub(crate) value: f64,
    /// Unit of the value.
    pub(crate) unit: &'static str,
    /// Goal as printed, such as `>= 950`.
    pub(crate) goal: String,
    /// True if the goal was met.
    pub(crate) holds: bool,
}

/// Goal of a measured value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// The value equals the goal.
    Exactly(f64),
    /// The value is the goal or greater.
    AtLeast(f64),
    /// The value is the goal or less.
    AtMost(f64),
}

impl Claim {
    /// Compares a value with its goal.
    pub(crate) fn new(name: &'static str, value: f64, unit: &'static str, goal: Goal) -> Self {
        let (goal, holds) = match goal {
            Goal::Exactly(exact) => (format!("= {exact}"), value == exact),
            Goal::AtLeast(least) => (format!(">= {least}"), value >= least),
            Goal::AtMost(most) => (format!("<= {most}"), value <= most),
        };
        Self { name, value: (value * 10.0).round() / 10.0, unit, goal, holds }
    }

    /// Adds a condition that the claim also depends on.
    pub(crate) fn and(self, also: bool, what: &str) -> Self {
        Self { holds: self.holds && also, goal: format!("{}, {what}", self.goal), ..self }
    }
}

/// Content of the report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClaimOutcome {
    /// Product name of the GPU.
    pub(crate) device: String,
    /// True if it was simulated.
    pub(crate) simulated: bool,
    /// Commit that the binaries were built from.
    pub(crate) commit: String,
    /// Claims in the order of measurement.
    pub(crate) claims: Vec<Claim>,
}

impl ClaimOutcome {
    /// Writes the report as JSON; creates its folder if necessary.
    pub(crate) fn write(&self, path: &Path) -> Result<(), DemoError> {
        let mut text = serde_json::to_string_pretty(self).expect("claims are numbers and text");
        text.push('\n');
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(DemoError::io(format!("creating {}", folder.display())))?;
        }
        fs::write(path, text).map_err(DemoError::io(format!("writing {}", path.display())))
    }

    /// Fails if any claim does not hold.
    pub(crate) fn verdict(&self) -> Result<(), DemoError> {
        let broken: Vec<_> =
            self.claims.iter().filter(|claim| !claim.holds).map(|claim| claim.name.to_string()).collect();
        if broken.is_empty() { Ok(()) } else { Err(DemoError::NotAsPromised(broken)) }
    }

    /// Prints the claims as a table.
    pub(crate) fn show(&self, narrator: &Narrator) {
        let width = self.claims.iter().map(|claim| claim.name.len()).max().unwrap_or_default();
        for Claim { name, value, unit, goal, holds } in &self.claims {
            let verdict = if *holds { "holds" } else { "DOES NOT HOLD" };
            let measured = format!("{} {unit}", rounded(*value));
            narrator.line(&format!("{name:<width$}  {measured:>18}   {goal:<38} {verdict}"));
        }
    }
}

/// Serialises integral values as integers: 0, not 0.0.
fn plainly<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    // Below 2^53 every integral f64 is exact as an i64.
    if value.fract() == 0.0 && value.abs() < 9e15 {
        serializer.serialize_i64(*value as i64)
    } else {
        serializer.serialize_f64(*value)
    }
}

fn rounded(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Commit of the working folder's tree, if git reports one.
pub(crate) fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let told = output.ok().filter(|output| output.status.success());
    told.map_or("unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(claims: Vec<Claim>) -> ClaimOutcome {
        ClaimOutcome { device: "A30".into(), simulated: true, commit: "c".into(), claims }
    }

    #[test]
    fn one_broken_claim_breaks_the_verdict() {
        let good = Claim::new("leftovers", 0.0, "things", Goal::Exactly(0.0));
        let bad = Claim::new("rate", 949.9, "permille", Goal::AtLeast(950.0));
        assert!(outcome(vec![good.clone()]).verdict().is_ok());
        let error = outcome(vec![good, bad]).verdict().unwrap_err();
        assert_eq!(error.to_string(), "not as promised: rate");
    }

    #[test]
    fn a_number_alone_does_not_make_a_claim_with_a_condition_hold() {
        let claim = Claim::new("rate", 1000.0, "permille", Goal::AtLeast(950.0)).and(false, "no errors");
        assert!(!claim.holds);
        assert_eq!(claim.goal, ">= 950, no errors");
    }

    #[test]
    fn the_report_has_the_form_that_every_report_has() {
        let claims = vec![Claim::new("leftovers", 0.0, "things", Goal::Exactly(0.0))];
        let json = serde_json::to_value(outcome(claims)).unwrap();
        assert_eq!(json["claims"][0]["holds"], true);
        assert_eq!(json["claims"][0]["value"].to_string(), "0");
        for key in ["device", "simulated", "commit", "claims"] {
            assert!(json.get(key).is_some(), "{key}");
        }
    }
}
