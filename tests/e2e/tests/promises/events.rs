//! Events of a node remain readable for every user, also after a restart of the daemon.

use std::fs;
use std::time::Duration;

use e2e::{Kind, Node, eventually};
use tranche_domain::units::Bytes;

/// Kinds of the events of a slice, in order.
#[track_caller]
fn kinds(node: &Node, slice: &str) -> Vec<String> {
    let events = node.events().into_iter().filter(|event| event.slice.as_deref() == Some(slice));
    events.map(|event| event.kind).collect()
}

#[test]
fn events_of_a_slice_survive_restarts_of_the_daemon() {
    let mut node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "half", "-g", "0.5"]).success();
    let mut tenant = node.tenant(&["--slice", "half"]).ready();
    tenant.alloc(Kind::Plain, Bytes::mib(4000)).unwrap();
    node.tranche(&["slice", "freeze", "half"]).success();
    node.tranche(&["slice", "thaw", "half"]).success();
    node.kill_daemon();
    node.start_daemon();
    node.tranche(&["slice", "resize", "half", "--memory", "2Gi"]).success();
    eventually("it is over its cap", || match kinds(&node, "half").last() {
        Some(last) if last == "over-cap" => Ok(()),
        last => Err(format!("{last:?}")),
    });
    let pid = tenant.pid();
    node.tranche(&["slice", "delete", "half", "--force"]).success();
    let expected = [
        "slice-created",
        "slice-frozen",
        "slice-thawed",
        "slice-taken-over",
        "slice-resized",
        "over-cap",
        "slice-deleted",
    ];
    let last = eventually("it has ended", || match kinds(&node, "half") {
        kinds if kinds.last().is_some_and(|last| last == "slice-deleted") => Ok(kinds),
        kinds => Err(format!("{kinds:?}")),
    });
    // A killed process frees the excess, and more than one may be killed.
    let without = |kinds: Vec<String>| {
        kinds.into_iter().filter(|kind| !["killed", "within-cap"].contains(&kind.as_str()))
    };
    assert!(without(last.clone()).eq(expected), "{last:?}");
    let events = node.events();
    assert!(events.iter().any(|event| event.kind == "killed" && event.pid == Some(pid)), "{events:#?}");
    assert!(events.windows(2).all(|two| two[0].seq < two[1].seq), "{events:#?}");
    assert_eq!(events.iter().filter(|event| event.kind == "daemon-started").count(), 2);
    let created = events.iter().find(|event| event.kind == "slice-created").unwrap();
    assert!(created.evidence.contains("16255 MiB of GPU-"), "{created:?}");
    let log = node.daemon_log();
    assert!(log.contains("over-cap") && log.contains("slice-frozen"), "the log has them too: {log}");
}

#[test]
fn refusal_is_an_event_with_the_requester() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "delete", "nobody"]).refused(1, &["nobody"]);
    let events = node.events();
    let refused = events.iter().find(|event| event.kind == "refused").unwrap();
    assert!(
        refused.evidence.contains("there is no slice named nobody") && refused.pid.is_some(),
        "{refused:?}"
    );
}

#[test]
fn follower_receives_each_event_once_over_restarts_of_the_daemon() {
    let mut node = Node::simulated("v100x8");
    let mut command = node.command(node.stage().command());
    let mut follower = e2e::Process::start(command.args(["events", "-f", "--slice", "late"]));
    node.tranche(&["slice", "create", "other", "-g", "0.1"]).success();
    node.tranche(&["slice", "create", "late", "-g", "0.1"]).success();
    let line = follower.line().unwrap();
    assert!(line.contains("slice-created") && line.contains("slice late"), "{line}");
    node.tranche(&["slice", "delete", "late"]).success();
    assert!(follower.line().unwrap().contains("slice-deleted"));
    assert_eq!(node.stop_daemon().code, Some(0), "no follower keeps it from ending");
    node.start_daemon();
    node.tranche(&["slice", "create", "late", "-g", "0.2"]).success();
    let line = follower.line_within(Duration::from_secs(30)).unwrap();
    assert!(line.contains("slice-created") && line.contains("slice late"), "nothing is repeated: {line}");
    node.kill_daemon();
    node.start_daemon();
    node.tranche(&["slice", "delete", "late"]).success();
    let mut next = || follower.line_within(Duration::from_secs(30)).unwrap();
    assert!(next().contains("slice-taken-over") && next().contains("slice-deleted"));
    follower.signal(nix::sys::signal::Signal::SIGTERM);
    let outcome = follower.end();
    let told = outcome.stderr.matches("is tried again").count();
    assert!((1..=2).contains(&told), "once for each restart at most: {outcome}");
}

