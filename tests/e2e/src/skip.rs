//! Tests with requirements that this machine may not meet.

use std::io::Write;

/// Result of a test that cannot run on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Required {
    /// It passes, and the reason is printed.
    No,
    /// It fails, as `TRANCHE_REQUIRE` is `all`.
    All,
}

impl Required {
    /// Reads the environment variable `TRANCHE_REQUIRE`.
    pub fn from_environment() -> Self {
        match std::env::var("TRANCHE_REQUIRE").as_deref() {
            Ok("all") => Self::All,
            _ => Self::No,
        }
    }
}

/// Reports that a test does not run, with the reason; fails it if all tests are required.
pub fn skip(reason: &str) {
    match Required::from_environment() {
        // Not by `eprintln!`, whose output the test harness hides when a test passes.
        Required::No => drop(writeln!(std::io::stderr(), "SKIP: {reason}")),
        Required::All => panic!("skipped, but TRANCHE_REQUIRE=all: {reason}"),
    }
}
