//! A slice gets its compute request, and no more than its limit, by the GPU's own log.
//!
//! The machine that runs these tests is busy with other work, so that the bounds are wide; `make bench` measures, and
//! `tests/arena` tests the laws exactly in virtual time.

use std::thread::sleep;
use std::time::Duration;

use e2e::{Node, eventually};
use nix::sys::signal::Signal;

use crate::load::{
    Load, MEASURE, SATURATING, SETTLE, SIDE_BY_SIDE, TOLERANCE, alone, assert_holds, assert_measured,
    assert_near, measure, measure_parts, parts, since,
};

#[test]
fn three_saturating_slices_get_50_30_and_20_percent() {
    let _alone = alone();
    let node = Node::simulated("h200x1");
    let load = |share| Load::start(&node, &["-g", share], SATURATING);
    let loads = ["0.5", "0.3", "0.2"].map(load);
    sleep(SETTLE);
    assert_holds(&[50.0, 30.0, 20.0], || measure_parts(&node, &loads.each_ref(), MEASURE));
    let shown = node.tranche(&["smi"]).success();
    assert!(shown.contains("over its share") || shown.contains("running"), "{shown}");
}

#[test]
fn program_of_short_kernels_always_shows_as_running() {
    let _alone = alone();
    let node = Node::simulated("h200x1");
    let how = ["--kernel-ns", "60000", "--sync", "each"];
    let _load = Load::start(&node, &["-g", "0.5", "--name", "short"], &how);
    sleep(SETTLE + SETTLE);
    let states: Vec<_> = (0..30).map(|_| node.slice("short").compute_state).collect();
    assert!(states.iter().all(|state| state == "running"), "{states:?}");
}

/// Variables of a driver without stream memory operations, whose completion markers are events.
///
/// Drivers under vGPU, WSL or confidential computing are like that.
const EVENTS: &[(&str, &str)] = &[("SIMGPU_STREAM_MEMORY", "off")];

#[test]
fn every_context_of_a_process_counts_with_marks_and_with_events() {
    let _alone = alone();
    for (kind, variables) in [("elsewhere", &[][..]), ("three", &[]), ("three", EVENTS), ("rush", EVENTS)] {
        let node = Node::simulated("h200x1");
        let load = Load::endless(&node, &["-g", "0.5"], kind, variables);
        let neighbour = Load::start(&node, &["-g", "0.5"], SATURATING);
        sleep(SETTLE);
        println!("{kind} {variables:?}");
        assert_halves(variables, || measure_parts(&node, &[&load, &neighbour], MEASURE));
    }
}

/// Fails unless each load has its half within the tolerance; with events, at least 30 %.
///
/// A thread has to run to query an event, which is late on a busy machine.
#[track_caller]
fn assert_halves(variables: &[(&str, &str)], measure: impl FnMut() -> Vec<f64>) {
    let least = if variables == EVENTS { 30.0 } else { 50.0 - TOLERANCE };
    assert_measured(least, measure, |found| found.iter().all(|part| *part >= least));
}

#[test]
fn process_on_two_gpus_gets_its_share_of_each() {
    let _alone = alone();
    for variables in [&[][..], EVENTS] {
        let node = Node::simulated("v100x8");
        let half = |gpus| ["--memory", "4Gi", "--compute", "50%", "--gpu", gpus];
        let both = Load::endless(&node, &half("0,1"), "devices", variables);
        let others = ["0", "1"].map(|gpu| Load::start(&node, &half(gpu), SATURATING));
        sleep(SETTLE);
        println!("{variables:?}");
        assert_halves(variables, || {
            let from = [0, 1].map(|gpu| node.timeline(gpu).end());
            sleep(MEASURE);
            [0, 1]
                .into_iter()
                .flat_map(|gpu| parts(&since(&node, gpu, from[gpu], &[&both, &others[gpu]])))
                .collect()
        });
    }
}

#[test]
fn bursts_get_as_much_with_events_as_with_marks() {
    let _alone = alone();
    let mut marks = None;
    for variables in [&[][..], EVENTS] {
        let node = Node::simulated("h200x1");
        let bursts = Load::endless(&node, &["-g", "0.5"], "bursts", variables);
        let neighbour = Load::start(&node, &["-g", "0.5"], SATURATING);
        sleep(SETTLE);
        println!("{variables:?}");
        let measure = || measure(&node, &[&bursts, &neighbour], MEASURE);
        let marks = marks.get_or_insert_with(measure);
        let least = marks.iter().copied().fold(100.0, f64::min) - TOLERANCE;
        assert_measured(least, measure, |events| {
            marks.iter().zip(events).all(|(marks, events)| events + TOLERANCE >= *marks)
        });
    }
}

