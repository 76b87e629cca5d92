//! Jobs are submitted by one command, run in their turn in slices, and are adopted by the next daemon.

mod full;
mod gangs;
mod idle;
mod launcher;
mod looks;
mod notify;
mod parked;
mod refused;
mod serve;
mod slices;
mod terms;

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::{Node, Outcome, eventually};
use serde::Deserialize;
use tranche_domain::units::Bytes;

/// Entry of `tranche list --json`, with the fields that the tests read.
#[derive(Debug, Deserialize)]
pub(crate) struct Job {
    name: String,
    state: String,
    reason: String,
    succeeded: u32,
    url: Option<String>,
    members: Vec<Member>,
}

#[derive(Debug, Deserialize)]
struct Member {
    state: String,
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

pub(crate) fn until(node: &Node, name: &str, state: &str) -> Job {
    eventually(&format!("{name} is {state}"), || {
        let job = job(node, name);
        if job.state == state { Ok(job) } else { Err(format!("{job:?}")) }
    })
}

/// A node with the project `a` of this quota.
fn node(preset: &str, quota: &str) -> Node {
    let node = Node::simulated(preset);
    node.tranche(&["project", "create", "a", "--quota", quota]).success();
    node
}

pub(crate) fn submit(node: &Node, words: &[&str]) -> Outcome {
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
fn job_and_exec_see_the_slice() {
    let node = node("v100x8", "1");
    let workload = node.stage().workload().display().to_string();
    let look = ["sh", "-c", &format!("{workload} --nvml; echo looked; sleep 1000")].map(String::from);
    let words: Vec<&str> =
        ["seen", "-g", "0.5", "--"].into_iter().chain(look.iter().map(String::as_str)).collect();
    let words = [&["--env", "GREETING=hello"], &words[..]].concat();
    submit(&node, &words).success();
    until(&node, "seen", "running");
    eventually("the job has printed it", || {
        let log = node.tranche(&["logs", "seen"]).success();
        if log.contains("looked") { Ok(()) } else { Err(log) }
    });
    let log = node.tranche(&["logs", "seen"]).success();
    let visitor = node.tranche(&["exec", "seen", "--", &workload, "--nvml"]).success();
    // In bytes, as a program without knowledge of slices prints it.
    let half = (16255u64 << 20).to_string();
    assert!(log.contains(&half) && visitor.contains(&half), "{log}\n{visitor}");
    let told =
        node.tranche(&["exec", "seen", "--", "sh", "-c", "echo $GREETING $TRANCHE_JOB_NAME"]).success();
    assert_eq!(told.trim(), "hello seen", "it has the job's environment");
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
    // The job ends while no daemon runs.
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
fn job_on_a_lost_gpu_continues_and_restarts_elsewhere() {
    let mut node = node("v100x8", "8");
    submit(&node, &["runs", "-g", "1", "--", "sleep", "1000"]).success();
    let before = until(&node, "runs", "running").members.remove(0);
    let gpu = *before.gpus.first().unwrap();
    node.kill_daemon();
    node.set_gpu(gpu as usize, &["--lost", "on"]);
    node.start_daemon();
    let blind = until(&node, "runs", "running").members.remove(0);
    assert_eq!((blind.pid, blind.starts, blind.gpus), (before.pid, 1, BTreeSet::new()));
    node.tranche(&["suspend", "runs"]).success();
    until(&node, "runs", "pending");
    node.tranche(&["resume", "runs"]).success();
    let again = until(&node, "runs", "running").members.remove(0);
    assert!(again.starts == 2 && !again.gpus.contains(&gpu), "{again:?}");
    node.tranche(&["delete", "runs"]).success();
}

#[test]
fn a_sweep_runs_two_members_at_a_time_to_four_completions() {
    let node = node("v100x8", "8");
    // Each member counts the members that run with it, after a time in which others can start.
    let count =
        "touch in.$TRANCHE_JOB_INDEX; sleep 0.5; ls in.* | wc -l; sleep 0.5; rm in.$TRANCHE_JOB_INDEX";
    let words = ["sweep", "-g", "2", "--parallelism", "2", "--completions", "4", "--", "sh", "-c", count];
    submit(&node, &words).success();
    let done = until(&node, "sweep", "succeeded");
    assert_eq!((done.succeeded, done.members.len()), (4, 4));
    let at_once =
        ["0", "1", "2", "3"].map(|index| node.tranche(&["logs", "sweep", "--member", index]).success());
    assert!(at_once.iter().all(|count| ["1\n", "2\n"].contains(&count.as_str())), "{at_once:?}");
    assert!(at_once.contains(&"2\n".to_owned()), "{at_once:?}");
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
    node.tranche(&["exec", "idle", "--", "true"]).refused(1, &["job idle is overdue", "submit it again"]);
    for state in ["failed", "overdue"] {
        let found =
            node.tranche(&["list", "-A", "-o", "name", "--filter", &format!("state={state}")]).success();
        let found: BTreeSet<&str> = found.lines().collect();
        assert_eq!(found, BTreeSet::from(["busy", "idle"]), "{state}");
    }
}

#[test]
fn the_address_that_a_notebook_server_prints_is_shown_whole() {
    let node = node("v100x8", "1");
    // As JupyterLab 4 prints it.
    let token = "6815a8277e1e1cc4a548b3f0c4b76cb40af8168eeba030d1";
    let address = format!("http://localhost:8888/lab?token={token}");
    let serve = format!(
        "echo '[I 12:00:00.475 ServerApp] Jupyter Server 2.21.1 is running at:'
         echo '[I 12:00:00.475 ServerApp] {address}'
         echo '[I 12:00:00.475 ServerApp]     http://127.0.0.1:8888/lab?token={token}'
         sleep 1000"
    );
    submit(&node, &["notebook", "-g", "0.5", "--interactive", "--", "sh", "-c", &serve]).success();
    eventually("its address is shown", || {
        let job = job(&node, "notebook");
        if job.url.as_ref() == Some(&address) { Ok(()) } else { Err(format!("{job:?}")) }
    });
    for shown in [&["list"][..], &["describe", "notebook"]] {
        let shown = node.tranche(shown).success();
        assert!(shown.contains(&format!("{address} ")) || shown.contains(&format!("{address}\n")), "{shown}");
    }
}

#[test]
fn changes_of_jobs_are_reported_as_json_too() {
    let node = node("v100x8", "8");
    let json_of = |words: &[&str]| -> serde_json::Value {
        serde_json::from_str(&node.tranche(&[words, &["--json"]].concat()).success()).unwrap()
    };
    submit(&node, &["sleeps", "-g", "1", "--", "sleep", "1000"]).success();
    until(&node, "sleeps", "running");
    let suspended = json_of(&["suspend", "sleeps"]);
    assert_eq!((suspended["name"].as_str(), suspended["project"].as_str()), (Some("sleeps"), Some("a")));
    until(&node, "sleeps", "pending");
    assert_eq!(json_of(&["resume", "sleeps"])["name"], "sleeps");
    assert_eq!(json_of(&["delete", "sleeps"]), serde_json::json!({"project": "a", "deleted": ["sleeps"]}));
    eventually("the project has no jobs", || {
        let outcome = node.tranche(&["project", "delete", "a", "--json"]);
        if outcome.code == Some(0) { Ok(()) } else { Err(outcome.to_string()) }
    });
}
