//! Ctrl-C: a bench that is interrupted ends all that it started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until a condition holds; fails after `PATIENCE`.
#[track_caller]
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        sleep(Duration::from_millis(20));
    }
}

/// Pids of processes with a word in their command line or environment.
fn running(mark: &str) -> Vec<String> {
    let names = |pid: &str| {
        let read = |file| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let text = [read("cmdline"), read("environ")].concat();
        String::from_utf8_lossy(&text).contains(mark)
    };
    let entries = fs::read_dir("/proc").expect("every Linux has it").flatten();
    let pids = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    pids.filter(|pid| pid.bytes().all(|sign| sign.is_ascii_digit()) && names(pid)).collect()
}

/// Interrupts a bench while programs run in slices; no process and no file of it remains.
#[track_caller]
fn assert_leaves_nothing(program: &str, options: &[&str], signal: Signal, begun: &str) {
    let stage = std::env::var_os("TRANCHE_STAGE")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/stage"), PathBuf::from);
    if !stage.join("bench/load").exists() {
        return skip("nothing is staged: run make build first");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().display().to_string();
    let mut bench = Command::new(program);
    bench.args(options).arg("--stage").arg(stage).arg("--report").arg(folder.path().join("report.json"));
    bench.env("TMPDIR", folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut bench = bench.spawn().expect("it starts");
    let at_work = |pid: &String| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).split('\0').next().is_some_and(|word| word.ends_with(begun))
    };
    eventually("a program is at work", || running(&mark).iter().any(at_work));
    interrupt(&bench, signal);
    let status = bench.wait().expect("it ends");
    assert_eq!(status.code(), Some(128 + signal as i32));
    assert_eq!(running(&mark), [""; 0], "what it started has ended before it");
    let left: Vec<_> = fs::read_dir(folder.path()).expect("the folder is there").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

fn interrupt(bench: &Child, signal: Signal) {
    kill(Pid::from_raw(bench.id() as i32), signal).expect("it runs");
}

#[test]
fn a_bench_of_compute_that_is_interrupted_leaves_nothing_behind() {
    let options = ["--quick", "--gpu", "sim", "--only", "shares"];
    assert_leaves_nothing(env!("CARGO_BIN_EXE_bench-compute"), &options, Signal::SIGINT, "bench/load");
}

#[test]
fn a_bench_of_memory_that_is_terminated_leaves_nothing_behind() {
    assert_leaves_nothing(env!("CARGO_BIN_EXE_bench-memory"), &["--quick"], Signal::SIGTERM, "bench/client");
}

/// Prints a reason to skip; fails if `TRANCHE_REQUIRE` is `all`.
fn skip(reason: &str) {
    assert!(std::env::var_os("TRANCHE_REQUIRE").is_none_or(|what| what != "all"), "{reason}");
    println!("SKIP: {reason}");
}