#[test]
fn kernels_that_run_side_by_side_still_do_beside_a_neighbour() {
    let _alone = alone();
    let node = Node::simulated("h200x1");
    let mut free = Load::ungoverned(&node, SIDE_BY_SIDE);
    sleep(SETTLE);
    let ungoverned = free.rate(SETTLE);
    drop(free);
    let mut load = Load::start(&node, &["-g", "0.5"], SIDE_BY_SIDE);
    let neighbour = Load::start(&node, &["-g", "0.5"], SATURATING);
    sleep(SETTLE);
    let from = node.timeline(0).end();
    let rate = load.rate(MEASURE);
    let after = node.timeline(0);
    let part = |load: &Load| after.percent(&[load.pid], from, after.end());
    let (had, others) = (part(&load), part(&neighbour));
    // Kernels one after the other would come to a quarter.
    let worth = rate / (ungoverned * had / 100.0);
    assert!(worth >= 0.75, "{rate:.0}/s in {had:.1} % of the time, {ungoverned:.0}/s ungoverned: {worth:.2}");
    let all = had + others;
    assert_near(&[had * 100.0 / all, others * 100.0 / all], &[50.0, 50.0]);
}

#[test]
fn strict_slice_alone_gets_exactly_its_share() {
    let _alone = alone();
    let node = Node::simulated("h200x1");
    let load = Load::start(&node, &["-g", "0.3", "--compute-mode", "strict"], SATURATING);
    sleep(SETTLE);
    let exactly = 20.0..=30.0 + TOLERANCE;
    assert_measured(&exactly, || measure(&node, &[&load], MEASURE)[0], |found| exactly.contains(found));
}

/// True if there are time namespaces and the clock exceeds `seconds`; else a skip is printed.
fn shifts(seconds: u64) -> bool {
    let up = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map_or(0, |now| now.tv_sec());
    let there = std::process::Command::new("unshare").args(["--time", "--monotonic", "1", "true"]).status();
    let can = up > i64::try_from(seconds).unwrap_or(i64::MAX) && there.is_ok_and(|status| status.success());
    if !can {
        println!("SKIP: no time namespaces here, or the machine has not run for {seconds} s");
    }
    can
}

/// By `unshare --time --monotonic`, the process records times of another clock than the daemon's.
#[test]
fn strict_limit_holds_in_time_namespace_without_event() {
    const BEHIND_S: u64 = 600;
    if !shifts(BEHIND_S) {
        return;
    }
    let _alone = alone();
    for seconds in [7 * 86_400, -i64::try_from(BEHIND_S).expect("it is small")] {
        let node = Node::simulated("h200x1");
        let strict = ["-g", "0.1", "--compute-mode", "strict", "--name", "strict"];
        let load = Load::shifted(&node, seconds, &strict, SATURATING);
        sleep(SETTLE);
        let within = 3.0..=10.0 + TOLERANCE;
        let measured = || measure(&node, &[&load], MEASURE)[0];
        assert_measured(&within, measured, |found| within.contains(found));
        let accused = node.events().into_iter().filter(|event| event.kind == "usage-tampered");
        assert_eq!(accused.count(), 0, "by {seconds} s: {}", node.tranche(&["events"]).success());
        // The daemon counts by its own clock what the process records by another.
        let counted = node.tranche(&["smi"]).success();
        assert_eq!(node.slice("strict").pids(), [load.pid], "{counted}");
    }
}

#[test]
fn a_fair_slice_alone_gets_all_and_gives_half_back_to_an_equal() {
    let _alone = alone();
    let node = Node::simulated("h200x1");
    let first = Load::start(&node, &["-g", "0.2"], SATURATING);
    sleep(SETTLE);
    assert!(measure(&node, &[&first], SETTLE)[0] > 60.0, "no other slice has work");
    let second = Load::start(&node, &["-g", "0.2"], SATURATING);
    sleep(SETTLE);
    assert_holds(&[50.0, 50.0], || measure_parts(&node, &[&first, &second], MEASURE));
}

#[test]
fn a_new_share_holds_within_a_second() {
    let _alone = alone();
    let node = Node::simulated("h200x1");
    let load = |name| Load::start(&node, &["-g", "0.2", "--compute", "40%", "--name", name], SATURATING);
    let loads = ["a", "b"].map(load);
    node.tranche(&["slice", "resize", "a", "--compute", "10%"]).success();
    sleep(SETTLE);
    assert_holds(&[20.0, 80.0], || measure_parts(&node, &loads.each_ref(), MEASURE));
    node.tranche(&["slice", "resize", "b", "--limit", "40%"]).success();
    sleep(SETTLE);
    let limited = 20.0..=40.0 + TOLERANCE;
    assert_measured(&limited, || measure(&node, &[&loads[1]], MEASURE)[0], |found| limited.contains(found));
}

