//! Honest programs, which cause no warning however busy they are.

use std::time::Duration;

use e2e::{Kind, Node, Process, eventually, holds_for};
use tranche_domain::units::Bytes;

use crate::ground::{compiled, program, ready};

/// Fills and copies inside the device, as fast as it takes them, beside a program that launches.
#[test]
fn a_program_that_only_moves_memory_is_accused_of_nothing_whether_or_not_that_counts() {
    for configured in ["uncounted", "inside", "counted"] {
        let more = format!("transfers = \"{configured}\"\nviolations = \"kill\"\nviolations_grace_s = 0\n");
        let node = Node::configured("v100x8", &more);
        let begin = |slice: &str, words: &[&str]| {
            node.tranche(&["slice", "create", slice, "-g", "0.4", "--gpu", "0"]).success();
            let mut process = Process::start(&mut node.run_in_slice(&["--slice", slice], words));
            ready(&mut process);
            assert!(process.say("go"));
            process
        };
        let mut mover = begin("moves", &[&compiled("transfers.c", &[]), "export", "6000"]);
        let mut launcher = begin("launches", &[&compiled("launch.c", &[]), "saturate", "6000"]);
        holds_for("no event is a warning", Duration::from_secs(5), || accused(&node));
        for process in [&mut mover, &mut launcher] {
            assert!(process.line().unwrap_or_default().starts_with("done"), "{configured}");
        }
    }
}

/// An error if an event has a severity other than `info`.
fn accused(node: &Node) -> Result<(), String> {
    let warnings = node.events().into_iter().filter(|event| event.severity != "info");
    match warnings.collect::<Vec<_>>() {
        none if none.is_empty() => Ok(()),
        some => Err(format!("{some:#?}")),
    }
}

#[test]
fn programs_that_allocate_launch_fork_and_die_all_the_time_are_accused_of_nothing() {
    let mut node = Node::configured("v100x8", "violations = \"kill\"\nviolations_grace_s = 0\n");
    for slice in ["memory", "compute"] {
        node.tranche(&["slice", "create", slice, "-g", "0.4", "--gpu", "0"]).success();
    }
    let words = [&compiled("launch.c", &[]), "saturate", "6000"];
    let mut launchers =
        [0, 1].map(|_| Process::start(&mut node.run_in_slice(&["--slice", "compute"], &words)));
    for launcher in &mut launchers {
        ready(launcher);
        assert!(launcher.say("go"));
    }
    let mut churning = node.tenant(&["--slice", "memory"]).ready();
    let mut dying = node.tenant(&["--slice", "memory"]).ready();
    dying.alloc(Kind::Plain, Bytes::mib(3000)).expect("the slice has as much");
    churning.say(&format!("churn 2 6000 {} 7", 4u64 << 30));
    dying.kill();
    node.kill_daemon();
    node.start_daemon();
    holds_for("no event is a warning", Duration::from_secs(5), || accused(&node));
    churning.hear_numbers().expect("no thread met an error");
    for launcher in &mut launchers {
        assert!(launcher.line().unwrap_or_default().starts_with("done"));
    }
    eventually("the node is well", || match node.smi().notes {
        notes if notes.is_empty() => Ok(()),
        notes => Err(format!("{notes:?}")),
    });
}

/// Three loops start programs that attach, allocate and end soon, as scripts and data loaders do.
#[test]
fn programs_of_a_moment_started_all_the_time_are_accused_of_nothing() {
    let node = Node::configured("v100x8", "violations = \"kill\"\nviolations_grace_s = 0\n");
    node.tranche(&["slice", "create", "storm", "-g", "0.6", "--gpu", "0"]).success();
    let again = format!("while :; do sleep 0.1 | {} hold '' >/dev/null; done", program());
    let mut storm = [0, 1, 2]
        .map(|_| Process::start(&mut node.run_in_slice(&["--slice", "storm"], &["sh", "-c", &again])));
    holds_for("no event is a warning", Duration::from_secs(8), || accused(&node));
    assert!(storm.iter_mut().all(Process::runs));
}
