//! Nobody is accused who keeps to the rules, however busy he is.

use std::time::Duration;

use e2e::{Kind, Node, Process, compile, eventually, holds_for};
use tranche_domain::units::Bytes;

#[test]
fn programs_that_allocate_launch_fork_and_die_all_the_time_are_accused_of_nothing() {
    let mut node = Node::configured("v100x8", "violations = \"kill\"\nviolations_grace_s = 0\n");
    for slice in ["memory", "compute"] {
        node.tranche(&["slice", "create", slice, "-g", "0.4", "--gpu", "0"]).success();
    }
    let launch = compile("tests/e2e/clients/launch.c", &[]).expect("the tests need a C compiler");
    let words = [launch.as_os_str(), "saturate".as_ref(), "6000".as_ref()];
    let mut launchers =
        [0, 1].map(|_| Process::start(&mut node.run_in_slice(&["--slice", "compute"], &words)));
    for launcher in &mut launchers {
        assert!(launcher.line().unwrap_or_default().starts_with("ready"));
        assert!(launcher.say("go"));
    }
    let mut churning = node.tenant(&["--slice", "memory"]).ready();
    let mut dying = node.tenant(&["--slice", "memory"]).ready();
    churning.say(&format!("churn 2 6000 {} 7", 4u64 << 30));
    dying.alloc(Kind::Plain, Bytes::mib(3000)).unwrap();
    dying.kill();
    node.kill_daemon();
    node.start_daemon();
    holds_for("nobody is accused", Duration::from_secs(5), || {
        let warnings = node.events().into_iter().filter(|event| event.severity != "info");
        match warnings.collect::<Vec<_>>() {
            none if none.is_empty() => Ok(()),
            some => Err(format!("{some:#?}")),
        }
    });
    churning.hear_numbers().expect("no thread met an error");
    for launcher in &mut launchers {
        assert!(launcher.line().unwrap_or_default().starts_with("done"));
    }
    eventually("the node is well", || match node.smi().notes {
        notes if notes.is_empty() => Ok(()),
        notes => Err(format!("{notes:?}")),
    });
}
