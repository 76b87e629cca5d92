//! Requests that wait: shown with requester and reason, and served when they can be.

use e2e::{Node, Process, eventually};

use crate::park::holder;

#[test]
fn return_waits_for_room_and_for_the_end_of_a_cordon() {
    let node = Node::with_driver("v100x8", "580");
    let (mut tenant, piece, sum) = holder(&node, &["-g", "0.6", "--gpu", "0", "--name", "night"], 7);
    node.tranche(&["slice", "park", "night"]).success();
    node.tranche(&["slice", "create", "day", "-g", "0.6", "--gpu", "0"]).success();
    let mut command = node.command(node.stage().command());
    let unpark = Process::start(command.args(["slice", "unpark", "night", "--wait", "1m"]));
    let waits = |why: &str| {
        eventually("it waits", || match node.smi().waiting.first() {
            Some(waiting) if waiting.reason.contains(why) => Ok(waiting.clone()),
            other => Err(format!("{other:?}")),
        })
    };
    let waiting = waits("cannot come back");
    assert!(waiting.returns && waiting.name.as_deref() == Some("night"), "{waiting:?}");
    assert_eq!(
        (waiting.holders, waiting.uid),
        (vec!["day".to_owned()], Some(nix::unistd::geteuid().as_raw()))
    );
    let list = node.tranche(&["slice", "list"]).success();
    assert!(list.contains("Waiting") && list.contains("in use by day"), "{list}");

    node.tranche(&["gpu", "cordon", "0", "--reason", "its fan is loud"]).success();
    node.tranche(&["slice", "delete", "day"]).success();
    assert!(waits("its fan is loud").holders.is_empty());
    let words = ["slice night cannot come back", "gpu 0", "its fan is loud", "tranche gpu uncordon 0"];
    node.tranche(&["slice", "unpark", "night"]).refused(1, &words);
    node.tranche(&["gpu", "uncordon", "0"]).success();
    unpark.end().success();
    assert_eq!(tenant.number(&format!("sum {piece}")), Ok(sum));
    assert!(node.smi().waiting.is_empty());
}

#[test]
fn request_that_waits_is_repeated_after_a_restart_of_the_daemon() {
    let mut node = Node::simulated("h200x1");
    node.tranche(&["slice", "create", "full", "-g", "0.8"]).success();
    let mut command = node.command(node.stage().command());
    let late = Process::start(command.args(["slice", "create", "late", "-g", "0.5", "--wait", "2m"]));
    let waits = |node: &Node| {
        eventually("it waits", || match node.smi().waiting.as_slice() {
            [waiting] if waiting.name.as_deref() == Some("late") => Ok(()),
            other => Err(format!("{other:?}")),
        });
    };
    waits(&node);
    node.kill_daemon();
    node.start_daemon();
    waits(&node);
    node.stop_daemon();
    node.start_daemon();
    waits(&node);
    node.tranche(&["slice", "delete", "full"]).success();
    let outcome = late.end();
    assert_eq!(outcome.stderr.matches("is tried again").count(), 2, "{outcome}");
    assert!(outcome.success().contains("created slice late"));
    assert_eq!(node.smi().slices.len(), 1);
}

#[test]
fn followed_log_is_complete_and_without_repetition_over_a_restart() {
    let mut node = Node::simulated("h200x1");
    node.tranche(&["project", "create", "a", "--quota", "1"]).success();
    let script = "n=0; while [ $n -lt 60 ]; do n=$((n + 1)); echo line $((n % 3)); sleep 0.1; done; echo end";
    node.tranche(&["submit", "talks", "-p", "a", "-g", "0.1", "--", "sh", "-c", script]).success();
    let mut command = node.command(node.stage().command());
    let mut follower = Process::start(command.args(["logs", "-f", "talks", "-p", "a"]));
    let first = follower.line().expect("it prints");
    node.kill_daemon();
    std::thread::sleep(std::time::Duration::from_secs(1));
    node.start_daemon();
    let lines: Vec<String> = std::iter::once(first).chain(std::iter::from_fn(|| follower.line())).collect();
    let expected: Vec<String> =
        (1..=60).map(|n| format!("line {}", n % 3)).chain(["end".to_owned()]).collect();
    assert_eq!(lines, expected);
}
