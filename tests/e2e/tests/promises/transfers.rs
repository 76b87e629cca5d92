//! Copies and fills count as compute as the daemon is configured: by default those inside a device.

use std::thread::sleep;
use std::time::Duration;

use e2e::{Counted, Held, Node, Process, compile, eventually};
use tranche_shm::compute::Tally;

use crate::gate::{CLOSED, OPEN, done};
use crate::load::{MEASURE, SETTLE, alone, assert_holds, parts};

const COUNTED: &str = "transfers = \"counted\"\n";
const UNCOUNTED: &str = "transfers = \"uncounted\"\n";
/// Ways by which a program finds the driver's functions.
const ROUTES: [&str; 4] = ["export", "export-ptsz", "ask", "ask-ptsz"];

/// Creates a slice with a program that waits for the line `go`; returns the program and its pid.
#[track_caller]
fn tenant(node: &Node, slice: &str, share: &str, source: &str, what: &[&str]) -> (Process, u32) {
    node.tranche(&["slice", "create", slice, "-g", share]).success();
    let program = compile(source, &[]).expect("the tests need a C compiler");
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(what.iter().map(|word| word.to_string()));
    let mut process = Process::start(&mut node.run_in_slice(&["--slice", slice], &words));
    let line = process.line().unwrap_or_default();
    let pid = line.strip_prefix("ready ").and_then(|pid| pid.parse().ok());
    (process, pid.unwrap_or_else(|| panic!("{line:?}")))
}

fn mover(node: &Node, slice: &str, share: &str, what: &[&str]) -> (Process, u32) {
    tenant(node, slice, share, "tests/e2e/clients/transfers.c", what)
}

#[test]
fn uncounted_transfers_by_every_route_pass_a_closed_gate() {
    let node = Node::configured("h200x1", UNCOUNTED);
    for route in ROUTES {
        assert_passes_a_closed_gate(&node, route, "all");
    }
}

#[test]
fn by_default_copies_over_the_bus_pass_a_closed_gate_and_those_inside_a_device_wait() {
    let node = Node::simulated("h200x1");
    for route in ROUTES {
        assert_passes_a_closed_gate(&node, route, "bus");
        for what in ["inside", "streamless"] {
            assert_waits_at_a_closed_gate(&node, route, what);
        }
    }
}

#[track_caller]
fn assert_passes_a_closed_gate(node: &Node, route: &str, what: &str) {
    let slice = format!("{route}-{what}");
    let (mut mover, _) = mover(node, &slice, "0.05", &[route, what]);
    let _closed = Held::hold(node, &slice, CLOSED);
    mover.say("go");
    let (moved, ms) = done(&mut mover);
    assert!(moved > 7 && ms < 1_000.0, "{slice}: {moved} in {ms} ms");
    let counted = Counted::of(node, &slice, 0);
    assert_eq!((counted.tally(Tally::Launches), counted.tally(Tally::WaitedNs)), (0, 0), "{slice}");
}

#[track_caller]
fn assert_waits_at_a_closed_gate(node: &Node, route: &str, what: &str) {
    let slice = format!("{route}-{what}");
    let (mut mover, _) = mover(node, &slice, "0.05", &[route, what]);
    let counted = Counted::of(node, &slice, 0);
    let closed = Held::hold(node, &slice, CLOSED);
    mover.say("go");
    eventually("it waits", || match counted.tally(Tally::Waiting) {
        1 => Ok(()),
        other => Err(format!("{other} wait")),
    });
    sleep(Duration::from_millis(100));
    assert_eq!(counted.tally(Tally::Launches), 0, "{slice}");
    drop(closed);
    let _open = Held::hold(node, &slice, OPEN);
    let (moved, ms) = done(&mut mover);
    assert!(moved > 11 && ms >= 100.0, "{slice}: {moved} in {ms} ms");
    assert_eq!((counted.tally(Tally::Launches), counted.tally(Tally::Waiting)), (moved, 0), "{slice}");
}

#[test]
fn counted_transfers_by_every_route_wait_at_a_closed_gate_and_are_counted_each() {
    let node = Node::configured("h200x1", COUNTED);
    for (route, what) in ROUTES.into_iter().flat_map(|route| ["all", "streamless"].map(|what| (route, what)))
    {
        assert_waits_at_a_closed_gate(&node, route, what);
    }
}

#[test]
fn captured_transfers_are_neither_held_nor_counted() {
    let node = Node::configured("h200x1", COUNTED);
    let (mut mover, _) = mover(&node, "work", "0.1", &["export", "record"]);
    let _closed = Held::hold(&node, "work", CLOSED);
    mover.say("go");
    assert!(done(&mut mover).1 < 1_000.0);
    assert_eq!(Counted::of(&node, "work", 0).tally(Tally::Launches), 0);
}

#[test]
fn where_transfers_count_waits_and_blocking_copies_still_do_not_wait() {
    let node = Node::configured("h200x1", COUNTED);
    // Three kernels of 40 ms are outstanding when it prints that it is ready.
    let (mut launcher, _) = tenant(&node, "work", "0.1", "tests/e2e/clients/launch.c", &["waits"]);
    let _closed = Held::hold(&node, "work", CLOSED);
    launcher.say("go");
    let (_, ms) = done(&mut launcher);
    assert!(ms < 1_000.0, "{ms} ms for waits of 120 ms at most");
}

#[test]
fn transfers_follow_the_configuration_of_the_next_daemon() {
    let mut node = Node::configured("h200x1", COUNTED);
    let (mut mover, _) = mover(&node, "work", "0.1", &["export", "all"]);
    node.stop_daemon();
    node.configure(UNCOUNTED);
    node.start_daemon();
    let _closed = Held::hold(&node, "work", CLOSED);
    mover.say("go");
    assert!(done(&mut mover).1 < 1_000.0);
}

#[test]
fn a_program_that_only_moves_memory_gets_its_share_beside_one_of_kernels_if_transfers_count() {
    assert_share_of_a_mover(COUNTED, &["export", "60000"]);
}

#[test]
fn program_that_fills_and_copies_without_streams_gets_its_share_by_default() {
    assert_share_of_a_mover("", &["export", "60000", "streamless"]);
}

#[track_caller]
fn assert_share_of_a_mover(configuration: &str, what: &[&str]) {
    let _alone = alone();
    let node = Node::configured("h200x1", configuration);
    let launch = "tests/e2e/clients/launch.c";
    let (mut mover, moving) = mover(&node, "moves", "0.7", what);
    let (mut launcher, launching) = tenant(&node, "launches", "0.3", launch, &["saturate", "60000"]);
    mover.say("go");
    launcher.say("go");
    sleep(SETTLE);
    // Large fills and copies inside the device, and kernels of a millisecond.
    assert_holds(&[70.0, 30.0], || {
        let from = node.timeline(0).end();
        sleep(MEASURE);
        let after = node.timeline(0);
        parts(&[moving, launching].map(|pid| after.percent(&[pid], from, after.end())))
    });
}
