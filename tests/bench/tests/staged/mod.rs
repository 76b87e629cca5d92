//! Benches as they are run, on the staged tree.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use serde_json::Value;

/// Runs a bench; returns its exit status, its report and its output.
///
/// If the tree is not staged, it prints that and returns none, or fails if `TRANCHE_REQUIRE` is `all`.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Option<(ExitStatus, Value, String)> {
    let stage = std::env::var_os("TRANCHE_STAGE")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/stage"), PathBuf::from);
    if !stage.join("bench/load").exists() {
        let reason = "nothing is staged: run make build first";
        assert!(std::env::var_os("TRANCHE_REQUIRE").is_none_or(|what| what != "all"), "{reason}");
        println!("SKIP: {reason}");
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("report.json");
    let mut bench = Command::new(program);
    bench.args(arguments).arg("--stage").arg(stage).arg("--report").arg(&file);
    let output = bench.output().expect("it starts");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let report = serde_json::from_slice(&std::fs::read(&file).expect(&text)).expect(&text);
    Some((output.status, report, text))
}
