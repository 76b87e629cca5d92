//! The four teams, as they were published, and with a daemon that is killed at every step.
#![allow(clippy::unwrap_used, reason = "in a test, a failure is the answer")]

mod deaths;

use std::collections::BTreeMap;

use e2e::Node;
use teams::scenario::{GPUS, PREEMPTED, STAGES, Stage, TEAMS, TOGETHER, lasting, submitted};
use teams::seen::Seen;
use teams::world::World;
use tranche_domain::jobs::JobKind::{Interactive, Training};

/// Kernels of a job that is stopped although it could be parked once it uses a GPU.
const HARDLY: u64 = 10;

/// Checks that all jobs are settled, with allowed totals, on GPUs where they may be.
#[track_caller]
fn holds(seen: &Seen, then: &[teams::scenario::Totals], after: &str) {
    assert!(seen.is_settled(), "after {after}: {seen:#?}");
    assert!(
        then.is_empty() || then.contains(&seen.totals()),
        "after {after}: {:?}\n{seen:#?}",
        seen.totals()
    );
    assert_eq!(seen.wrongs(), Vec::<String>::new(), "after {after}");
}

/// Ends the work; checks that every job succeeded, ran as often as it had to and never twice at once.
///
/// Jobs end in any order. One that starts meanwhile may be preempted before it uses a GPU, and then starts over.
#[track_caller]
fn nothing_is_lost(world: &World, starts_of_preempted: usize) {
    let before = world.stopped();
    let seen = world.finish();
    let stopped = world.stopped();
    let of = |times: &BTreeMap<String, usize>, name| times.get(name).copied().unwrap_or(0);
    let since = |name| of(&stopped, name).saturating_sub(of(&before, name));
    for name in lasting() {
        let job = seen.find(name).unwrap();
        assert_eq!(job.state, "succeeded", "{job:?}");
    }
    for name in submitted() {
        let runs = world.runs(name);
        assert_eq!(runs.wrongs, Vec::<String>::new(), "{name}");
        let least = if PREEMPTED.contains(&name) { starts_of_preempted } else { 1 };
        let times = least..=least + since(name);
        assert!(times.contains(&runs.all.len()), "{name} has not run {times:?} times: {runs:?}");
        assert!(runs.all.iter().all(|run| run.saved.is_some()), "{name} ended otherwise: {runs:?}");
    }
    assert!(world.node.smi().slices.is_empty(), "{:?}", world.node.smi().slices);
}

#[test]
fn four_teams_borrow_what_is_idle_give_it_back_and_divide_what_is_left() {
    let world = World::begin();
    play(&world);
    let [b, c] = PREEMPTED.map(|job| world.runs(job).resumed_from());
    assert!(b > Some(0) && c > Some(0), "they continued from {b:?} and {c:?}");
    nothing_is_lost(&world, 2);
    was_never_too_much(&world.node);
}

#[test]
fn parked_jobs_of_the_four_teams_reach_the_same_states_and_never_start_over() {
    let world = World::parking();
    play(&world);
    let parked = world.node.events().into_iter().filter(|event| event.kind == "slice-parked").count();
    assert_eq!(parked, PREEMPTED.len());
    nothing_is_lost(&world, 1);
    for name in submitted() {
        let runs = world.runs(name).all;
        let before = runs.split_last().map_or(&[][..], |(_, before)| before);
        let hardly_ran = before.iter().all(|run| run.saved.is_some_and(|kernels| kernels <= HARDLY));
        assert!(hardly_ran, "{name} has used a GPU and was not parked: {runs:?}");
    }
    was_never_too_much(&world.node);
}

#[track_caller]
fn play(world: &World) {
    for stage in &STAGES {
        for step in stage.steps {
            world.act(&step.act).success();
            if !step.then.is_empty() {
                holds(&world.settle(step.then), step.then, step.act.job());
            }
        }
        is_stable(world, stage);
    }
}

#[track_caller]
fn is_stable(world: &World, stage: &Stage) {
    for seen in world.ten_rounds() {
        holds(&seen, &[stage.totals()], stage.name);
        assert_eq!(seen.gpus_in_use(), GPUS as usize);
        for (_, together) in TOGETHER {
            assert_eq!(seen.gpus_of(together), 1, "{together:?}");
        }
        if let Some(kinds) = stage.kinds {
            assert_eq!((seen.running_of(Training), seen.running_of(Interactive)), kinds);
        }
        seen.0
            .iter()
            .filter(|job| ["pending", "parked"].contains(&job.state.as_str()))
            .for_each(|job| assert_ne!(job.reason, "", "{job:?}"));
    }
    assert_eq!(world.preempted(), stage.preempted, "{}", stage.name);
}

/// Checks that each team is in the drawing, and that all together never had more than the GPUs.
fn was_never_too_much(node: &Node) {
    let svg = node.tranche(&["history", "--by", "project", "--svg"]).success();
    TEAMS.iter().for_each(|(team, _)| assert!(svg.contains(&format!("<title>{team} ")), "{team}"));
    let listed = node.tranche(&["history", "--by", "project", "--csv"]).success();
    let mut has: BTreeMap<String, f64> = BTreeMap::new();
    let mut most: f64 = 0.0;
    for line in listed.lines().skip(1) {
        let [_, team, gpus] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
        has.insert(team.into(), gpus.parse().unwrap());
        most = most.max(has.values().sum());
    }
    assert!((most - f64::from(GPUS)).abs() < 1e-6, "at most {most} GPUs:\n{listed}");
    assert!(has.values().all(|gpus| *gpus == 0.0), "{has:?}");
}
