//! Events name the rule of each act of the daemon, and a drain signals each process once.

use std::fs;
use std::path::Path;

use e2e::{Event, Kind, Node, Process, eventually};
use tranche_domain::units::Bytes;

use crate::park::holder;

/// The last event of a kind about a slice.
fn last(node: &Node, kind: &str, slice: &str) -> Result<Event, String> {
    let events = node.events();
    let is_it = |event: &&Event| event.kind == kind && event.slice.as_deref() == Some(slice);
    events.iter().rev().find(is_it).cloned().ok_or_else(|| format!("{events:#?}"))
}

#[test]
fn parks_and_kills_of_the_daemon_name_their_rule_and_no_user() {
    let node = Node::with_driver("v100x8", "580");
    node.configure("over_cap = \"kill\"\nover_cap_grace_s = 1");
    node.tranche(&["config", "reload"]).success();
    let (mut sleeper, piece, sum) =
        holder(&node, &["-g", "0.3", "--name", "sleeper", "--park-idle", "2s"], 5);
    let parked = eventually("it is parked", || last(&node, "slice-parked", "sleeper"));
    assert_eq!((parked.cause.as_deref(), parked.actor.is_none()), (Some("idle-time"), true), "{parked:?}");
    assert_eq!(sleeper.number(&format!("sum {piece}")), Ok(sum));
    let woken = eventually("it is back", || last(&node, "slice-unparked", "sleeper"));
    assert_eq!((woken.cause.as_deref(), woken.actor.is_none()), (Some("call"), true), "{woken:?}");

    node.tranche(&["slice", "create", "greedy", "-g", "0.5"]).success();
    let mut greedy = node.tenant(&["--slice", "greedy"]).ready();
    greedy.alloc(Kind::Plain, Bytes::mib(4096)).unwrap();
    node.tranche(&["slice", "resize", "greedy", "--memory", "1Gi"]).success();
    let killed = eventually("it is killed", || last(&node, "killed", "greedy"));
    assert_eq!((killed.cause.as_deref(), killed.actor.is_none()), (Some("over-cap"), true), "{killed:?}");

    let _kept = node.tenant(&["--slice", "greedy"]).ready();
    node.tranche(&["slice", "delete", "greedy", "--force"]).success();
    for kind in ["killed", "slice-deleted"] {
        let event = eventually("it is deleted", || last(&node, kind, "greedy"));
        assert_eq!(
            (event.cause.as_deref(), event.actor.is_some()),
            (Some("forced-deletion"), true),
            "{event:?}"
        );
    }
    let shown = node.tranche(&["events"]).success();
    assert!(shown.contains("[rule idle-time]") && shown.contains("[rule forced-deletion, by "), "{shown}");
}

/// A shell that writes a line for each SIGTERM, with a child that does so too; neither ends by it.
fn counters(folder: &Path) -> String {
    let count = |name: &str| {
        let file = folder.join(name).display().to_string();
        format!("trap 'echo term >>{file}' TERM; : >{file}; while :; do sleep 0.05; done")
    };
    format!("({}) & {}", count("child"), count("parent"))
}

fn counted(folder: &Path) -> [Option<usize>; 2] {
    ["parent", "child"].map(|name| Some(fs::read_to_string(folder.join(name)).ok()?.lines().count()))
}

#[test]
fn drain_sends_each_process_one_sigterm_and_tells_the_end_of_its_slice() {
    let node = Node::simulated("h200x1");
    let folder = node.dir().join("counts");
    fs::create_dir(&folder).unwrap();
    let script = counters(&folder);
    let _deaf =
        Process::start(&mut node.run_in_slice(&["-g", "0.2", "--name", "deaf"], &["sh", "-c", &script]));
    let _polite = node.tenant(&["-g", "0.2", "--name", "polite"]).ready();
    eventually("both processes count", || match counted(&folder) {
        [Some(0), Some(0)] => Ok(()),
        other => Err(format!("{other:?}")),
    });
    node.tranche(&["gpu", "drain", "0", "--delete-slices", "--grace", "2s"]).success();
    assert_eq!(counted(&folder), [Some(1), Some(1)], "SIGTERMs of each process");
    let of = |slice| eventually("its end is an event", || last(&node, "slice-drained", slice));
    let (polite, deaf) = (of("polite"), of("deaf"));
    assert!(polite.evidence.contains(", 0 were killed"), "{polite:?}");
    assert!(
        deaf.evidence.contains("killed after the grace") && !deaf.evidence.contains(", 0 were"),
        "{deaf:?}"
    );
    let killed = last(&node, "killed", "deaf").unwrap();
    for event in [polite, deaf, killed] {
        assert_eq!((event.cause.as_deref(), event.actor.is_some()), (Some("drain"), true), "{event:?}");
    }
}

#[test]
fn drain_ends_a_job_by_its_runner_which_sends_one_sigterm() {
    let node = Node::simulated("h200x1");
    node.tranche(&["project", "create", "a", "--quota", "1"]).success();
    let folder = node.dir().join("counts");
    fs::create_dir(&folder).unwrap();
    let script = counters(&folder);
    node.tranche(&["submit", "deaf", "-p", "a", "-g", "0.2", "--grace", "60s", "--", "sh", "-c", &script])
        .success();
    eventually("both processes count", || match counted(&folder) {
        [Some(0), Some(0)] => Ok(()),
        other => Err(format!("{other:?}")),
    });
    node.tranche(&["gpu", "drain", "0", "--delete-slices", "--grace", "2s"]).success();
    assert_eq!(counted(&folder), [Some(1), Some(1)], "SIGTERMs of each process");
}
