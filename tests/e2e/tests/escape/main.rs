//! Programs that try to hold more device memory than their slice's cap, each by a route of its own.
//!
//! The simulated devices are watched meanwhile: at every instant 0 bytes are held over the cap, and the whole slice
//! remains usable.
//!
//! Each route is tried on several driver personalities, all five with PERSONALITIES=all, and twice on each. Alone on
//! its GPU, where memory beyond its slice is free, it shows that it does not exceed its cap: a full GPU would stop it
//! by itself. On a GPU that is committed to the last MiB and whose other slices are full, it shows that it gets its
//! whole cap, and that the others keep theirs. ROUTES=reset_while tries only routes whose names begin with that,
//! TIMES=30 each of them 30 times.
//!
//! Two figures are taken when a route is refused more memory. The charge of the slice must be its whole cap: then only
//! charges keep memory out of its reach. The device may count less where a charge has to err upwards; each such route
//! states the least figure, with the reason.
//!
//! A route that is not governed yet is marked in [`routes`] as expected to fail, with the reason; it fails the suite as
//! soon as it holds.
#![forbid(unsafe_code)]

mod neighbours;
mod observer;
mod routes;
mod together;
mod trial;

use std::collections::BTreeSet;
use std::process::Command;

use e2e::Node;
use simgpu::{Personality, personalities};

use neighbours::Neighbours;
use routes::{Family, Gpus, ROUTES, Route};
use trial::Trial;

/// Drivers on which routes are tried: the ones listed in PERSONALITIES, or all.
///
/// Without that variable, two that differ in most.
fn drivers() -> Vec<Personality> {
    match std::env::var("PERSONALITIES").as_deref() {
        Ok("all") => personalities().collect(),
        Ok(keys) if !keys.is_empty() => {
            let named =
                |key: &str| Personality::named(key).unwrap_or_else(|| panic!("no driver has the key {key}"));
            keys.split(',').map(named).collect()
        }
        _ => ["550", "610"].into_iter().filter_map(Personality::named).collect(),
    }
}

/// Tries all routes of a family on each driver.
#[track_caller]
fn hold(family: Family) {
    let broken: Vec<String> = drivers().iter().flat_map(|driver| hold_on(family, driver)).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Tries all routes of a family on a driver, each in a slice of its own; returns their faults.
///
/// Each is tried alone on the GPU first, then while the rest of the GPU is full.
#[track_caller]
fn hold_on(family: Family, driver: &Personality) -> Vec<String> {
    let preset = if family == Family::Multicast { "h200x1" } else { "v100x8" };
    let chosen = std::env::var("ROUTES").unwrap_or_default();
    let ours = |route: &&Route| route.family == family && route.name.starts_with(&chosen);
    let (mut routes, missing): (Vec<&Route>, Vec<&Route>) =
        ROUTES.iter().filter(ours).partition(|route| driver.has(route.since));
    for route in missing {
        let (major, minor) = (route.since / 1000, route.since % 1000 / 10);
        println!("SKIPPED: driver {}: {}: needs CUDA {major}.{minor}", driver.key, route.name);
    }
    if routes.is_empty() {
        return Vec::new();
    }
    let node = Node::with_driver(preset, &driver.key);
    routes.sort_by_key(|route| (route.cap, route.gpus != Gpus::Part));
    let mut broken = Vec::new();
    for alike in routes.chunk_by(|one, next| (one.cap, one.gpus) == (next.cap, next.gpus)) {
        broken.extend(try_beside(&node, alike, &Neighbours::default()));
        // Neighbours fill one GPU, and a slice of whole GPUs has none.
        if alike[0].gpus == Gpus::Part {
            let neighbours = Neighbours::around(&node, alike[0].cap);
            broken.extend(try_beside(&node, alike, &neighbours));
            neighbours.end(&node);
        }
    }
    broken.into_iter().map(|fault| format!("driver {}: {fault}", driver.key)).collect()
}

/// Tries routes one after the other beside neighbours; returns their faults.
fn try_beside(node: &Node, routes: &[&Route], neighbours: &Neighbours) -> Vec<String> {
    let times = std::env::var("TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let verdict = |route: &&Route| {
        let trial = Trial::of(node, route, neighbours);
        println!("{trial}, {neighbours}{}", Trial::slack(route));
        trial.verdict(route).err().map(|fault| format!("{fault}, {neighbours}"))
    };
    routes.iter().flat_map(|route| std::iter::repeat_n(route, times)).filter_map(verdict).collect()
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
    resets_beside_busy_threads_hold: Resets;
    two_gpus_hold: Devices;
    threads_without_a_context_hold: Bare;
    locations_of_cuda_13_hold: Locations;
    pools_that_grow_in_steps_hold: Steps;
}

#[test]
fn there_are_many_routes_and_the_program_knows_them_all() {
    let listed = Command::new(trial::program()).output().expect("the program runs");
    let listed = String::from_utf8(listed.stdout).expect("names are text");
    let known: BTreeSet<&str> = listed.lines().collect();
    let table: BTreeSet<&str> = ROUTES.iter().map(|route| route.name).collect();
    assert_eq!(table.len(), ROUTES.len(), "a route is in the table twice");
    assert!(table.len() >= 40, "{} routes", table.len());
    let not_routes = BTreeSet::from(["plain_large_with_patience", "again_and_again"]);
    let unlisted: BTreeSet<_> = known.difference(&table).copied().collect();
    assert_eq!(unlisted, not_routes, "in clients/escape/main.c, but not in routes.rs");
    let unknown: BTreeSet<_> = table.difference(&known).collect();
    assert!(unknown.is_empty(), "in routes.rs, but not in clients/escape/main.c: {unknown:?}");
}
