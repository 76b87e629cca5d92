//! Slices of `tranche run` count for projects. What they borrow goes to a job that is within its quota.

use e2e::{Process, eventually};

use super::{job, node, submit, until};

/// Takes the whole node, and needs two seconds to end.
const SLOW_TO_END: &str = "sleep 1000 & child=$!; trap 'sleep 2; kill $child; exit 3' TERM; wait";

#[test]
fn slice_beyond_the_quota_ends_for_a_job_within_its_own() {
    let node = node("v100x8", "4");
    let program = ["sh", "-c", SLOW_TO_END];
    let run = Process::start(&mut node.run_in_slice(&["-g", "8", "--name", "all"], &program));
    eventually("the slice is there", || match node.smi().slices.len() {
        1 => Ok(()),
        count => Err(format!("{count} are")),
    });
    assert_eq!(node.slice("all").project.as_deref(), Some("default"));
    submit(&node, &["due", "-g", "4", "--", "sleep", "1000"]).success();
    eventually("the list names the holder", || {
        let reason = job(&node, "due").reason;
        if reason.contains("slice all of uid 0") { Ok(()) } else { Err(reason) }
    });
    // Its part is kept for the job meanwhile.
    let refused = node.run(&mut node.run_in_slice(&["-g", "8"], &["true"]));
    refused.refused(1, &["kept for a job"]);
    let ended = run.end();
    assert_eq!(ended.code, Some(3), "{ended}");
    assert!(
        ended.stderr.contains("slice all ends: it was beyond its project's quota, and job a/due"),
        "{ended}"
    );
    until(&node, "due", "running");
    // What is left is the default project's own.
    let mine = Process::start(&mut node.run_in_slice(&["-g", "4", "--name", "mine"], &["sleep", "1000"]));
    eventually("the slice is there", || match node.smi().slices.iter().any(|slice| slice.name == "mine") {
        true => Ok(()),
        false => Err("it is not".into()),
    });
    submit(&node, &["more", "-g", "4", "--", "sleep", "1000"]).success();
    eventually("the job that would borrow waits", || {
        let reason = job(&node, "more").reason;
        if reason.contains("most is held by slice mine of uid 0") { Ok(()) } else { Err(reason) }
    });
    let projects = node.tranche(&["project", "list"]).success();
    assert!(projects.contains("default"), "{projects}");
    node.tranche(&["slice", "create", "named", "-g", "0.1", "-p", "nobody"])
        .refused(1, &["no project nobody"]);
    drop(mine);
}

#[test]
fn run_that_waits_within_its_quota_gets_what_a_job_borrowed() {
    let node = node("v100x8", "4");
    submit(&node, &["borrows", "-g", "8", "--", "sleep", "1000"]).success();
    until(&node, "borrows", "running");
    let hurried = node.run(&mut node.run_in_slice(&["-g", "4"], &["true"]));
    hurried.refused(1, &["--wait"]);
    // More than the default project's quota is not due.
    let greedy = node.run(&mut node.run_in_slice(&["-g", "5", "--wait", "1s"], &["true"]));
    greedy.refused(1, &["no room"]);
    node.run(&mut node.run_in_slice(&["-g", "4", "--wait", "30s"], &["true"])).success();
    until(&node, "borrows", "running");
}