#[test]
fn a_history_that_is_spoilt_or_cannot_be_written_keeps_nothing_from_happening() {
    let mut node = Node::without_daemon("v100x8");
    let file = node.state_dir().join("events.jsonl");
    fs::create_dir_all(node.state_dir()).unwrap();
    fs::write(&file, [&b"{\"seq\": 1, \xff\0"[..], &[0; 9000]].concat()).unwrap();
    node.start_daemon();
    node.tranche(&["slice", "create", "a", "-g", "0.5"]).success();
    assert_eq!(kinds(&node, "a"), ["slice-created"]);
    node.kill_daemon();
    node.start_daemon();
    assert_eq!(kinds(&node, "a"), ["slice-created", "slice-taken-over"]);
    node.stop_daemon();
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    node.start_daemon();
    node.tranche(&["slice", "delete", "a"]).success();
    eventually("an event reports that the history is not written", || {
        node.tranche(&["slice", "create", "b", "-g", "0.5"]).success();
        node.tranche(&["slice", "delete", "b"]).success();
        match node.events().iter().filter(|event| event.kind == "history-incomplete").count() {
            1 => Ok(()),
            count => Err(format!("{count} times")),
        }
    });
    assert!(kinds(&node, "a").ends_with(&["slice-deleted".into()]));
}

#[test]
fn every_change_of_an_operator_names_its_actor() {
    let node = Node::simulated("h200x1");
    let changes: [(&str, &[&str]); 15] = [
        ("slice-created", &["slice", "create", "a", "-g", "0.3"]),
        ("slice-resized", &["slice", "resize", "a", "-g", "0.2"]),
        ("slice-frozen", &["slice", "freeze", "a"]),
        ("slice-thawed", &["slice", "thaw", "a"]),
        ("slice-labelled", &["slice", "label", "a", "--pod", "x/y/z"]),
        ("slice-deleted", &["slice", "delete", "a"]),
        ("gpu-cordoned", &["gpu", "cordon", "0"]),
        ("gpu-drained", &["gpu", "drain", "0"]),
        ("gpu-uncordoned", &["gpu", "uncordon", "0"]),
        ("configuration-reloaded", &["config", "reload"]),
        ("reserves-forgotten", &["gpu", "forget-reserves"]),
        ("project-changed", &["project", "create", "p", "--quota", "1"]),
        ("job-submitted", &["submit", "j", "-p", "p", "-g", "0.1", "--", "sleep", "1000"]),
        ("job-suspended", &["suspend", "j", "-p", "p"]),
        ("job-deleted", &["delete", "j", "-p", "p"]),
    ];
    for (kind, command) in changes {
        node.tranche(command).success();
        let events = node.events();
        let event = events.iter().rev().find(|event| event.kind == kind);
        let actor = event.and_then(|event| event.actor.as_ref());
        let actor = actor.unwrap_or_else(|| panic!("{kind} names no actor: {events:#?}"));
        assert_eq!(actor.uid, nix::unistd::geteuid().as_raw(), "{kind}");
        assert!(actor.pid.is_some() && actor.command.as_deref() == Some("tranche"), "{kind}: {actor:?}");
    }
    let shown = node.tranche(&["events"]).success();
    assert!(shown.contains("(tranche)]"), "{shown}");
}
