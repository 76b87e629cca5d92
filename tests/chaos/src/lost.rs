//! A GPU is lost and returns, while its tenants hold memory and others work on other GPUs.

use std::time::Duration;

use e2e::{Node, eventually, holds_for};
use stress::report::Claim;

use crate::outcome::Outcome;
use crate::world::World;

/// GPU of the slice `steady`, whose program holds memory and makes no calls meanwhile.
///
/// A program that works on a lost GPU gets an error from the driver.
const GPU: usize = 0;

/// Loses the GPU `losses` times; every other time the daemon is killed before the GPU is back.
pub(crate) fn run(losses: u64) -> Outcome {
    let world = World::populate(Node::simulated("v100x8"));
    for loss in 0..losses {
        let before = last(&world.node());
        world.node().set_gpu(GPU, &["--lost", "on"]);
        reported(&world, "gpu-fault", before);
        holds_for("tenants live", Duration::from_millis(300), || {
            world.look_alive();
            Ok(())
        });
        let restarted = loss % 2 == 1;
        if restarted {
            restart(&world);
            let is_there = world.node().smi().find("steady").is_some();
            world.toll.wrong_if(is_there, "slices_wrong", || "steady is served without its GPU".into());
            world.look_alive();
        } else {
            world.look();
        }
        let before = last(&world.node());
        world.node().set_gpu(GPU, &["--lost", "off"]);
        if restarted {
            // A daemon that finds the GPU serves its slices again.
            restart(&world);
        } else {
            reported(&world, "gpu-recovered", before);
        }
        world.look();
    }
    world.close();
    let zero = |name| Claim::exactly(name, world.toll.count(name), "times", 0);
    let claims = vec![
        Claim::at_least("losses", losses, "times", losses),
        zero("not_heard_of"),
        zero("slices_wrong"),
        zero("charges_wrong"),
        zero("held_but_not_charged"),
        zero("processes_lost"),
        zero("tenants_died"),
        zero("tenants_stuck"),
        zero("panics"),
    ];
    Outcome { claims, ..Outcome::default() }
}

fn restart(world: &World) {
    let mut node = world.node_mut();
    node.kill_daemon();
    node.start_daemon();
}

/// Number of the last event; 0 without one.
fn last(node: &Node) -> u64 {
    node.events().last().map_or(0, |event| event.seq)
}

/// Waits for an event of a kind after the one with the number `before`.
fn reported(world: &World, kind: &str, before: u64) {
    eventually("the daemon reports the state of the GPU", || {
        let events = world.node().events();
        match events.iter().any(|event| event.seq > before && event.kind == kind) {
            true => Ok(()),
            false => Err(format!("no {kind} after {before}: {:?}", events.last())),
        }
    });
}
