//! Attempts, one test for each object that is tampered with.

use std::time::Instant;

use e2e::{Process, Stage};
use tranche_domain::units::Bytes;

use crate::ground::{Ground, program};

/// Makes attempts that succeed, and waits for an event of the given kind after each.
#[track_caller]
fn seen(attempts: &[(&str, &str)]) {
    for (attempt, kind) in attempts {
        let mut ground = Ground::new();
        let (mut process, pid) = ground.begin(&[], attempt, &ground.copied_driver());
        process.say("go");
        let since = Instant::now();
        let line = process.line();
        assert!(line.as_deref().is_some_and(|line| line.starts_with("done")), "{attempt}: {line:?}");
        let by = (*attempt != "garbage" && *attempt != "truncate").then_some(pid);
        let event = ground.sees(kind, by, since);
        assert_eq!(event.slice.as_deref(), Some("tamper"), "{attempt}: {event:?}");
        assert_eq!(event.severity, "warning", "{attempt}");
        ground.neighbour_is_unharmed(attempt);
    }
}

/// Makes attempts that fail, as their program reports, and waits for events of the given kinds.
#[track_caller]
fn impossible(attempts: &[(&str, &[&str])]) {
    for (attempt, kinds) in attempts {
        let mut ground = Ground::new();
        let (mut process, pid) = ground.begin(&[], attempt, &ground.attach_socket("tamper"));
        process.say("go");
        let since = Instant::now();
        let line = process.line();
        assert!(line.as_deref().is_some_and(|line| line.starts_with("impossible")), "{attempt}: {line:?}");
        kinds.iter().for_each(|kind| drop(ground.sees(kind, Some(pid), since)));
        ground.neighbour_is_unharmed(attempt);
    }
}

#[test]
fn credit_that_a_process_gives_itself_is_seen_and_taken_away() {
    seen(&[("granted", "usage-tampered")]);
}

#[test]
fn use_that_was_never_granted_is_seen() {
    seen(&[("used-more", "usage-tampered")]);
}

#[test]
fn unrecorded_use_is_detected_by_driver_figures() {
    seen(&[("used-less", "under-reported")]);
}

#[test]
fn garbage_in_the_usage_region_is_seen() {
    seen(&[("garbage", "usage-tampered")]);
}

#[test]
fn a_time_that_has_not_come_yet_is_seen() {
    seen(&[("future", "usage-tampered")]);
}

#[test]
fn private_usage_region_is_detected_by_driver_figures() {
    seen(&[("private-usage", "under-reported")]);
}

#[test]
fn memory_through_a_copy_of_the_driver_is_seen() {
    seen(&[("alias", "under-reported")]);
}

#[test]
fn launches_of_a_frozen_slice_through_a_copy_of_the_driver_are_seen() {
    // If copies and fills are counted, GPU time that is not in the records can be no copy.
    let mut ground = Ground::configured("transfers = \"counted\"\n");
    let (mut process, pid) = ground.begin(&[], "alias-launch", &ground.copied_driver());
    ground.node.tranche(&["slice", "freeze", "tamper"]).success();
    process.say("go");
    let since = Instant::now();
    assert_eq!(process.line().as_deref(), Some("done 0"));
    let event = ground.sees("gate-bypassed", Some(pid), since);
    assert_eq!(event.slice.as_deref(), Some("tamper"));
    ground.neighbour_is_unharmed("alias-launch");
}

#[test]
fn larger_cap_in_private_copy_gains_nothing() {
    impossible(&[("private-control", &[])]);
}

#[test]
fn the_control_region_cannot_be_written_through_the_memory_file() {
    impossible(&[("memory-file", &[])]);
}

#[test]
fn the_control_region_cannot_be_unprotected_nor_mapped_again() {
    impossible(&[("protection", &[])]);
}

#[test]
fn the_control_region_cannot_be_opened_again_for_writing() {
    impossible(&[("reopen", &[])]);
}

#[test]
fn a_forged_message_is_refused_and_seen() {
    impossible(&[("forge", &["refused"])]);
}

#[test]
fn a_truncated_usage_region_is_seen_or_impossible() {
    let mut ground = Ground::new();
    let (mut process, _) = ground.begin(&[], "truncate", "");
    process.say("go");
    let since = Instant::now();
    let line = process.line().unwrap_or_default();
    if !line.starts_with("impossible") {
        ground.sees("usage-tampered", None, since);
    }
    ground.neighbour_is_unharmed("truncate");
}

/// Tried while the daemon runs, while it is away, and after its return.
#[test]
fn room_beyond_the_usage_region_cannot_be_taken() {
    let mut ground = Ground::new();
    let mut processes = ["there", "away", "back"].map(|_| ground.begin(&[], "room", "").0);
    let [there, away, back] = &mut processes;
    let tries = |process: &mut Process, when: &str| {
        process.say("go");
        assert_eq!(process.line().as_deref(), Some("done 0"), "{when}");
    };
    tries(there, "there");
    ground.node.kill_daemon();
    tries(away, "away");
    ground.node.start_daemon();
    tries(back, "back");
    assert_eq!(ground.node.slice("tamper").pids().len(), 3, "all three stay attached");
    ground.neighbour_is_unharmed("room");
}

#[test]
fn flood_of_connections_harms_no_other_slice() {
    let mut ground = Ground::new();
    let (mut process, _) = ground.begin(&[], "flood", &ground.attach_socket("tamper"));
    process.say("go");
    assert!(process.line().unwrap_or_default().starts_with("done"));
    ground.neighbour_is_unharmed("flood");
    ground.node.tranche(&["slice", "create", "later", "-g", "0.1", "--gpu", "1"]).success();
}

