//! The program itself, on a node without a driver.

#![allow(clippy::unwrap_used)] // a test that cannot go on says where

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const TRANCHED: &str = env!("CARGO_BIN_EXE_tranched");

fn tranched(place: &std::path::Path) -> Command {
    let mut command = Command::new(TRANCHED);
    command.arg("--runtime-dir").arg(place.join("run")).arg("--state-dir").arg(place.join("state"));
    command.args(["--nvml-library", "/nonexistent/libnvidia-ml.so.1"]);
    command.stderr(Stdio::piped()).stdout(Stdio::piped()).stdin(Stdio::null());
    command
}

/// Starts it and waits until it says that it is ready; returns what it said until then.
fn start(place: &std::path::Path) -> (Child, String) {
    let mut child = tranched(place).spawn().unwrap();
    let mut said = String::new();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    while !said.contains("ready socket=") {
        assert_ne!(log.read_line(&mut said).unwrap(), 0, "it ended: {said}");
    }
    // What it says later must go somewhere.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    (child, said)
}

fn error(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn terminate(mut child: Child) {
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "SIGTERM does not end it");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success());
}

#[test]
fn it_starts_without_a_gpu_and_says_why_there_is_none() {
    let place = tempfile::tempdir().unwrap();
    let (child, said) = start(place.path());
    assert!(said.contains("no NVIDIA driver") && said.contains("/nonexistent/"), "{said}");
    terminate(child);
    let (child, _) = start(place.path());
    terminate(child);
}

#[test]
fn a_second_daemon_in_the_same_place_is_refused_with_the_firsts_pid() {
    let place = tempfile::tempdir().unwrap();
    let (child, _) = start(place.path());
    let refused = error(&tranched(place.path()).output().unwrap());
    assert!(refused.contains(&format!("pid {}", child.id())), "{refused}");
    terminate(child);
}

#[test]
fn a_killed_daemon_leaves_nothing_in_the_way_of_the_next() {
    let place = tempfile::tempdir().unwrap();
    let (mut child, _) = start(place.path());
    child.kill().unwrap();
    child.wait().unwrap();
    let (child, _) = start(place.path());
    terminate(child);
}

#[test]
fn a_misspelt_key_is_refused_before_anything_is_touched() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("c.toml");
    std::fs::write(&config, "runtime_dri = '/x'").unwrap();
    let refused = error(&tranched(place.path()).arg("--config").arg(&config).output().unwrap());
    assert!(refused.contains("did you mean `runtime_dir`?"), "{refused}");
    assert!(!place.path().join("run").exists());
    std::fs::write(&config, "context_reserve_mib = 300").unwrap();
    let checked = tranched(place.path()).arg("--check").arg("--config").arg(&config).output().unwrap();
    assert!(checked.status.success());
    assert!(String::from_utf8_lossy(&checked.stdout).contains("context_reserve_mib: 300"));
    assert!(!place.path().join("run").exists(), "a check touches nothing");
}
