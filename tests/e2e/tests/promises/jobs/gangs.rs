//! Gangs: all members of one run, or none.

use std::time::{Duration, Instant};

use e2e::{Node, eventually};

use super::{Job, job, node, submit, until};

/// Waits until all members of a gang are in this state, and none was ever without a mate.
fn until_all(node: &Node, name: &str, members: usize, state: &str) -> Job {
    eventually(&format!("all {members} members of {name} are {state}"), || {
        let found = job(node, name);
        let there = found.members.iter().filter(|member| member.state == state).count();
        if there == members { Ok(found) } else { Err(format!("{found:?}")) }
    })
}

fn running(node: &Node, name: &str) -> usize {
    job(node, name).members.iter().filter(|member| member.state == "running").count()
}

/// Fails if a member of the gang runs within a second and a half.
fn stays_waiting(node: &Node, name: &str) {
    let end = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < end {
        assert_eq!(running(node, name), 0, "{:?}", job(node, name));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn gang_waits_as_a_whole_for_its_last_gpu_and_names_what_is_in_its_way() {
    let node = node("v100x8", "8");
    submit(&node, &["holds", "-g", "1", "--", "sleep", "1000"]).success();
    until(&node, "holds", "running");
    node.tranche(&["gpu", "cordon", "7", "--reason", "its fan is loud"]).success();
    submit(&node, &["ranks", "-g", "1", "--gang", "--parallelism", "7", "--", "sleep", "1000"]).success();
    eventually("the cordon is named", || match job(&node, "ranks").reason {
        reason if reason.contains("GPU 7 is cordoned") && reason.contains("its fan is loud") => Ok(()),
        reason => Err(reason),
    });
    stays_waiting(&node, "ranks");
    assert_eq!(node.smi().slices.len(), 1, "nothing of it is there");
    node.tranche(&["gpu", "uncordon", "7"]).success();
    let ranks = until_all(&node, "ranks", 7, "running");
    assert!(ranks.reason.starts_with("7 of 7 members run"), "{}", ranks.reason);
    let refused = submit(&node, &["more", "-g", "1", "--gang", "--parallelism", "9", "--", "true"]);
    refused.refused(1, &["its 9 members start together", "room for 8 of 1 GPUs each"]);
}

#[test]
fn preempted_gang_leaves_and_returns_as_a_whole() {
    let node = node("v100x8", "8");
    node.tranche(&["project", "create", "b", "--quota", "0", "--weight", "1"]).success();
    let gang = ["ranks", "-p", "b", "-g", "2", "--gang", "--parallelism", "4", "--", "sleep", "1000"];
    submit(&node, &gang).success();
    until_all(&node, "ranks", 4, "running");
    submit(&node, &["urgent", "-p", "a", "-g", "1", "--", "sleep", "1000"]).success();
    until(&node, "urgent", "running");
    until_all(&node, "ranks", 4, "pending");
    stays_waiting(&node, "ranks");
    node.tranche(&["delete", "-p", "a", "urgent"]).success();
    let back = until_all(&node, "ranks", 4, "running");
    assert!(back.members.iter().all(|member| member.starts == 2), "{back:?}");
}

#[test]
fn killed_member_has_its_mates_start_over_with_it() {
    let mut node = node("v100x8", "8");
    let gang = ["ranks", "-g", "1", "--gang", "--parallelism", "3", "--retries", "1", "--"];
    submit(&node, &[&gang[..], &["sh", "-c", "echo rank $$; sleep 1000"]].concat()).success();
    until_all(&node, "ranks", 3, "running");
    // A gang that runs is left as it is by the next daemon.
    node.kill_daemon();
    node.start_daemon();
    let before = until_all(&node, "ranks", 3, "running");
    let printed = node.tranche(&["logs", "ranks", "-m", "1"]).success();
    let pid = printed.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    let again = eventually("all three have begun again", || {
        let found = job(&node, "ranks");
        let all = found.members.iter().all(|member| member.starts == 2 && member.state == "running");
        if all { Ok(found) } else { Err(format!("{found:?}")) }
    });
    let pids = |job: &Job| job.members.iter().map(|member| member.pid).collect::<Vec<_>>();
    assert!(pids(&before).iter().all(|pid| !pids(&again).contains(pid)));
    let log = node.tranche(&["logs", "ranks", "-m", "2"]).success();
    assert!(log.contains("member 1 of its gang starts over"), "{log}");
}
