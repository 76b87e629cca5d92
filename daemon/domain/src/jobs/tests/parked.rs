//! Members that are parked instead of stopped.

use super::*;
use crate::jobs::Wait;

/// One GPU of each of two projects; what has to leave is parked.
fn world() -> World {
    let mut world = World::new(islands(1, 2), &[("a", "1"), ("b", "1")]);
    world.parks = true;
    world
}

fn id(world: &World, project: &str, name: &str) -> JobId {
    world.scheduler.find(&project.parse().unwrap(), &name.parse().unwrap()).unwrap()
}

fn exit(world: &mut World, job: JobId) {
    world.scheduler.member_exited(MemberId { job, index: 0 }, Exit::Completed);
    world.settle();
}

#[test]
fn parked_member_returns_to_its_own_gpu() {
    let mut world = world();
    let one = world.submit("a", "one", "1", JobKind::Training);
    let two = world.submit("a", "two", "1", JobKind::Training);
    let home = world.gpus_of("a", &["two"]);
    let taker = world.submit("b", "taker", "1", JobKind::Training);
    assert_eq!((world.stopped.clone(), world.used("a")), (vec!["two".into()], "1".into()));
    let parked = MemberId { job: two, index: 0 };
    assert!(world.scheduler.is_parked(parked) && world.scheduler.binding(parked).is_none());
    let gpus: Vec<u32> = home.iter().copied().collect();
    assert!(matches!(world.scheduler.wait(two), Some(Wait::Parked { gpus: at, .. }) if at == gpus));
    // The other GPU empties, which is not its own.
    exit(&mut world, one);
    assert!(world.unparked.is_empty() && world.scheduler.starts_elsewhere(parked));
    exit(&mut world, taker);
    assert_eq!((world.unparked.clone(), world.gpus_of("a", &["two"])), (vec!["two".into()], home));
    assert!(!world.scheduler.is_parked(parked));
}

#[test]
fn parked_member_delays_no_job_that_fits_elsewhere() {
    let mut world = world();
    world.submit("a", "one", "1", JobKind::Training);
    world.submit("a", "two", "1", JobKind::Training);
    let taker = world.submit("b", "taker", "1", JobKind::Training);
    world.submit("a", "later", "1", JobKind::Training);
    let one = id(&world, "a", "one");
    exit(&mut world, one);
    assert!(world.queued("a").contains("two") && !world.queued("a").contains("later"));
    // Its own GPU is free, and its project within its quota.
    let later = id(&world, "a", "later");
    exit(&mut world, later);
    exit(&mut world, taker);
    assert_eq!(world.unparked, ["two"]);
}

#[test]
fn suspended_member_stays_parked_until_it_is_resumed() {
    let mut world = world();
    let job = world.submit("a", "one", "1", JobKind::Training);
    for member in world.scheduler.suspend(job, true) {
        world.leave_gpus(member);
    }
    world.settle();
    assert_eq!((world.unparked.len(), world.used("a")), (0, "0".into()));
    assert_eq!(world.scheduler.wait(job), Some(Wait::Suspended));
    world.scheduler.suspend(job, false);
    world.settle();
    assert_eq!((world.unparked.clone(), world.used("a")), (vec!["one".to_string()], "1".into()));
}

#[test]
fn deleted_job_ends_once_its_parked_member_exits() {
    let mut world = world();
    let job = world.submit("a", "one", "1", JobKind::Training);
    for member in world.scheduler.suspend(job, true) {
        world.leave_gpus(member);
    }
    assert_eq!(world.scheduler.delete(job), []);
    assert!(world.scheduler.jobs().contains_key(&job));
    exit(&mut world, job);
    assert!(!world.scheduler.jobs().contains_key(&job));
}

#[test]
fn parked_member_keeps_its_place_among_those_at_once() {
    let mut world = world();
    let both = JobSpec {
        parallelism: NonZeroU32::new(2).unwrap(),
        completions: NonZeroU32::new(3).unwrap(),
        ..spec("a", "three", "1", JobKind::Training)
    };
    let job = world.submit_spec(both);
    let taker = world.submit("b", "taker", "1", JobKind::Training);
    let parked: Vec<MemberId> = world.scheduler.parked().collect();
    assert_eq!((parked.len(), world.scheduler.members(job).count()), (1, 1));
    exit(&mut world, taker);
    assert_eq!((world.unparked.len(), world.scheduler.members(job).count()), (1, 2));
    world.scheduler.member_exited(parked[0], Exit::Completed);
    world.settle();
    assert_eq!(world.scheduler.members(job).count(), 2, "the third has begun");
}
