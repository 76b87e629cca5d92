//! A run with a thousand deaths, and runs that must detect a wrong protocol.
#![allow(clippy::unwrap_used, reason = "in a test, a failure is the answer")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Folder of the simulated driver's libraries.
fn libraries() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = here.ancestors().nth(2).unwrap();
    let stage =
        std::env::var_os("TRANCHE_STAGE").map_or_else(|| workspace.join("target/stage"), PathBuf::from);
    stage.join("sim")
}

fn run(arguments: &[&str]) -> (Output, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_stress"));
    command.arg("run").args(arguments).arg("--libraries").arg(libraries()).arg("--report").arg(&path);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = std::fs::read(&path).unwrap_or_else(|_| panic!("there is no report: {stderr}"));
    (output, serde_json::from_slice(&report).unwrap())
}

fn value(report: &serde_json::Value, name: &str) -> u64 {
    let claims = report["claims"].as_array().unwrap();
    claims.iter().find(|claim| claim["name"] == name).unwrap()["value"].as_u64().unwrap()
}

#[test]
fn a_thousand_deaths_at_every_step_leave_no_credit_and_never_too_much() {
    // A machine with much other work may delay any thread; ten times the bound is no wait of the protocol, whose waits
    // are either microseconds or seconds.
    let arguments = ["--deaths", "1000", "--at-most", "240", "--blocked-ms", "1000"];
    let (output, report) = run(&arguments);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(value(&report, "deaths") >= 1000, "{stdout}");
}

#[test]
fn driver_call_before_the_charge_is_noticed() {
    let (output, report) = run(&["--deaths", "60", "--at-most", "60", "--broken", "driver-first"]);
    assert!(!output.status.success() && value(&report, "held_but_not_charged") > 0, "{report:#}");
}

#[test]
fn a_credit_word_that_is_written_back_blindly_is_noticed() {
    let (output, report) = run(&["--deaths", "60", "--at-most", "60", "--broken", "lost-update"]);
    assert!(!output.status.success() && value(&report, "over_grants") > 0, "{report:#}");
}

#[test]
fn credit_from_outside_the_books_is_noticed() {
    let (output, report) = run(&["--deaths", "60", "--at-most", "60", "--broken", "over-grant"]);
    assert!(!output.status.success() && value(&report, "over_grants") > 0, "{report:#}");
}

#[test]
fn shared_memory_held_after_its_release_is_noticed() {
    let (output, report) = run(&["--deaths", "60", "--at-most", "60", "--broken", "kept-share"]);
    assert!(!output.status.success() && value(&report, "device_over_cap") > 0, "{report:#}");
}
