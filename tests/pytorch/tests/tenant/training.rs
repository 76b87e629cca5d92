//! Training during resizes, freezes and the death of the daemon.

use std::time::Duration;

use e2e::{Process, eventually};
use serde_json::Value;

use crate::{HALF, number};
use pytorch::machine::{Machine, next};

/// A program that trains in the slice `trained` of half the GPU, past its first steps.
struct Training {
    process: Process,
    seen: Vec<Value>,
}

impl Training {
    #[track_caller]
    fn start(machine: &Machine, kind: &str) -> Self {
        machine.node.tranche(&["slice", "create", "trained", "-g", "0.5"]).success();
        let process = machine.start(&["--slice", "trained"], "", &["train", kind]);
        let mut training = Self { process, seen: Vec::new() };
        training.more_than(3);
        training
    }

    /// The next line that it prints.
    #[track_caller]
    fn report(&mut self) -> Value {
        let report = next(&mut self.process);
        self.seen.push(report.clone());
        report
    }

    /// Waits until it has made this number of steps beyond its next report.
    #[track_caller]
    fn more_than(&mut self, steps: u64) {
        let first = number(&self.report(), "step");
        while number(&self.report(), "step") <= first + steps as f64 {}
    }

    /// Waits for a report of which this is true.
    #[track_caller]
    fn until(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) {
        let found = (0..400).any(|_| is_it(&self.report()));
        assert!(found, "{what}: {:#?}", self.seen.last());
    }

    /// Ends it; its loss must have fallen at every step, by exactly as much as without interruption.
    #[track_caller]
    fn end(self) {
        let (mut last_step, mut last_loss) = (0.0, f64::MAX);
        for report in self.seen.iter().filter(|report| report["loss"].is_number()) {
            let (step, loss) = (number(report, "step"), number(report, "loss"));
            assert!(
                step > last_step && loss < last_loss,
                "step {step} after {last_step}: {loss}, {last_loss}"
            );
            // Each step takes a ten-thousandth of the distance away.
            let expected = FIRST_LOSS * 0.9999_f64.powi(2 * (step as i32 - 1));
            assert!((loss / expected - 1.0).abs() < 0.01, "loss {loss} at step {step}, not {expected}");
            (last_step, last_loss) = (step, loss);
        }
        let outcome = self.process.end_within(Duration::from_secs(60));
        assert_eq!(outcome.code, Some(0), "{outcome}");
    }
}

/// Mean square of the numbers that the program's problem begins with.
pub(crate) const FIRST_LOSS: f64 = 0.326_089_14;

#[test]
fn a_resize_reaches_a_training_that_goes_on() {
    let Some(machine) = Machine::with_pytorch() else { return };
    let mut training = Training::start(&machine, "eager");
    assert_eq!(number(&training.report(), "total"), HALF as f64);
    let quarter = (143_166_u64 / 4) << 20;
    machine.node.tranche(&["slice", "resize", "trained", "-g", "0.25"]).success();
    training.until("the total follows", |report| report["total"] == quarter);
    assert!(training.process.say("60000"), "it listens");
    training.until("what is beyond the cap is refused", |report| report["refused"] == true);
    machine.node.tranche(&["slice", "resize", "trained", "-g", "0.7"]).success();
    training.until("the total follows again", |report| report["total"].as_u64() > Some(HALF));
    assert!(training.process.say("60000"), "it listens");
    let held = |report: &Value| {
        report["free"].is_u64()
            && report["total"].as_u64() > report["free"].as_u64().map(|free| free + (60_000 << 20))
    };
    training.until("now it fits", held);
    training.more_than(5);
    training.end();
}

#[test]
fn a_frozen_training_waits_and_goes_on() {
    let Some(machine) = Machine::with_pytorch() else { return };
    let mut training = Training::start(&machine, "graph");
    machine.node.tranche(&["slice", "freeze", "trained"]).success();
    std::thread::sleep(Duration::from_millis(300));
    let busy = |machine: &Machine| machine.node.timeline(0).end();
    let before = busy(&machine);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(busy(&machine), before, "nothing runs in a frozen slice");
    machine.node.tranche(&["slice", "thaw", "trained"]).success();
    training.more_than(10);
    training.end();
}

#[test]
fn a_training_outlives_the_daemon_and_is_found_again() {
    let Some(mut machine) = Machine::with_pytorch() else { return };
    let mut training = Training::start(&machine, "eager");
    let pids = machine.node.slice("trained").pids();
    machine.node.kill_daemon();
    training.more_than(5);
    machine.node.start_daemon();
    eventually("the slice has its process again", || match machine.node.slice("trained").pids() {
        found if found == pids => Ok(()),
        other => Err(format!("{other:?} instead of {pids:?}")),
    });
    training.more_than(5);
    training.end();
    eventually("its memory is given back", || match machine.node.device().held().get() {
        0 => Ok(()),
        held => Err(format!("{held} bytes")),
    });
}
