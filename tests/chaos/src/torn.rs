//! Files that the daemon reads at its start are torn, at any byte.
//!
//! Data that is stored twice is not lost, other losses are reported, and tenants continue. The daemon's own tests
//! (`state_store`) tear the state at each byte; here are whole daemons, with a sample of them.

use std::fs;
use std::path::{Path, PathBuf};

use e2e::Node;
use stress::chance::Chance;
use stress::report::Claim;

use crate::outcome::Outcome;
use crate::world::{World, names};

/// Tears files before each of `tears` starts.
pub(crate) fn run(tears: u64, seed: u64) -> Outcome {
    let world = World::populate(Node::simulated("v100x8"));
    let mut chance = Chance::new(seed);
    for number in 0..tears {
        world.node_mut().kill_daemon();
        world.look_alive();
        match number % 4 {
            0 => state(&world, &mut chance),
            1 => state_and_copy(&world, &mut chance),
            2 => others(&world, &mut chance),
            _ => half_a_share(&world),
        }
    }
    world.close();
    let zero = |name| Claim::exactly(name, world.toll.count(name), "times", 0);
    let claims = vec![
        Claim::at_least("tears", tears, "starts", tears),
        zero("not_spoken_of"),
        zero("caps_lost"),
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

/// Keeps only the beginning of a file; returns its content before.
fn tear(path: &Path, chance: &mut Chance) -> Vec<u8> {
    let text = fs::read(path).expect("the daemon kept it");
    // Without its last newline alone, the file is complete.
    let length = chance.below(text.len() as u64 - 1) as usize;
    fs::write(path, &text[..length]).expect("it can be written");
    text
}

fn start(world: &World) {
    world.node_mut().start_daemon();
}

/// Tears the state alone: with the copy, nothing is lost.
fn state(world: &World, chance: &mut Chance) {
    let path = world.node().state_dir().join("state.json");
    tear(&path, chance);
    start(world);
    loss_is_reported(world);
    world.look();
}

/// Checks that an event and a note report the torn state.
fn loss_is_reported(world: &World) {
    let node = world.node();
    let noted = node.smi().notes.iter().any(|note| note.contains("state.json.corrupt-"));
    let event = node.events().iter().any(|event| event.kind == "state-unreadable");
    world.toll.wrong_if(!noted || !event, "not_spoken_of", || format!("noted: {noted}, event: {event}"));
}

/// Tears state and copy: slices with programs keep their caps, until the state is restored.
///
/// Then all is as it was.
fn state_and_copy(world: &World, chance: &mut Chance) {
    let directory = world.node().state_dir();
    let paths: [PathBuf; 2] = ["state.json", "state.json.copy"].map(|name| directory.join(name));
    let caps = caps(&fs::read_to_string(&paths[0]).expect("the daemon kept it"));
    let texts = paths.each_ref().map(|path| tear(path, chance));
    start(world);
    loss_is_reported(world);
    world.look_alive();
    let smi = world.node().smi();
    for name in ["busy", "churn", "near", "pair", "steady"] {
        let now = smi.find(name).map(|slice| slice.cap().get());
        let then = caps.iter().find(|(known, _)| known == name).map(|(_, cap)| *cap);
        world.toll.wrong_if(now != then, "caps_lost", || format!("{name} has {now:?} instead of {then:?}"));
    }
    world.node_mut().kill_daemon();
    for (path, text) in paths.iter().zip(texts) {
        fs::write(path, text).expect("it can be written");
    }
    start(world);
    world.look();
    tidy(&directory);
}

/// Name and cap in bytes of each slice, by the state.
fn caps(state: &str) -> Vec<(String, u64)> {
    let state: serde_json::Value = serde_json::from_str(state).expect("the state is whole");
    let slices = state["slices"].as_array().cloned().unwrap_or_default();
    let cap = |slice: &serde_json::Value| {
        let slice = &slice["slice"];
        Some((slice["name"].as_str()?.to_string(), slice["parts"][0]["cap"].as_u64()?))
    };
    slices.iter().filter_map(cap).collect()
}

fn tidy(directory: &Path) {
    let aside = names(directory).into_iter().filter(|name| name.contains("corrupt"));
    aside.for_each(|name| drop(fs::remove_file(directory.join(name))));
}

/// Tears the history and the measured costs of contexts, of which torn parts are ignored.
fn others(world: &World, chance: &mut Chance) {
    let directory = world.node().state_dir();
    for name in ["events.jsonl", "contexts.json"] {
        tear(&directory.join(name), chance);
    }
    start(world);
    world.node().events();
    world.look();
}

/// Adds half a line, as of a daemon that died while it wrote: that record never took effect.
fn half_a_share(world: &World) {
    use std::io::Write;
    let path = world.node().dir().join("run/slices/pair/shared");
    let mut file = fs::File::options().append(true).open(path).expect("the pair shares something");
    file.write_all(br#"{"Drop":{"seat":0,"ke"#).expect("it can be written");
    drop(file);
    start(world);
    world.look();
}