#[test]
fn crowd_of_registrations_harms_no_other_slice() {
    let mut ground = Ground::new();
    let (mut process, _) = ground.begin(&[], "registrations", "");
    process.say("go");
    assert_eq!(process.line().as_deref(), Some("done 40"));
    ground.neighbour_is_unharmed("registrations");
    ground.clear();
    ground.neighbour_is_unharmed("registrations that were ended");
}

#[test]
fn covered_and_closed_descriptors_harm_no_other_slice() {
    let mut ground = Ground::new();
    let (mut process, _) = ground.begin(&[], "descriptors", "");
    process.say("go");
    assert!(process.line().unwrap_or_default().starts_with("done"));
    ground.neighbour_is_unharmed("descriptors");
    drop(process);
    ground.clear();
}

#[test]
fn connections_beyond_daemons_descriptors_harm_no_other_slice() {
    let mut ground = Ground::new();
    let pid = ground.node.daemon_pid().to_string();
    ground.node.run(ground.node.command("prlimit").args(["--pid", &pid, "--nofile=300:300"])).success();
    let (mut process, _) = ground.begin(&[], "crowd", &ground.attach_socket("tamper"));
    process.say("go");
    assert_eq!(process.line().as_deref(), Some("done 150"));
    ground.neighbour_is_unharmed("crowd");
    let later = ground.node.tenant(&["--slice", "neighbour"]).init();
    assert!(later.is_ok(), "another process of the neighbour can attach: {later:?}");
    ground.clear();
    ground.neighbour_is_unharmed("a crowd that was ended");
}

#[test]
fn process_without_free_descriptors_harms_no_other_slice() {
    let mut ground = Ground::new();
    let (mut process, pid) = ground.begin(&["prlimit", "--nofile=64:64"], "descriptors-used-up", "");
    process.say("go");
    assert!(process.line().unwrap_or_default().starts_with("done"));
    ground.neighbour_is_unharmed("descriptors-used-up");
    assert_eq!(ground.node.slice("tamper").pids(), [pid], "it stays charged for what it holds");
}

#[test]
fn memory_through_a_loader_namespace_of_its_own_is_seen() {
    seen(&[("own-namespace", "under-reported")]);
}

#[test]
fn memory_through_the_drivers_own_file_by_its_path_is_charged_as_any() {
    let mut ground = Ground::new();
    let driver = ground.node.stage().driver().display().to_string();
    let (mut process, _) = ground.begin(&[], "by-path", &driver);
    process.say("go");
    assert_eq!(process.line().as_deref(), Some("done 0"));
    assert!(ground.node.slice("tamper").used() >= Bytes::mib(2048));
    ground.neighbour_is_unharmed("by-path");
}

#[test]
fn stopped_process_harms_no_other_slice() {
    let mut ground = Ground::new();
    let (mut process, pid) = ground.begin(&[], "stop", "");
    process.say("go");
    assert_eq!(process.line().as_deref(), Some("done 0"));
    ground.neighbour_is_unharmed("stop");
    assert_eq!(ground.node.slice("tamper").pids(), [pid], "it stays charged for what it holds");
    ground.clear();
}

/// Starts the honest program by these words without the library, and waits for the event.
#[track_caller]
fn stripped(before: &[&str], kind: &str) {
    let mut ground = Ground::new();
    let since = Instant::now();
    let (_process, pid) = ground.begin(before, "hold", "");
    let event = ground.sees(kind, Some(pid), since);
    assert_eq!(event.slice.as_deref(), Some("tamper"), "{event:?}");
    let table = ground.node.tranche(&["smi"]).success();
    assert!(table.contains(&format!("{kind}: process {pid} of slice tamper")), "{table}");
    ground.neighbour_is_unharmed(kind);
}

#[test]
fn a_program_that_drops_the_library_is_seen_with_its_slice() {
    stripped(&["env", "-uLD_PRELOAD", "-uCUDA_VISIBLE_DEVICES"], "unshimmed-process");
}

#[test]
fn a_program_with_an_environment_of_its_own_is_seen_with_its_slice() {
    let path = format!("LD_LIBRARY_PATH={}", Stage::find().libraries().display());
    // The remaining variables are the ones by which a simulated node is found.
    stripped(
        &["sh", "-c", "exec env -i \"$0\" SIMGPU_NODE=\"$SIMGPU_NODE\" \"$@\"", &path],
        "unshimmed-process",
    );
}

#[test]
fn a_program_that_leaves_its_parents_too_is_seen_with_its_slice() {
    let mut ground = Ground::new();
    let program = program();
    let script =
        format!("unset LD_PRELOAD CUDA_VISIBLE_DEVICES; setsid {program} wait >/dev/null 2>&1 & exit 0");
    let since = Instant::now();
    let words = ["sh", "-c", &script];
    let _runner = Process::start(&mut ground.node.run_in_slice(&["--slice", "tamper"], &words));
    let event = ground.sees("unshimmed-process", None, since);
    assert!(event.slice.as_deref() == Some("tamper") && event.gpu.is_some(), "{event:?}");
    ground.neighbour_is_unharmed("orphan");
}

#[test]
fn the_socket_of_another_slice_is_refused_and_seen() {
    let ground = Ground::new();
    let socket = format!("TRANCHE_SLICE_SOCKET={}", ground.attach_socket("neighbour"));
    let words = ["env", &socket, &program(), "hold"];
    let since = Instant::now();
    let mut command = ground.node.run_in_slice(&["--slice", "tamper"], &words);
    let outcome = ground.node.run(&mut command);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    let event = ground.sees("refused", None, since);
    assert_eq!(event.slice.as_deref(), Some("neighbour"), "{event:?}");
}
