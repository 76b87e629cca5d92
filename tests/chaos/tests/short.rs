//! The short campaign, and a check that its lists name all crash points of the daemon.
#![allow(clippy::unwrap_used, reason = "in a test, a failure is the answer")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stress::points::{DAEMON, DAEMON_ALONE, PARKS};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Crash points that the sources in a folder name.
fn points(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(points(&path));
        } else {
            let text = fs::read_to_string(&path).unwrap();
            let named = text.split("point(\"").skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(named.map(str::to_string));
        }
    }
    found
}

#[test]
fn each_point_of_the_daemon_is_one_where_daemons_die() {
    let crates = ["agent", "linux", "slices", "telemetry", "timeshare"]
        .map(|name| workspace().join("daemon").join(name).join("src"));
    let named: BTreeSet<String> = crates.iter().flat_map(|folder| points(folder)).collect();
    let known: BTreeSet<String> =
        DAEMON.iter().chain(DAEMON_ALONE).chain(PARKS).map(|name| name.to_string()).collect();
    assert_eq!(named, known);
}

#[test]
fn whatever_happens_to_a_node_nothing_is_lost_and_no_tenant_dies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    // `chaos` starts the daemon that lies beside it.
    assert!(Path::new(env!("CARGO_BIN_EXE_tranched-with-points")).is_file());
    let output =
        Command::new(env!("CARGO_BIN_EXE_chaos")).args(["--short", "--report"]).arg(&path).output().unwrap();
    let (printed, complaints) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}\n{complaints}");
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let claims = report["claims"].as_array().unwrap();
    let claimed = |name: &str| claims.iter().any(|claim| claim["name"] == name && claim["holds"] == true);
    assert!(
        claimed("kills.points_never_died_at")
            && claimed("cycles.heap_grown")
            && claimed("parks.contents_lost")
            && claimed("preemptions.steps_lost"),
        "{report:#}"
    );
    printed.lines().filter(|line| line.starts_with("SKIP")).for_each(print);
}

/// Prints without `eprintln!`, whose output the test harness discards when a test passes.
fn print(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}
