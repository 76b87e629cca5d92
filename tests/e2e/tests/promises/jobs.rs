//! Jobs: handed in by one line, run in their turn within their slices, and found again by the next daemon.

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::{Node, Outcome, eventually};
use serde::Deserialize;
use tranche_domain::units::Bytes;

/// What `tranche list --json` says of a job, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Job {
    name: String,
    state: String,
    reason: String,
    succeeded: u32,
    url: Option<String>,
    members: Vec<Member>,
}

#[derive(Debug, Deserialize)]
struct Member {
    gpus: BTreeSet<u32>,
    starts: u32,
    pid: Option<u32>,
}

fn jobs(node: &Node) -> Vec<Job> {
    let listed = node.tranche(&["list", "-A", "--json"]).success();
    serde_json::from_str(&listed).unwrap_or_else(|error| panic!("{error}: {listed}"))
}

fn job(node: &Node, name: &str) -> Job {
    jobs(node).into_iter().find(|job| job.name == name).unwrap_or_else(|| panic!("there is no job {name}"))
}

fn until(node: &Node, name: &str, state: &str) -> Job {
    eventually(&format!("{name} is {state}"), || {
        let job = job(node, name);
        if job.state == state { Ok(job) } else { Err(format!("{job:?}")) }
    })
}

/// A node with one project that has all of it.
fn node(preset: &str, quota: &str) -> Node {
    let node = Node::simulated(preset);
    node.tranche(&["project", "create", "a", "--quota", quota]).success();
    node
}

fn submit(node: &Node, words: &[&str]) -> Outcome {
    node.tranche(&[&["submit"], words].concat())
}

#[test]
fn two_fractions_share_one_gpu_of_which_four_fifths_are_allocated() {
    let node = node("v100x8", "8");
    submit(&node, &["frac05", "-g", "0.5", "--interactive", "--", "sleep", "1000"]).success();
    submit(&node, &["frac03", "-g", "0.3", "--", "sleep", "1000"]).success();
    let (half, third) = (until(&node, "frac05", "running"), until(&node, "frac03", "running"));
    assert_eq!(half.members[0].gpus, third.members[0].gpus);
    let gpu = &node.smi().gpus[*half.members[0].gpus.first().unwrap() as usize];
    assert_eq!(gpu.committed, Bytes::mib(26008), "0.8 of 32510 MiB");
    let table = node.tranche(&["list"]).success();
    for word in ["frac05", "interactive", "frac03", "training", "Running"] {
        assert!(table.contains(word), "{word} is missing from\n{table}");
    }
    node.tranche(&["delete", "frac05", "frac03"]).success();
}

#[test]
fn a_job_sees_its_slice_and_so_does_whoever_comes_to_it() {
    let node = node("v100x8", "1");
    let workload = node.stage().workload().display().to_string();
    let look = ["sh", "-c", &format!("{workload} --nvml; echo looked; sleep 1000")].map(String::from);
    let words: Vec<&str> =
        ["seen", "-g", "0.5", "--"].into_iter().chain(look.iter().map(String::as_str)).collect();
    submit(&node, &words).success();
    until(&node, "seen", "running");
    eventually("the job has looked", || {
        let log = node.tranche(&["logs", "seen"]).success();
        if log.contains("looked") { Ok(()) } else { Err(log) }
    });
    let log = node.tranche(&["logs", "seen"]).success();
    let visitor = node.tranche(&["exec", "seen", "--", &workload, "--nvml"]).success();
    // In bytes, as the program that knows nothing of slices says it.
    let half = (16255u64 << 20).to_string();
    assert!(log.contains(&half) && visitor.contains(&half), "{log}\n{visitor}");
}

#[test]
fn a_killed_daemon_takes_no_job_with_it_and_loses_none() {
    let mut node = node("v100x8", "8");
    let folder = tempfile::tempdir().unwrap();
    let counted = format!("echo run >> {}/$TRANCHE_JOB_NAME; sleep 3", folder.path().display());
    submit(&node, &["runs", "-g", "8", "--", "sh", "-c", &counted]).success();
    let before = until(&node, "runs", "running");
    submit(&node, &["first", "-g", "5", "--", "sh", "-c", &counted]).success();
    submit(&node, &["second", "-g", "5", "--", "sh", "-c", &counted]).success();
    node.kill_daemon();
    node.start_daemon();
    assert_eq!(until(&node, "runs", "running").members[0].pid, before.members[0].pid);
    assert!(job(&node, "second").reason.contains("first is before it"), "{}", job(&node, "second").reason);
    until(&node, "first", "running");
    node.kill_daemon();
    // It comes to its end while nobody is there to see it.
    std::thread::sleep(Duration::from_secs(4));
    node.start_daemon();
    for name in ["runs", "first", "second"] {
        let done = until(&node, name, "succeeded");
        let ran = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!((done.members[0].starts, ran.as_str()), (1, "run\n"), "{name}");
    }
    assert!(node.smi().slices.is_empty());
}

