//! Public facts about drivers, compared with each simulated driver and with that driver in a slice.

use e2e::{Node, Stage};

/// Personalities with which the facts are compared.
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

/// Fails if a fact fails, or a function that it calls is absent.
fn hold(driver: &str, output: &str) {
    assert!(output.contains(" 0 failed, 0 absent,"), "driver {driver}: {output}");
}
