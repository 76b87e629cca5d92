//! Calls of promtool, which checks pages and rules.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::files;

/// True if it is installed; else a skip is reported.
pub(crate) fn is_there() -> bool {
    let there = Command::new("promtool")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !there {
        e2e::skip(
            "rules and metrics are checked by promtool, which is not installed (Debian's package prometheus)",
        );
    }
    there
}

/// Runs it in the folder of the rules; fails if it reports an error.
pub(crate) fn run(arguments: &[&str]) {
    let output = Command::new("promtool").args(arguments).current_dir(files::folder()).output();
    expect_nothing_wrong(&output.expect("promtool was there before"), &arguments.join(" "));
}

/// Checks a page with it; fails if it reports an error.
pub(crate) fn check_metrics(page: &str) {
    let mut checker = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool was there before");
    let mut stdin = checker.stdin.take().expect("it is piped");
    stdin.write_all(page.as_bytes()).expect("promtool reads");
    drop(stdin);
    expect_nothing_wrong(&checker.wait_with_output().expect("promtool ends"), page);
}

#[track_caller]
fn expect_nothing_wrong(output: &Output, about: &str) {
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool reports\n{text}\non\n{about}");
}
