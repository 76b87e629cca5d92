//! Reactions to violations and to foreign processes that the operator configures.

use std::time::Instant;

use e2e::{eventually, holds_for};

use e2e::Process;

use crate::ground::{Ground, LOOKS, program};

#[test]
fn deceiving_process_alone_is_killed_after_grace() {
    let mut ground = Ground::configured("violations = \"kill\"\nviolations_grace_s = 1\n");
    let (mut honest, honest_pid) = ground.begin(&[], "hold", "");
    let (mut process, pid) = ground.begin(&["env", "-uLD_PRELOAD", "-uCUDA_VISIBLE_DEVICES"], "hold", "");
    let since = Instant::now();
    let event = ground.sees("killed", Some(pid), since);
    assert!(event.evidence.contains("unshimmed-process"), "{event:?}");
    eventually("it has ended", || if process.runs() { Err("it runs".into()) } else { Ok(()) });
    assert!(honest.runs());
    assert_eq!(ground.node.slice("tamper").pids(), [honest_pid]);
    ground.neighbour_is_unharmed("kill");
}

#[test]
fn violation_kills_no_process_by_default() {
    let ground = Ground::configured("violations_grace_s = 0\n");
    let (mut process, pid) = ground.begin(&[], "used-less", "");
    process.say("go");
    ground.sees("under-reported", Some(pid), Instant::now());
    holds_for("it lives", LOOKS, || if process.runs() { Ok(()) } else { Err("it was killed".into()) });
    assert!(ground.node.events().iter().all(|event| event.kind != "killed"));
}

#[test]
fn gpu_with_foreign_process_takes_no_slices_if_configured() {
    let ground = Ground::configured("foreigners = \"refuse\"\n");
    let mut stranger = ground.node.tenant_of(&mut ground.node.command(e2e::Tenant::program())).ready();
    let pid = stranger.pid();
    ground.sees("foreign-process", Some(pid), Instant::now());
    let make = ["slice", "create", "more", "-g", "0.1", "--gpu", "0"];
    eventually("no slice is placed there", || {
        let outcome = ground.node.tranche(&make);
        if outcome.code == Some(0) {
            ground.node.tranche(&["slice", "delete", "more"]).success();
        }
        match outcome.stderr.contains(&pid.to_string()) && outcome.stderr.contains("`foreigners`") {
            true => Ok(()),
            false => Err(outcome.to_string()),
        }
    });
    stranger.kill();
    eventually("it takes slices again", || match ground.node.tranche(&make) {
        outcome if outcome.code == Some(0) => Ok(()),
        outcome => Err(outcome.to_string()),
    });
}

/// Starts the program repeatedly in the slice, for about 200 ms each time; `how` precedes its command.
#[track_caller]
fn again_and_again(ground: &Ground, how: &str) -> Process {
    let again = format!("while :; do sleep 0.2 | {how} {} hold ''; sleep 0.05; done", program());
    Process::start(&mut ground.node.run_in_slice(&["--slice", "tamper"], &["sh", "-c", &again]))
}

#[test]
fn lives_of_a_moment_without_library_are_seen() {
    let ground = Ground::new();
    let (_honest, honest_pid) = ground.begin(&[], "hold", "");
    let since = Instant::now();
    let mut loops = again_and_again(&ground, "env -uLD_PRELOAD -uCUDA_VISIBLE_DEVICES");
    let event = ground.sees("unshimmed-process", None, since);
    assert_eq!(event.slice.as_deref(), Some("tamper"), "{event:?}");
    assert!(event.pid != Some(honest_pid) && loops.runs());
}

#[test]
fn programs_started_again_within_the_grace_end_their_slice() {
    let mut ground = Ground::configured("violations = \"kill\"\nviolations_grace_s = 3\n");
    let since = Instant::now();
    let mut loops = again_and_again(&ground, "env -uLD_PRELOAD -uCUDA_VISIBLE_DEVICES");
    ground.sees("unshimmed-process", None, since);
    let ended = eventually("the slice is ended", || {
        let killed =
            |event: &&e2e::Event| event.kind == "killed" && event.evidence.contains("all its processes");
        let events = ground.node.events();
        events.iter().find(killed).cloned().ok_or_else(|| format!("{events:#?}"))
    });
    println!("ended after {:?} (simulated): {}", since.elapsed(), ended.evidence);
    assert_eq!(ended.slice.as_deref(), Some("tamper"), "{ended:?}");
    eventually("the loop that started them has ended", || {
        if loops.runs() { Err("it runs".into()) } else { Ok(()) }
    });
    ground.neighbour_is_unharmed("again and again");
}
