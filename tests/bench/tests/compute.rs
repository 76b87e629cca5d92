//! That the bench of compute measures: what it finds is for those who run it on a quiet machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

#[test]
fn the_bench_measures_launches_and_shares_beside_the_bare_driver() {
    let stage = std::env::var_os("TRANCHE_STAGE")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/stage"), PathBuf::from);
    if !stage.join("bench/load").exists() {
        return skip("nothing is staged: run make build first");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("report.json");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench-compute"));
    bench.args(["--quick", "--gpu", "sim", "--only", "launches,shares", "--stage"]).arg(stage);
    let output = bench.arg("--report").arg(&file).output().expect("it starts");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let report: Value = serde_json::from_slice(&std::fs::read(&file).expect(&said)).expect(&said);
    for variant in ["ours", "unscheduled"] {
        let used = median(&report, "used_50_30_20_1ms", variant).expect(&said);
        assert!((40.0..=100.0).contains(&used), "{variant}: {used}\n{said}");
    }
    // Without a scheduler all get alike, and with one they don't, on the busiest machine.
    let off = |variant| median(&report, "share_error_50_30_20_1ms", variant).expect(&said);
    assert!(off("ours") < off("unscheduled") / 2.0, "{said}");
    assert!(median(&report, "launch_added_ns", "ours").is_some(), "{said}");
    let claims = report["claims"].as_array().expect(&said);
    assert!(
        claims.iter().all(|claim| claim["holds"].is_boolean() && claim["reported"].is_boolean()),
        "{said}"
    );
}

fn median(report: &Value, name: &str, variant: &str) -> Option<f64> {
    let figures = report["figures"].as_array()?;
    let figure = figures.iter().find(|figure| figure["name"] == name && figure["variant"] == variant)?;
    figure["median"].as_f64()
}

/// Aloud; and not at all where everything is required.
fn skip(reason: &str) {
    assert!(std::env::var_os("TRANCHE_REQUIRE").is_none_or(|what| what != "all"), "{reason}");
    println!("SKIP: {reason}");
}
