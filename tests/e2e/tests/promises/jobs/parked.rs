//! Jobs that are preempted or suspended by parking.

use e2e::{Node, eventually};

use super::{job, submit, until};

/// A node of eight GPUs of project `a`, whose daemon parks; project `b` borrows.
fn node() -> Node {
    let node = Node::with_driver("v100x8", "580");
    node.configure("preemption = \"park\"");
    node.tranche(&["config", "reload"]).success();
    node.tranche(&["project", "create", "a", "--quota", "8"]).success();
    node.tranche(&["project", "create", "b", "--quota", "0", "--weight", "1"]).success();
    node
}

/// Submits a training of project `b` that has memory on its GPUs and works until a file is removed. Its record is the other
/// file.
fn train(node: &Node, gpus: &str, arguments: &[&str]) {
    let (work, record) = (node.dir().join("work"), node.dir().join("record"));
    std::fs::write(&work, "").expect("the directory can be written");
    let workload = node.stage().workload().display().to_string();
    let command =
        ["trains", "-p", "b", "-g", gpus, "--", &workload, "--memory", "256Mi", "--kernel-ns", "2000000"];
    let [work, record] = [work, record].map(|path| path.display().to_string());
    let files = ["--while-exists", &work, "--checkpoint", &record];
    submit(node, &[&command[..], &files, arguments].concat()).success();
    until(node, "trains", "running");
    eventually("it uses its GPUs", || match node.slice("b.trains.0").used().get() {
        0 => Err("nothing is used".to_string()),
        _ => Ok(()),
    });
}

fn record(node: &Node) -> String {
    std::fs::read_to_string(node.dir().join("record")).unwrap_or_default()
}

#[test]
fn preempted_training_is_parked_and_continues_in_the_same_process() {
    let node = node();
    train(&node, "8", &[]);
    for _ in 0..3 {
        submit(&node, &["urgent", "-p", "a", "-g", "1", "--", "sleep", "0.3"]).success();
        let parked = until(&node, "trains", "parked");
        assert!(parked.reason.contains("urgent of project a"), "{}", parked.reason);
        until(&node, "urgent", "succeeded");
        until(&node, "trains", "running");
        node.tranche(&["delete", "-p", "a", "urgent"]).success();
    }
    assert_eq!(job(&node, "trains").members[0].starts, 1);
    std::fs::remove_file(node.dir().join("work")).unwrap();
    until(&node, "trains", "succeeded");
    let (record, log) = (record(&node), node.tranche(&["logs", "-p", "b", "trains"]).success());
    assert_eq!(record.lines().count(), 2, "it began once, and saved once: {record}");
    assert_eq!(log.matches("lies in host memory").count(), 3, "{log}");
}

#[test]
fn suspended_training_keeps_its_process() {
    let mut node = node();
    train(&node, "2", &[]);
    node.tranche(&["suspend", "-p", "b", "trains"]).success();
    let pid = until(&node, "trains", "parked").members[0].pid;
    assert!(node.tranche(&["list", "-A"]).success().contains("Parked"));
    node.tranche(&["slice", "unpark", "b.trains.0"]).refused(1, &["is a job's"]);
    node.kill_daemon();
    node.start_daemon();
    // The next daemon looks for the runner first.
    eventually("its runner is found", || match job(&node, "trains") {
        found if found.state == "parked" && found.members[0].pid == pid => Ok(()),
        other => Err(format!("{other:?}")),
    });
    node.tranche(&["resume", "-p", "b", "trains"]).success();
    assert_eq!(until(&node, "trains", "running").members[0].pid, pid);
    std::fs::remove_file(node.dir().join("work")).unwrap();
    until(&node, "trains", "succeeded");
    assert_eq!(record(&node).lines().count(), 2);
}

#[test]
fn job_that_cannot_be_parked_is_stopped_with_the_reason_in_its_log() {
    let node = node();
    submit(&node, &["idle", "-p", "b", "-g", "8", "--", "sleep", "1000"]).success();
    until(&node, "idle", "running");
    submit(&node, &["urgent", "-p", "a", "-g", "1", "--", "sleep", "0.3"]).success();
    until(&node, "urgent", "succeeded");
    assert_eq!(until(&node, "idle", "running").members[0].starts, 2);
    let log = node.tranche(&["logs", "-p", "b", "idle"]).success();
    assert!(log.contains("none of its processes uses a GPU yet"), "{log}");
    node.tranche(&["delete", "-p", "b", "idle"]).success();
}

#[test]
fn deleted_job_does_not_stay_parked() {
    let node = node();
    train(&node, "1", &[]);
    node.tranche(&["suspend", "-p", "b", "trains"]).success();
    until(&node, "trains", "parked");
    node.tranche(&["delete", "-p", "b", "trains"]).success();
    eventually("its slice is gone", || match node.smi().slices.len() {
        0 => Ok(()),
        left => Err(format!("{left} slices")),
    });
}
