//! Gains of false records of memory or GPU time, and the time until they are detected.

use std::time::{Duration, Instant};

use e2e::{Kind, Node, eventually};
use tranche_domain::units::Bytes;

use crate::ground::{Ground, LOOKS, program, ready};

const fn gib(gib: u64) -> Bytes {
    Bytes::mib(gib << 10)
}

#[test]
fn memory_falsely_reported_free_is_not_committed_again() {
    let mut ground = Ground::new();
    let (mut process, pid) = ground.begin(&[], "used-less-most", "");
    process.say("go");
    assert_eq!(process.line().as_deref(), Some("done 0"));
    let held = ground.node.device().held_by(0, &[pid]);
    assert!(held > gib(12), "{held}");
    let shrunk = Instant::now();
    ground.node.tranche(&["slice", "resize", "tamper", "-g", "0.1"]).success();
    let create = ["slice", "create", "later", "-g", "0.5", "--gpu", "0"];
    // By the slice's record there is room at once; by the driver's figures there is none.
    while shrunk.elapsed() < Duration::from_secs(4) {
        ground.node.tranche(&create).refused(1, &["GPU 0"]);
    }
    let event = ground.sees("under-reported", Some(pid), shrunk);
    assert_eq!(event.slice.as_deref(), Some("tamper"));
    ground.neighbour_is_unharmed("shrunk");
    drop(process);
    eventually("its memory is available again", || match ground.node.tranche(&create) {
        outcome if outcome.code == Some(0) => Ok(()),
        outcome => Err(outcome.to_string()),
    });
}

#[test]
fn what_an_honest_slice_freed_is_promised_to_others_as_soon_as_it_was_shrunk() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "honest", "-g", "0.8", "--gpu", "0"]).success();
    let mut tenant = node.tenant(&["--slice", "honest"]).ready();
    let piece = tenant.alloc(Kind::Plain, gib(20)).expect("it has as much");
    tenant.free(piece).expect("it may be freed");
    node.tranche(&["slice", "resize", "honest", "-g", "0.2"]).success();
    node.tranche(&["slice", "create", "next", "-g", "0.8", "--gpu", "0"]).success();
    node.tranche(&["slice", "delete", "next"]).success();
    let piece = tenant.alloc(Kind::Plain, gib(5)).expect("it has as much");
    node.tranche(&["slice", "resize", "honest", "-g", "0.1"]).success();
    node.tranche(&["slice", "create", "next", "-g", "0.9", "--gpu", "0"]).refused(1, &["GPU 0"]);
    tenant.free(piece).expect("it may be freed");
    node.tranche(&["slice", "create", "next", "-g", "0.9", "--gpu", "0", "--wait", "20s"]).success();
    assert!(node.events().iter().all(|event| event.kind != "under-reported"));
}

/// Repeated false records gain what can be allocated until they are detected, here 2.5 GiB a second.
#[test]
fn growing_unrecorded_use_is_refused_soon() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "tamper", "-g", "0.2", "--gpu", "0"]).success();
    let words = [&program(), "creep", ""];
    let mut process = e2e::Process::start(&mut node.run_in_slice(&["--slice", "tamper"], &words));
    let pid = ready(&mut process);
    process.say("go");
    let answer = process.line().unwrap_or_default();
    let (held, cap) = (node.device().held_by(0, &[pid]), node.slice("tamper").cap());
    println!("it reports {answer:?} and holds {held}; its cap is {cap} (simulated)");
    assert!(held < gib(16), "{held} of 24 GiB: {answer}");
    let slice = node.slice("tamper");
    assert!(slice.used().saturating_add(gib(1)) >= held, "its memory is charged: {slice:#?}");
    assert!(node.events().iter().any(|event| event.kind == "under-reported" && event.pid == Some(pid)));
}

#[test]
fn unrecorded_use_behind_shared_memory_is_charged() {
    let mut ground = Ground::new();
    let (mut process, pid) = ground.begin(&[], "used-less-shared", "");
    process.say("go");
    let since = Instant::now();
    assert_eq!(process.line().as_deref(), Some("done 0"));
    ground.sees("under-reported", Some(pid), since);
    eventually("its slice is charged", || match ground.node.slice("tamper").used() {
        used if used >= gib(1) => Ok(()),
        used => Err(format!("{used}")),
    });
    ground.neighbour_is_unharmed("used-less-shared");
}

#[test]
fn credit_that_a_full_slice_gives_itself_is_seen_and_charged() {
    let mut ground = Ground::new();
    let (mut process, pid) = ground.begin(&[], "granted-full", "");
    process.say("go");
    let since = Instant::now();
    assert!(process.line().unwrap_or_default().starts_with("done"));
    ground.sees("usage-tampered", Some(pid), since);
    eventually("the slice's memory is charged", || {
        let (slice, held) = (ground.node.slice("tamper"), ground.node.device().held_by(0, &[pid]));
        let known = slice.used().saturating_add(Bytes::mib(256)) >= held;
        if known { Ok(()) } else { Err(format!("{held} {slice:#?}")) }
    });
    ground.neighbour_is_unharmed("granted-full");
}

#[test]
fn unrecorded_launches_are_detected_and_reduce_no_other_share() {
    for attempt in ["busy-less", "busy-little"] {
        let mut ground = Ground::configured("transfers = \"counted\"\n");
        let (mut process, pid) = ground.begin(&[], attempt, "");
        process.say("go");
        let since = Instant::now();
        assert_eq!(process.line().as_deref(), Some("done 0"));
        ground.sees("gate-bypassed", Some(pid), since);
        // GPU time taken until now is charged, and the attempt continues: the neighbour's part is of all the time since
        // its start.
        std::thread::sleep(LOOKS);
        ground.neighbour_is_unharmed(attempt);
    }
}

#[test]
fn slice_that_keeps_others_waiting_and_computes_nothing_is_named_and_charged() {
    let mut ground = Ground::new();
    let (mut process, _) = ground.begin(&[], "idle-holder", "");
    process.say("go");
    let since = Instant::now();
    assert_eq!(process.line().as_deref(), Some("done 0"));
    let event = ground.sees("gpu-held-idle", None, since);
    assert_eq!(event.slice.as_deref(), Some("tamper"), "{}", event.evidence);
    std::thread::sleep(LOOKS);
    ground.neighbour_has_its_request("idle-holder");
    ground.neighbour_is_unharmed("idle-holder");
}