#[test]
fn frozen_slice_stops_and_continues_when_thawed() {
    let _alone = alone();
    let node = Node::simulated("h200x1");
    let mut loads = ["a", "b"].map(|name| Load::start(&node, &["-g", "0.3", "--name", name], SATURATING));
    sleep(SETTLE);
    node.tranche(&["slice", "freeze", "a"]).success();
    sleep(SETTLE);
    assert_holds(&[0.0, 100.0], || measure_parts(&node, &loads.each_ref(), SETTLE));
    assert_eq!(node.slice("a").compute_state, "frozen");
    node.tranche(&["slice", "thaw", "a"]).success();
    sleep(SETTLE);
    assert_holds(&[50.0, 50.0], || measure_parts(&node, &loads.each_ref(), MEASURE));
    for load in &mut loads {
        let answer = load.tell("rate");
        assert!(answer.contains("\"errors\":[]"), "{answer}");
    }
}

#[test]
fn unrequested_compute_goes_to_the_higher_priority() {
    let _alone = alone();
    let node = Node::simulated("h200x1");
    let training = Load::start(&node, &["-g", "0.3"], SATURATING);
    let serving = Load::start(&node, &["-g", "0.3", "--priority", "5"], SATURATING);
    sleep(SETTLE);
    assert_holds(&[30.0, 70.0], || measure_parts(&node, &[&training, &serving], MEASURE));
}

#[test]
fn programs_outlive_a_killed_daemon_and_their_shares_come_back_with_the_next() {
    let _alone = alone();
    let mut node = Node::simulated("h200x1");
    let names = [("a", "0.7"), ("b", "0.3")];
    let mut loads = names.map(|(name, share)| Load::start(&node, &["-g", share, "--name", name], SATURATING));
    sleep(SETTLE);
    let killed = node.timeline(0).end();
    node.kill_daemon();
    sleep(MEASURE);
    let after = node.timeline(0);
    for load in &loads {
        let pause = after.longest_pause(&[load.pid], killed, after.end());
        assert!(pause < Duration::from_millis(1500), "stalled for {pause:?}");
    }
    node.start_daemon();
    sleep(SETTLE);
    assert_holds(&[70.0, 30.0], || measure_parts(&node, &loads.each_ref(), MEASURE));
    let degraded = node.slice("b").launches_degraded;
    assert!(degraded > 0, "launches without a daemon are counted");
    for load in &mut loads {
        let answer = load.tell("rate");
        assert!(answer.contains("\"errors\":[]"), "{answer}");
    }
}

#[test]
fn right_after_a_restart_of_the_daemon_loads_of_every_kind_have_their_shares() {
    let _alone = alone();
    let mut node = Node::simulated("h200x1");
    let waiting = ["--kernel-ns", "1000000", "--sync", "each"];
    let loads = [
        Load::start(&node, &["-g", "0.5"], SATURATING),
        Load::start(&node, &["-g", "0.2"], &waiting),
        Load::endless(&node, &["-g", "0.3"], "graphs", &[]),
    ];
    sleep(SETTLE);
    for end in [Node::kill_daemon, |node: &mut Node| drop(node.stop_daemon())] {
        end(&mut node);
        sleep(Duration::from_millis(1500));
        node.start_daemon();
        sleep(SETTLE);
        assert_holds(&[50.0, 20.0, 30.0], || measure_parts(&node, &loads.each_ref(), MEASURE));
    }
}

#[test]
fn killed_or_stopped_program_delays_no_other_slice() {
    let _alone = alone();
    let node = Node::simulated("h200x1");
    let lasting = Load::start(&node, &["-g", "0.3"], SATURATING);
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        let victim = Load::start(&node, &["-g", "0.5"], SATURATING);
        sleep(SETTLE);
        let struck = node.timeline(0).end();
        victim.signal(signal);
        sleep(SETTLE);
        let after = node.timeline(0);
        let pause = after.longest_pause(&[lasting.pid], struck, after.end());
        assert!(pause < Duration::from_millis(300), "{signal}: the other waited for {pause:?}");
        let share = measure(&node, &[&lasting], SETTLE)[0];
        assert!(share > 60.0, "{signal}: the other got {share:.1} % of the GPU that it has alone");
        victim.signal(Signal::SIGKILL);
        eventually("the slice ends", || match node.smi().slices.len() {
            1 => Ok(()),
            slices => Err(format!("{slices} slices")),
        });
    }
}
