//! What a lie about what is used gets whoever tells it, and until when.

use std::time::{Duration, Instant};

use e2e::{Kind, Node, eventually};
use tranche_domain::units::Bytes;

use crate::ground::{Ground, LOOKS, program, ready};

const fn gib(gib: u64) -> Bytes {
    Bytes::mib(gib << 10)
}

#[test]
fn what_a_slice_falsely_says_that_it_freed_is_promised_to_nobody() {
    let mut ground = Ground::new();
    let (mut process, pid) = ground.begin(&[], "used-less-most", "");
    process.say("go");
    assert_eq!(process.line().as_deref(), Some("done 0"));
    let held = ground.node.device().held_by(0, &[pid]);
    assert!(held > gib(12), "{held}");
    let shrunk = Instant::now();
    ground.node.tranche(&["slice", "resize", "tamper", "-g", "0.1"]).success();
    let create = ["slice", "create", "later", "-g", "0.5", "--gpu", "0"];
    // By the slice's word there is room at once; the driver knows that there is none.
    while shrunk.elapsed() < Duration::from_secs(4) {
        ground.node.tranche(&create).refused(1, &["GPU 0"]);
    }
    let event = ground.sees("under-reported", Some(pid), shrunk);
    assert_eq!(event.slice.as_deref(), Some("tamper"));
    ground.neighbour_is_unharmed("shrunk");
    drop(process);
    eventually("what it held is to be had", || match ground.node.tranche(&create) {
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

/// What a liar gets that goes on and on: the cap, and what can be taken until it is found out, which is 2.5 GiB a
/// second here.
#[test]
fn who_takes_more_and_more_and_tells_of_nothing_is_refused_soon() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "tamper", "-g", "0.2", "--gpu", "0"]).success();
    let words = [&program(), "creep", ""];
    let mut process = e2e::Process::start(&mut node.run_in_slice(&["--slice", "tamper"], &words));
    let pid = ready(&mut process);
    process.say("go");
    let said = process.line().unwrap_or_default();
    let (held, cap) = (node.device().held_by(0, &[pid]), node.slice("tamper").cap());
    println!("it says {said:?} and holds {held}; its cap is {cap} (simulated)");
    assert!(held < gib(16), "{held} of 24 GiB: {said}");
    let slice = node.slice("tamper");
    assert!(slice.used().saturating_add(gib(1)) >= held, "it is charged for what it holds: {slice:#?}");
    assert!(node.events().iter().any(|event| event.kind == "under-reported" && event.pid == Some(pid)));
}

#[test]
fn who_shares_a_little_is_charged_for_the_much_that_it_keeps_secret() {
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
    eventually("the slice is charged for what it holds", || {
        let (slice, held) = (ground.node.slice("tamper"), ground.node.device().held_by(0, &[pid]));
        let known = slice.used().saturating_add(Bytes::mib(256)) >= held;
        if known { Ok(()) } else { Err(format!("{held} {slice:#?}")) }
    });
    ground.neighbour_is_unharmed("granted-full");
}

#[test]
fn who_launches_and_says_that_it_does_not_is_seen_and_takes_nobodys_share() {
    for attempt in ["busy-less", "busy-little"] {
        let mut ground = Ground::configured("transfers = \"counted\"\n");
        let (mut process, pid) = ground.begin(&[], attempt, "");
        process.say("go");
        let since = Instant::now();
        assert_eq!(process.line().as_deref(), Some("done 0"));
        ground.sees("gate-bypassed", Some(pid), since);
        // What it took until now it gives back, and it goes on: all of the time since it began is looked at.
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
