//! Four teams on sixteen GPUs, with the GPUs of each after each step.
//!
//! Source: NetApp TR-4858, sections 4.8 to 4.10.

use super::*;

const PROJECTS: [(&str, &str); 4] = [("team-a", "4"), ("team-b", "2"), ("team-c", "2"), ("team-d", "8")];

const FIRST: [(&str, &str, &str, JobKind, &str); 13] = [
    ("team-a", "a-1-1-jupyter", "1", JobKind::Interactive, "1"),
    ("team-a", "a-1-g", "1", JobKind::Training, "2"),
    ("team-a", "a-2-gg", "2", JobKind::Training, "4"),
    ("team-b", "b-1-g06", "0.6", JobKind::Interactive, "0.6"),
    ("team-b", "b-2-g04", "0.4", JobKind::Interactive, "1"),
    ("team-b", "b-3-g", "1", JobKind::Training, "2"),
    ("team-b", "b-4-gg", "2", JobKind::Training, "4"),
    ("team-c", "c-1-g05", "0.5", JobKind::Interactive, "0.5"),
    ("team-c", "c-2-g03", "0.3", JobKind::Interactive, "0.8"),
    ("team-c", "c-3-g02", "0.2", JobKind::Interactive, "1"),
    ("team-c", "c-4-gg", "2", JobKind::Training, "3"),
    ("team-c", "c-5-g", "1", JobKind::Training, "4"),
    ("team-d", "d-1-gggg", "4", JobKind::Training, "4"),
];

fn used(world: &World) -> [String; 4] {
    PROJECTS.map(|(project, _)| world.used(project))
}

fn queued(world: &World) -> [usize; 4] {
    PROJECTS.map(|(project, _)| world.queued(project).len())
}

/// Asserts that ten decisions are empty and no member spans two islands.
fn is_stable(world: &mut World) {
    for _ in 0..10 {
        assert_eq!(world.scheduler.decide(), []);
    }
    for (member, gpus) in world.running() {
        let islands: BTreeSet<u32> = gpus.iter().map(|gpu| gpu / 8).collect();
        assert_eq!(islands.len(), 1, "{} is on {gpus:?}", world.name(member));
    }
}

fn borrowed() -> World {
    let mut world = World::new(islands(2, 8), &PROJECTS);
    for (project, name, gpus, kind, used) in FIRST {
        world.submit(project, name, gpus, kind);
        assert_eq!(world.used(project), used, "after {name}");
        is_stable(&mut world);
    }
    world
}

fn returned() -> World {
    let mut world = borrowed();
    for (name, used) in [("d-2-gg", "6"), ("d-3-gg", "8")] {
        world.submit("team-d", name, "2", JobKind::Training);
        assert_eq!(world.used("team-d"), used);
        is_stable(&mut world);
    }
    world
}

#[test]
fn idle_quota_is_borrowed_until_every_gpu_is_in_use() {
    let world = borrowed();
    assert_eq!(used(&world), ["4", "4", "4", "4"]);
    assert_eq!(queued(&world), [0; 4]);
    let gpus: BTreeSet<u32> = world.running().into_iter().flat_map(|(_, gpus)| gpus).collect();
    assert_eq!((gpus.len(), world.running().len()), (16, 13));
    assert_eq!(world.gpus_of("team-c", &["c-1-g05", "c-2-g03", "c-3-g02"]).len(), 1);
    assert_eq!(world.gpus_of("team-b", &["b-1-g06", "b-2-g04"]).len(), 1);
}

#[test]
fn project_below_quota_preempts_borrowers() {
    let world = returned();
    let stopped: BTreeSet<&str> = world.stopped.iter().map(String::as_str).collect();
    assert_eq!((stopped, world.stopped.len()), (BTreeSet::from(["b-4-gg", "c-4-gg"]), 2));
    assert_eq!(used(&world), ["4", "2", "2", "8"]);
    assert_eq!(queued(&world), [0, 1, 1, 0]);
}

#[test]
fn surplus_is_divided_by_weight() {
    let mut world = returned();
    for (project, name) in
        [("team-a", "a-3-gg"), ("team-a", "a-4-gg"), ("team-b", "b-5-gg"), ("team-c", "c-6-gg")]
    {
        world.submit(project, name, "2", JobKind::Training);
        is_stable(&mut world);
    }
    assert_eq!(world.stopped.len(), 2, "{:?}", world.stopped);
    assert_eq!((used(&world), queued(&world)), (["4", "2", "2", "8"].map(String::from), [2, 2, 2, 0]));
    world.delete("team-d", &["d-1-gggg", "d-2-gg", "d-3-gg"]);
    is_stable(&mut world);
    assert_eq!((used(&world), queued(&world)), (["8", "4", "4", "0"].map(String::from), [0, 1, 1, 0]));
    assert_eq!(world.stopped.len(), 2, "{:?}", world.stopped);
}
