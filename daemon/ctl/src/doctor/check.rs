//! Result of a check.

use std::fmt;

use serde::Serialize;

/// Severity of a check's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// Works without any restriction.
    Ok,
    /// Works, with a restriction.
    Warning,
    /// Slices cannot work until it is solved.
    Problem,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    /// Name of the check.
    pub(super) check: String,
    /// Severity of the observation.
    pub(super) verdict: Verdict,
    /// Observation in words, for the operator.
    pub(super) found: String,
    /// Remedy, if there is one.
    pub(super) remedy: Option<String>,
}

/// Number of problems and warnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub(super) problems: usize,
    pub(super) warnings: usize,
}

impl Found {
    pub(super) fn of(checks: &[Check]) -> Self {
        let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
        Self { problems: count(Verdict::Problem), warnings: count(Verdict::Warning) }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: usize, noun: &str| match count {
            0 => format!("no {noun}s"),
            1 => format!("1 {noun}"),
            many => format!("{many} {noun}s"),
        };
        write!(f, "{}, {}", counted(self.problems, "problem"), counted(self.warnings, "warning"))
    }
}

/// Result with this severity, and its remedy if there is one.
pub(super) fn check(name: &str, verdict: Verdict, found: impl Into<String>, remedy: Option<&str>) -> Check {
    Check { check: name.into(), verdict, found: found.into(), remedy: remedy.map(Into::into) }
}

/// Result of a check that found nothing to mend.
pub(super) fn ok(name: &str, found: impl Into<String>) -> Check {
    check(name, Verdict::Ok, found, None)
}

/// Result with a restriction, and its remedy if there is one.
pub(super) fn warning(name: &str, found: impl Into<String>, remedy: Option<&str>) -> Check {
    check(name, Verdict::Warning, found, remedy)
}

/// Result that keeps slices from working, with its remedy.
pub(super) fn problem(name: &str, found: impl Into<String>, remedy: &str) -> Check {
    check(name, Verdict::Problem, found, Some(remedy))
}
