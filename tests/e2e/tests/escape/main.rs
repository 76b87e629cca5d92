//! Programs that try to hold more device memory than their slice may, each by a route of its own, while the simulated
//! devices are watched: 0 bytes over the cap at every instant, and still all of the slice usable.
//!
//! Each is tried twice. Alone on its GPU, where there is memory beyond its slice to be had, it shows whether it exceeds
//! its cap: on a GPU that is full, the GPU itself would stop it. And on a GPU that is handed out to the last MiB and
//! whose other slices are full, it shows whether it gets what it was promised, and leaves the others what is theirs.
//!
//! Two figures are taken when a route can get no more. What the slice is charged is to be all of its cap: then nothing is out of its reach
//! but by what was charged. What the device counts may be less where a charge has to err upwards; how much less is
//! stated by each such route, with the reason, and must not become less than that.
//!
//! A route that is not governed yet stands in [`routes`] as expected to fail, with the reason; it fails the suite the
//! day that it holds.
#![forbid(unsafe_code)]

mod neighbours;
mod observer;
mod routes;
mod together;
mod trial;

use std::collections::BTreeSet;
use std::process::Command;

use e2e::Node;

use neighbours::Neighbours;
use routes::{Family, ROUTES, Route};
use trial::Trial;

/// Tries all routes of a family, each in a slice of its own: first with nobody else on the GPU, then while the rest
/// of it is full.
#[track_caller]
fn hold(family: Family) {
    let node = Node::simulated(if family == Family::Multicast { "h200x1" } else { "v100x8" });
    let mut routes: Vec<&Route> = ROUTES.iter().filter(|route| route.family == family).collect();
    routes.sort_by_key(|route| route.cap);
    let mut broken = Vec::new();
    for alike in routes.chunk_by(|one, next| one.cap == next.cap) {
        broken.extend(try_beside(&node, alike, &Neighbours::default()));
        // A slice of whole GPUs has no neighbours.
        if !alike[0].whole_gpus {
            let neighbours = Neighbours::around(&node, alike[0].cap);
            broken.extend(try_beside(&node, alike, &neighbours));
            neighbours.end(&node);
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Tries routes, one after the other; what is wrong with them.
fn try_beside(node: &Node, routes: &[&Route], neighbours: &Neighbours) -> Vec<String> {
    let verdict = |route: &&Route| {
        let trial = Trial::of(node, route, neighbours);
        println!("{trial}, {neighbours}{}", Trial::slack(route));
        trial.verdict(route).err().map(|fault| format!("{fault}, {neighbours}"))
    };
    routes.iter().filter_map(verdict).collect()
}

macro_rules! families {
    ($($name:ident: $family:ident;)*) => {
        $(#[test] fn $name() { hold(Family::$family) })*
    };
}

families! {
    plain_memory_holds: Plain;
    awkward_sizes_hold: Sizes;
    orders_of_frees_hold: Orders;
    every_door_holds: Doors;
    pools_hold: Pools;
    virtual_memory_holds: Virtual;
    multicast_holds: Multicast;
    arrays_hold: Arrays;
    graphs_hold: Graphs;
    shared_memory_holds: Sharing;
    relatives_hold: Relatives;
    code_holds: Code;
    limits_hold: Limits;
    contexts_hold: Contexts;
    two_gpus_hold: Devices;
}

#[test]
fn there_are_many_routes_and_the_program_knows_them_all() {
    let listed = Command::new(trial::program()).output().expect("the program runs");
    let listed = String::from_utf8(listed.stdout).expect("names are text");
    let known: BTreeSet<&str> = listed.lines().collect();
    let table: BTreeSet<&str> = ROUTES.iter().map(|route| route.name).collect();
    assert_eq!(table.len(), ROUTES.len(), "a route stands in the table twice");
    assert!(table.len() >= 40, "{} routes", table.len());
    let not_routes = BTreeSet::from(["plain_large_with_patience", "again_and_again"]);
    assert_eq!(known.difference(&table).copied().collect::<BTreeSet<_>>(), not_routes);
    assert_eq!(table.difference(&known).count(), 0);
}
