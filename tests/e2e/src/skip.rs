//! Tests that need something this machine may lack.

use std::io::Write;

/// What to do about a test that cannot run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Required {
    /// Say so and go on.
    No,
    /// Fail: whoever runs the tests wants all of them.
    All,
}

impl Required {
    /// As `TRANCHE_REQUIRE` says.
    pub fn from_environment() -> Self {
        match std::env::var("TRANCHE_REQUIRE").as_deref() {
            Ok("all") => Self::All,
            _ => Self::No,
        }
    }
}

/// Says that a test does not run and why; fails it where all tests are required.
pub fn skip(reason: &str) {
    match Required::from_environment() {
        // Not by `eprintln!`, whose output the test harness keeps to itself when a test passes.
        Required::No => drop(writeln!(std::io::stderr(), "SKIP: {reason}")),
        Required::All => panic!("skipped, but TRANCHE_REQUIRE=all: {reason}"),
    }
}
