//! Public facts about drivers, held against each simulated driver and against what a program in a slice gets to see.

use e2e::{Node, Stage};

/// Personalities that the facts are held against here.
const DRIVERS: [&str; 5] = ["535", "550", "570", "580", "610"];

#[test]
fn simulated_drivers_keep_to_public_facts() {
    for driver in DRIVERS {
        let node = Node::with_stage(Stage::find().with_driver(driver), "h200x1");
        hold(driver, &node.run(&mut node.command(node.stage().facts())).success());
    }
}

#[test]
fn drivers_in_slices_keep_to_public_facts() {
    for driver in DRIVERS {
        let node = Node::with_driver("h200x1", driver);
        let program = [node.stage().facts()];
        hold(driver, &node.run(&mut node.run_in_slice(&["-g", "0.5"], &program)).success());
    }
}

/// No fact fails, and no function that a fact calls is absent.
fn hold(driver: &str, said: &str) {
    assert!(said.contains(" 0 failed, 0 absent,"), "driver {driver}: {said}");
}