#[test]
fn a_sweep_runs_two_members_at_a_time_to_four_completions() {
    let node = node("v100x8", "8");
    let words = [
        "sweep",
        "-g",
        "2",
        "--parallelism",
        "2",
        "--completions",
        "4",
        "--",
        "sh",
        "-c",
        "echo $TRANCHE_JOB_INDEX",
    ];
    submit(&node, &words).success();
    let done = until(&node, "sweep", "succeeded");
    assert_eq!(done.succeeded, 4);
    let printed = |index: &str| node.tranche(&["logs", "sweep", "--member", index]).success();
    assert_eq!(["0", "1", "2", "3"].map(printed), ["0\n", "1\n", "2\n", "3\n"]);
}

#[test]
fn an_idle_job_and_one_that_runs_too_long_are_stopped_with_the_reason() {
    let node = node("v100x8", "2");
    node.tranche(&["project", "update", "a", "--interactive-limit", "4s", "--idle-limit", "1s"]).success();
    let workload = node.stage().workload().display().to_string();
    submit(&node, &["idle", "-g", "0.5", "--interactive", "--", "sleep", "1000"]).success();
    submit(&node, &["busy", "-g", "0.5", "--interactive", "--", &workload, "--seconds", "1000"]).success();
    assert!(until(&node, "idle", "failed").reason.contains("no GPU time"));
    assert!(until(&node, "busy", "failed").reason.contains("the most for interactive jobs"));
}

#[test]
fn what_an_interactive_job_prints_first_as_its_address_is_shown() {
    let node = node("v100x8", "1");
    let serve = "echo 'at http://localhost:8888/lab?token=ab'; sleep 1000";
    submit(&node, &["jupyter", "-g", "0.5", "--interactive", "--", "sh", "-c", serve]).success();
    eventually("its address is shown", || {
        let job = job(&node, "jupyter");
        if job.url.as_deref() == Some("http://localhost:8888/lab?token=ab") {
            Ok(())
        } else {
            Err(format!("{job:?}"))
        }
    });
    assert!(node.tranche(&["list"]).success().contains("http://localhost:8888/lab?token=ab"));
}

#[test]
fn what_cannot_be_is_refused_at_once_with_a_reason() {
    let node = node("v100x8", "4");
    let sleep = ["--", "sleep", "1"];
    let refused = |words: &[&str], told: &[&str]| submit(&node, &[words, &sleep].concat()).refused(1, told);
    refused(&["j", "-p", "nobody", "-g", "1"], &["no project nobody", "project list"]);
    refused(&["j", "-g", "9"], &["takes 9 GPUs", "at most 8", "could never start"]);
    refused(&["j", "-g", "5", "--interactive"], &["interactive", "quota is 4", "--preemptible"]);
    submit(&node, &["taken", "-g", "1", "--", "sleep", "1000"]).success();
    refused(&["taken", "-g", "1"], &["named taken exists"]);
    node.tranche(&["project", "create", "b", "--quota", "5"]).refused(1, &["9 GPUs together", "has 8"]);
    node.tranche(&["project", "delete", "a"]).refused(1, &["1 jobs"]);
    node.tranche(&["project", "create", "a", "--quota", "1"]).refused(1, &["project update a"]);
    node.tranche(&["logs", "nothing"]).refused(1, &["no job nothing in project a"]);
    node.tranche(&["exec", "nothing", "--", "true"]).refused(1, &["no job nothing"]);
    submit(&node, &["missing", "-g", "1", "--", "no-such-program"]).success();
    let failed = until(&node, "missing", "failed");
    assert!(failed.reason.contains("no-such-program") && failed.reason.contains("PATH"), "{}", failed.reason);
    assert_eq!(jobs(&node).len(), 2);
}
