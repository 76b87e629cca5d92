//! Forecasts of starts, against starts of the same scheduler.

use core::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::jobs::{MemberProgress, QueuePosition, RuntimeRange, StartRange};

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

fn exactly(length: Duration) -> RuntimeRange {
    RuntimeRange { least: length, most: Some(length) }
}

#[test]
fn start_is_after_the_end_of_what_is_in_the_way() {
    let mut world = World::new(islands(1, 1), &[("a", "1")]);
    let first = world.submit("a", "first", "1", JobKind::Training);
    let second = world.submit("a", "second", "1", JobKind::Training);
    let third = world.submit("a", "third", "1", JobKind::Training);
    let runtime = |member: MemberId, progress| match (member.job, progress) {
        (job, MemberProgress::Running) if job == first => {
            RuntimeRange { least: minutes(1), most: Some(minutes(5)) }
        }
        (job, MemberProgress::Starting) if job == second => {
            RuntimeRange { least: minutes(10), most: Some(minutes(20)) }
        }
        other => panic!("{other:?} is not in the way"),
    };
    let range = |earliest, latest| StartRange { earliest: Some(earliest), latest: Some(latest) };
    assert_eq!(world.scheduler.forecast(second, runtime), range(minutes(1), minutes(5)));
    assert_eq!(world.scheduler.forecast(third, runtime), range(minutes(11), minutes(25)));
    let unknown = world.scheduler.forecast(third, |_, _| RuntimeRange::UNKNOWN);
    assert_eq!(unknown, StartRange { earliest: Some(Duration::ZERO), latest: None });
    let queue = |position| Some(QueuePosition { position, length: 2 });
    assert_eq!(world.scheduler.queue_position(first), None);
    assert_eq!(
        (world.scheduler.queue_position(second), world.scheduler.queue_position(third)),
        (queue(1), queue(2))
    );
}

#[test]
fn job_after_another_starts_after_its_end() {
    let mut world = World::new(islands(1, 2), &[("a", "2")]);
    let first = world.submit("a", "first", "1", JobKind::Training);
    let next = world.scheduler.submit(spec("a", "next", "1", JobKind::Training)).unwrap();
    world.scheduler.set_after(next, [first].into());
    world.settle();
    let range = world.scheduler.forecast(next, |_, _| exactly(minutes(3)));
    assert_eq!(range.latest, Some(minutes(3)));
    assert_eq!(world.scheduler.queue_position(next), None, "it is not in the queue yet");
}

#[test]
fn what_is_preempted_does_not_delay_a_job_within_its_quota() {
    let mut world = World::new(islands(1, 1), &[("a", "1"), ("b", "0")]);
    let weighted = Project { weight: "1".parse().ok(), ..project("b", "0") };
    world.scheduler.set_project(weighted, false).unwrap();
    world.submit("b", "borrows", "1", JobKind::Training);
    let due = world.scheduler.submit(spec("a", "due", "1", JobKind::Training)).unwrap();
    let range = world.scheduler.forecast(due, |_, _| exactly(minutes(9)));
    assert_eq!(range.latest, Some(Duration::ZERO));
}

/// Time at which a job starts if members run for these lengths, by events of the world itself.
fn started_at(world: &mut World, id: JobId, length: impl Fn(MemberId) -> Duration) -> Option<Duration> {
    let mut running: Vec<(Duration, MemberId)> = Vec::new();
    let mut now = Duration::ZERO;
    for _ in 0..200 {
        let before = world.stopped.len();
        world.settle();
        let here: Vec<MemberId> = world.running().into_iter().map(|(member, _)| member).collect();
        // What was stopped starts over, perhaps at once on other GPUs.
        running.retain(|(_, member)| !world.stopped[before..].contains(&world.name(*member)));
        for member in here {
            if member.job == id {
                return Some(now);
            }
            if !running.iter().any(|(_, known)| *known == member) {
                running.push((now + length(member), member));
            }
        }
        running.sort();
        if running.is_empty() {
            return None;
        }
        let (end, member) = running.remove(0);
        now = end;
        world.scheduler.member_exited(member, Exit::Completed);
    }
    None
}

proptest! {
    /// With known lengths the forecast is the start itself.
    #[test]
    fn forecast_with_exact_runtimes_is_the_start(
        jobs in proptest::collection::vec((0usize..2, 1u64..40, 1u32..5, any::<bool>()), 2..12),
    ) {
        let mut world = World::new(islands(1, 4), &[("a", "2"), ("b", "2")]);
        let mut lengths = Vec::new();
        let mut last = None;
        for (number, (project, length, gpus, part)) in jobs.into_iter().enumerate() {
            let size = if part { std::format!("0.{gpus}") } else { gpus.min(4).to_string() };
            let name = std::format!("j-{number}");
            let id = world.scheduler.submit(spec(["a", "b"][project], &name, &size, JobKind::Training)).unwrap();
            lengths.push((id, minutes(length)));
            last = Some(id);
        }
        let id = last.unwrap();
        let length = |member: MemberId| {
            lengths.iter().find(|(id, _)| *id == member.job).map(|(_, length)| *length).unwrap()
        };
        let range = world.scheduler.forecast(id, |member, _| exactly(length(member)));
        prop_assert_eq!(range.earliest, range.latest);
        let started = started_at(&mut world, id, length);
        prop_assert_eq!(range.latest, started);
    }
}
