//! Requests that wait: shown with requester and reason, and served when they can be.

use e2e::{Node, Process, eventually};

use crate::park::holder;

#[test]
fn return_waits_for_room_and_for_the_end_of_a_cordon() {
    let node = Node::with_driver("v100x8", "580");
    let (mut tenant, piece, sum) = holder(&node, &["-g", "0.6", "--gpu", "0", "--name", "night"], 7);
    node.tranche(&["slice", "park", "night"]).success();
    node.tranche(&["slice", "create", "day", "-g", "0.6", "--gpu", "0"]).success();
    let mut command = node.command(node.stage().command());
    let unpark = Process::start(command.args(["slice", "unpark", "night", "--wait", "1m"]));
    let waits = |why: &str| {
        eventually("it waits", || match node.smi().waiting.first() {
            Some(waiting) if waiting.reason.contains(why) => Ok(waiting.clone()),
            other => Err(format!("{other:?}")),
        })
    };
    let waiting = waits("cannot come back");
    assert!(waiting.returns && waiting.name.as_deref() == Some("night"), "{waiting:?}");
    assert_eq!((waiting.holders, waiting.uid), (vec!["day".to_owned()], Some(nix::unistd::geteuid().as_raw())));
    let list = node.tranche(&["slice", "list"]).success();
    assert!(list.contains("Waiting") && list.contains("in use by day"), "{list}");

    node.tranche(&["gpu", "cordon", "0", "--reason", "its fan is loud"]).success();
    node.tranche(&["slice", "delete", "day"]).success();
    assert!(waits("its fan is loud").holders.is_empty());
    let words = ["slice night cannot come back", "gpu 0", "its fan is loud", "tranche gpu uncordon 0"];
    node.tranche(&["slice", "unpark", "night"]).refused(1, &words);
    node.tranche(&["gpu", "uncordon", "0"]).success();
    unpark.end().success();
    assert_eq!(tenant.number(&format!("sum {piece}")), Ok(sum));
    assert!(node.smi().waiting.is_empty());
}
