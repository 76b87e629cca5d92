//! A training that borrows, is preempted, and continues: from its checkpoint, or where it was.

use std::time::Duration;

use e2e::{eventually, until};
use serde_json::Value;

use crate::number;
use crate::training::FIRST_LOSS;
use pytorch::machine::Machine;

/// Longest time until a training of its own start has made steps.
const START: Duration = Duration::from_secs(120);

/// Everything that the job has reported since it was submitted.
#[track_caller]
fn reports(machine: &Machine) -> Vec<Value> {
    let log = machine.node.tranche(&["logs", "training", "-p", "a"]).stdout;
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Waits until this is true of its reports.
#[track_caller]
fn wait(machine: &Machine, what: &str, is_it: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let found = until(START, || match reports(machine) {
        reports if is_it(&reports) => Ok(reports),
        reports => Err(format!("{:?}", reports.last())),
    });
    found.unwrap_or_else(|last| panic!("{what}: {last}"))
}

/// Number of steps among reports.
fn steps(reports: &[Value]) -> usize {
    reports.iter().filter(|report| report["loss"].is_number()).count()
}

/// Checks that each step takes a ten-thousandth of the distance away.
///
/// None is missing or made twice.
#[track_caller]
fn is_whole(all: &[Value]) {
    for (step, report) in all.iter().filter(|report| report["loss"].is_number()).enumerate() {
        let expected = FIRST_LOSS * 0.9999_f64.powi(2 * step as i32);
        assert_eq!(report["step"], step as u64 + 1, "{all:#?}");
        assert!((number(report, "loss") / expected - 1.0).abs() < 0.01, "{report:#}, not {expected}");
    }
}

#[test]
fn a_preempted_training_continues_from_its_checkpoint() {
    let Some(machine) = Machine::with_pytorch() else { return };
    for (project, quota) in [("a", "0.25"), ("b", "0.75")] {
        machine.node.tranche(&["project", "create", project, "--quota", quota]).success();
    }
    let checkpoint = machine.node.dir().join("checkpoint").to_string_lossy().into_owned();
    let borrows = ["training", "-p", "a", "-g", "0.6", "--warn", "USR1", "--grace", "60s"];
    machine.submit(&borrows, &["resumable", &checkpoint]);
    wait(&machine, "it trains on what it borrows", |reports| steps(reports) > 5);

    let wants = ["submit", "urgent", "-p", "b", "-g", "0.75", "--", "sleep", "1000"];
    machine.node.tranche(&wants).success();
    let seen = wait(&machine, "it is warned", |reports| reports.iter().any(|one| one["saved"].is_u64()));
    eventually("all of its memory is given back", || match machine.node.device().held().get() {
        0 => Ok(()),
        held => Err(format!("{held} bytes")),
    });
    let preempted = machine.node.events().iter().filter(|event| event.kind == "job-preempted").count();
    assert_eq!(preempted, 1, "{seen:#?}");

    let before = seen.len();
    machine.node.tranche(&["delete", "urgent", "-p", "b"]).success();
    let all = wait(&machine, "it continues", |reports| steps(reports) > steps(&reports[..before]) + 5);
    assert!(
        number(&all[before], "begun") > 0.0 && all[before]["begun"] == all[before - 1]["saved"],
        "{all:#?}"
    );
    is_whole(&all);
    machine.node.tranche(&["delete", "training", "-p", "a"]).success();
}

#[test]
fn a_parked_training_continues_in_the_same_process() {
    let Some(machine) = Machine::with_pytorch() else { return };
    machine.node.configure("preemption = \"park\"");
    machine.node.tranche(&["config", "reload"]).success();
    for (project, quota) in [("a", "0.25"), ("b", "0.75")] {
        machine.node.tranche(&["project", "create", project, "--quota", quota]).success();
    }
    let checkpoint = machine.node.dir().join("checkpoint").to_string_lossy().into_owned();
    machine.submit(&["training", "-p", "a", "-g", "0.6"], &["resumable", &checkpoint]);
    wait(&machine, "it trains on what it borrows", |reports| steps(reports) > 5);

    for _ in 0..3 {
        let wants = ["submit", "urgent", "-p", "b", "-g", "0.75", "--", "sleep", "1000"];
        machine.node.tranche(&wants).success();
        eventually("its memory lies in host memory", || {
            let listed = machine.node.tranche(&["list", "-A"]).success();
            match (listed.contains("Parked"), machine.node.device().held().get()) {
                (true, 0) => Ok(()),
                (_, held) => Err(format!("{held} bytes\n{listed}")),
            }
        });
        let before = steps(&reports(&machine));
        machine.node.tranche(&["delete", "urgent", "-p", "b"]).success();
        wait(&machine, "it continues", |reports| steps(reports) > before + 5);
    }
    let all = reports(&machine);
    let begun = all.iter().filter(|report| report["begun"].is_number()).count();
    assert!(begun == 1 && all.iter().all(|report| report["saved"].is_null()), "{all:#?}");
    is_whole(&all);
    machine.node.tranche(&["delete", "training", "-p", "a"]).success();
}
