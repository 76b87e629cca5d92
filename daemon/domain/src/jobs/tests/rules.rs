//! Single rules of the quota scheduler.

use core::time::Duration;

use super::*;
use crate::compute::Latency;
use crate::jobs::{
    IdlePolicy, JobRefusal, MOST_JOBS_OF_A_USER, MemberActivity, Overdue, ProjectRefusal, ServiceSpec, Wait,
    permit_another,
};

const DAY: Duration = Duration::from_secs(86_400);

fn wait(world: &World, job: JobId) -> Option<Wait> {
    world.scheduler.wait(job)
}

#[test]
fn highest_level_is_preempted_first() {
    let mut world = World::new(islands(1, 8), &[("a", "2"), ("b", "2"), ("c", "2"), ("d", "2")]);
    world.submit("a", "a-1", "3", JobKind::Training);
    world.submit("b", "b-1", "2", JobKind::Training);
    world.submit("b", "b-2", "1", JobKind::Training);
    world.submit("b", "b-3", "1", JobKind::Training);
    world.submit("a", "a-2", "1", JobKind::Training);
    world.submit("d", "d-1", "1", JobKind::Training);
    assert_eq!((world.stopped.clone(), world.used("d")), (vec!["b-3".to_string()], "1".into()));
}

#[test]
fn lower_level_preempts_higher_level() {
    let mut world = World::new(islands(1, 8), &[("a", "2"), ("b", "2")]);
    for name in ["a-1", "a-2", "a-3", "a-4", "a-5", "a-6", "a-7", "a-8"] {
        world.submit("a", name, "1", JobKind::Training);
    }
    for name in ["b-1", "b-2", "b-3", "b-4", "b-5"] {
        world.submit("b", name, "1", JobKind::Training);
    }
    assert_eq!((world.used("a"), world.used("b")), ("4".into(), "4".into()));
    assert_eq!(world.queued("b").len(), 1);
}

#[test]
fn weight_divides_surplus_not_quota() {
    let mut world = World::new(islands(1, 8), &[("a", "1")]);
    let weighted = |name, weight: &str| Project { weight: weight.parse().ok(), ..project(name, "1") };
    world.scheduler.set_project(weighted("b", "3"), false).unwrap();
    world.scheduler.set_project(weighted("c", "0"), false).unwrap();
    for at in 0..8 {
        for name in ["a", "b", "c"] {
            world.submit(name, &std::format!("{name}-{at}"), "1", JobKind::Training);
        }
    }
    assert_eq!([world.used("a"), world.used("b"), world.used("c")], ["3", "4", "1"].map(String::from));
    let second = world.scheduler.find(&"c".parse().unwrap(), &"c-1".parse().unwrap()).unwrap();
    assert!(matches!(wait(&world, second), Some(Wait::NoWeight { .. })));
}

#[test]
fn interactive_job_displaces_own_training() {
    let mut world = World::new(islands(1, 4), &[("a", "2"), ("b", "2")]);
    world.submit("a", "a-1", "1", JobKind::Training);
    world.submit("a", "a-2", "1", JobKind::Training);
    world.submit("b", "b-1", "2", JobKind::Training);
    world.submit("a", "shell", "1", JobKind::Interactive);
    assert_eq!(world.stopped, ["a-2"]);
    assert_eq!((world.used("a"), world.used("b")), ("2".into(), "2".into()));
}

#[test]
fn own_training_stops_only_as_needed() {
    let mut world = World::new(islands(2, 3), &[("b", "3.2")]);
    let weighted =
        |name, quota, weight: &str| Project { weight: weight.parse().ok(), ..project(name, quota) };
    world.scheduler.set_project(weighted("a", "0.8", "2"), false).unwrap();
    world.scheduler.set_project(weighted("c", "2", "3"), false).unwrap();
    for (project, name, gpus) in
        [("a", "a-1", "0.2"), ("c", "c-1", "0.2"), ("a", "a-2", "3"), ("b", "b-1", "1"), ("c", "c-2", "1")]
    {
        world.submit(project, name, gpus, JobKind::Training);
    }
    world.submit("b", "shell", "0.5", JobKind::Interactive);
    assert_eq!(world.stopped.len(), 0);
    world.submit("c", "notebook", "2", JobKind::Interactive);
    assert_eq!(
        world.stopped,
        ["a-2"],
        "with c-1 gone c has less for its weight than a without a-2; nothing takes its GPU"
    );
}

#[test]
fn victim_stays_if_the_claim_on_its_gpus_is_lost_in_the_same_decision() {
    let mut world = World::new(islands(1, 4), &[("a", "2"), ("b", "2")]);
    for (name, gpus) in [("a-1", "1"), ("ends", "1"), ("borrows", "2"), ("a-2", "1")] {
        world.submit("a", name, gpus, JobKind::Training);
    }
    world.submit("b", "wide", "3", JobKind::Training);
    // For `wide` what borrows would have to go; without it a-2 is within the quota, and takes the third GPU first.
    world.delete("a", &["ends"]);
    assert_eq!((world.stopped.len(), world.used("a"), world.used("b")), (0, "4".into(), "0".into()));
    assert_eq!(
        (world.queued("a"), world.queued("b")),
        (BTreeSet::new(), BTreeSet::from(["wide".to_string()]))
    );
}

#[test]
fn only_preemptible_interactive_jobs_borrow() {
    let mut world = World::new(islands(1, 4), &[("a", "1"), ("b", "3")]);
    world.submit("a", "shell-1", "1", JobKind::Interactive);
    let second = world.submit("a", "shell-2", "0.5", JobKind::Interactive);
    let quota = MilliGpus::ONE;
    assert_eq!(wait(&world, second), Some(Wait::NonPreemptibleQuota { non_preemptible: quota, quota }));
    world.submit_spec(JobSpec { preemptible: true, ..spec("a", "shell-3", "1", JobKind::Interactive) });
    assert_eq!(world.used("a"), "2");
    world.submit("b", "b-1", "3", JobKind::Training);
    assert_eq!((world.stopped.clone(), world.used("b")), (vec!["shell-3".to_string()], "3".into()));
}

#[test]
fn smallest_sufficient_set_is_preempted() {
    let mut world = World::new(islands(1, 4), &[("a", "0.5"), ("b", "3.5")]);
    for (name, gpus) in [("a-1", "0.5"), ("a-2", "2"), ("a-3", "0.3"), ("a-4", "1")] {
        world.submit("a", name, gpus, JobKind::Training);
    }
    world.submit("b", "b-1", "0.4", JobKind::Training);
    assert_eq!(world.stopped, ["a-3"]);
    world.submit("b", "b-2", "1", JobKind::Training);
    assert_eq!(world.stopped[1..], ["a-4"]);
}

#[test]
fn victim_project_falls_below_quota_only_without_alternative() {
    let mut world = World::new(islands(1, 8), &[("a", "2"), ("b", "2"), ("c", "4")]);
    world.submit("a", "a-1", "4", JobKind::Training);
    world.submit("b", "b-1", "2", JobKind::Training);
    world.submit("b", "b-2", "2", JobKind::Training);
    world.submit("c", "c-1", "2", JobKind::Training);
    assert_eq!(world.stopped, ["b-2"]);
    world.submit("c", "c-2", "2", JobKind::Training);
    assert_eq!(world.stopped[1..], ["a-1"]);
    assert_eq!(world.used("c"), "4");
}

#[test]
fn claim_starts_once_its_gpus_are_empty() {
    let mut world = World::new(islands(1, 2), &[("a", "1"), ("b", "1")]);
    world.submit("a", "a-1", "2", JobKind::Training);
    world.slow = true;
    let heir = world.submit("b", "b-1", "1", JobKind::Training);
    assert!(matches!(wait(&world, heir), Some(Wait::Leaving(holders)) if holders.len() == 1));
    assert_eq!((world.used("a"), world.used("b")), ("0".into(), "1".into()));
    let gone = MemberId { job: JobId(0), index: 0 };
    assert!(!world.scheduler.member_exited(gone, Exit::Requeued));
    world.settle();
    assert_eq!(wait(&world, heir), None);
    assert_eq!(world.queued("a").len(), 1, "both GPUs would be needed again");
}

#[test]
fn deleted_claim_passes_to_the_next_job() {
    let mut world = World::new(islands(1, 2), &[("a", "1"), ("b", "1")]);
    world.submit("a", "a-1", "1", JobKind::Training);
    world.submit("a", "a-2", "1", JobKind::Training);
    world.slow = true;
    let heir = world.submit("b", "b-1", "1", JobKind::Training);
    assert_eq!(world.scheduler.delete(heir), []);
    world.settle();
    world.scheduler.member_exited(MemberId { job: JobId(1), index: 0 }, Exit::Requeued);
    world.settle();
    assert_eq!((world.used("a"), world.queued("a").len()), ("2".into(), 0));
}

#[test]
fn blocked_job_within_quota_reserves_emptying_gpus() {
    let mut world = World::new(islands(1, 2), &[("a", "1"), ("b", "1")]);
    world.submit("a", "a-1", "0.6", JobKind::Interactive);
    world.submit("b", "b-1", "0.6", JobKind::Interactive);
    world.submit("a", "a-2", "0.4", JobKind::Interactive);
    world.delete("b", &["b-1"]);
    world.submit("a", "a-3", "0.9", JobKind::Training);
    world.delete("a", &["a-1"]);
    assert_eq!(world.used("a"), "1.3");
    let blocked = world.submit("b", "b-2", "1", JobKind::Training);
    assert_eq!(wait(&world, blocked), None, "a-3 borrowed");
    assert_eq!(world.stopped, ["a-3"]);
}

#[test]
fn parallelism_limits_members_until_all_completed() {
    let mut world = World::new(islands(1, 8), &[("a", "8")]);
    let four = NonZeroU32::new(4).unwrap();
    let two = NonZeroU32::new(2).unwrap();
    let sweep = world.submit_spec(JobSpec {
        parallelism: two,
        completions: four,
        ..spec("a", "sweep", "2", JobKind::Training)
    });
    let mut seen = BTreeSet::new();
    while let Some((member, _)) = world.running().first().cloned() {
        assert!(world.running().len() <= 2);
        seen.insert(member.index);
        assert_eq!(world.scheduler.member_exited(member, Exit::Completed), seen.len() == 4);
        world.settle();
    }
    assert_eq!(seen, BTreeSet::from([0, 1, 2, 3]));
    assert!(!world.scheduler.jobs().contains_key(&sweep));
}

#[test]
fn suspended_job_stops_and_restarts_when_resumed() {
    let mut world = World::new(islands(1, 1), &[("a", "1")]);
    let job = world.submit("a", "a-1", "1", JobKind::Training);
    let leaving = world.scheduler.suspend(job, true);
    assert_eq!(leaving.len(), 1);
    world.scheduler.member_exited(leaving[0], Exit::Requeued);
    world.settle();
    assert_eq!((world.used("a"), wait(&world, job)), ("0".into(), Some(Wait::Suspended)));
    world.scheduler.suspend(job, false);
    world.settle();
    assert_eq!((world.used("a"), wait(&world, job)), ("1".into(), None));
}

#[test]
fn priority_orders_the_projects_own_queue() {
    let mut world = World::new(islands(1, 1), &[("a", "0.5"), ("b", "0.5")]);
    world.submit("a", "first", "1", JobKind::Training);
    let low = world.submit("a", "low", "1", JobKind::Training);
    let urgent = JobSpec { priority: Priority::new(5), ..spec("a", "high", "1", JobKind::Training) };
    let high = world.submit_spec(urgent);
    assert_eq!(world.stopped.len(), 0, "a running job is not stopped for one of its own project");
    assert_eq!(wait(&world, low), Some(Wait::Behind("high".parse().unwrap())));
    world.delete("a", &["first"]);
    assert_eq!((wait(&world, high), world.queued("a").len()), (None, 1));
}

#[test]
fn affinity_restricts_gpus() {
    let mut world = World::new(islands(1, 4), &[("b", "2")]);
    let mut a = project("a", "2");
    a.affinity.insert(JobKind::Training, BTreeSet::from([2, 3]));
    world.scheduler.set_project(a, false).unwrap();
    world.submit("a", "a-1", "1", JobKind::Training);
    world.submit("a", "a-2", "0.5", JobKind::Interactive);
    assert_eq!(world.gpus_of("a", &["a-1"]), BTreeSet::from([2]));
    assert_eq!(world.gpus_of("a", &["a-2"]), BTreeSet::from([0]));
    let refused = world.scheduler.submit(spec("a", "a-3", "3", JobKind::Training)).unwrap_err();
    assert_eq!(refused, JobRefusal::NeverFits { size: size("3"), most: 2 });
}

#[test]
fn outside_use_displaces_claims() {
    let mut world = World::new(islands(1, 2), &[("a", "1"), ("b", "1")]);
    let uuid = GpuUuid::from_bytes([1; 16]);
    world.submit("a", "a-1", "2", JobKind::Training);
    world.slow = true;
    let heir = world.submit("b", "b-1", "1", JobKind::Training);
    for gpu in [0, 1] {
        world.scheduler.set_outside(GpuUuid::from_bytes([gpu; 16]), MilliGpus::new(1), vec![]);
    }
    world.scheduler.member_exited(MemberId { job: JobId(0), index: 0 }, Exit::Requeued);
    world.settle();
    assert_eq!(world.used("b"), "0");
    assert_eq!(wait(&world, heir), Some(Wait::Emptying { gpus: vec![0] }));
    world.scheduler.set_outside(uuid, MilliGpus::ZERO, vec![]);
    world.settle();
    assert_eq!((world.used("b"), wait(&world, heir)), ("1".into(), None));
}

#[test]
fn impossible_jobs_are_rejected_at_submission() {
    let mut world = World::new(islands(2, 8), &[("a", "4")]);
    let refusal = |world: &mut World, spec| world.scheduler.submit(spec).unwrap_err().to_string();
    for (spec, said) in [
        (spec("x", "j", "1", JobKind::Training), "no project x"),
        (spec("a", "j", "9", JobKind::Training), "at most 8"),
        (spec("a", "j", "5", JobKind::Interactive), "quota is 4"),
    ] {
        let refused = refusal(&mut world, spec);
        assert!(refused.contains(said), "{refused}");
    }
    world.submit("a", "j", "1", JobKind::Training);
    let refused = refusal(&mut world, spec("a", "j", "1", JobKind::Training));
    assert!(refused.contains("exists"), "{refused}");
    let too_much = world.scheduler.set_project(project("b", "12.001"), false).unwrap_err();
    assert!(matches!(too_much, ProjectRefusal::TooMuch { .. }), "{too_much}");
    world.scheduler.set_project(project("b", "12.001"), true).unwrap();
    let in_use = world.scheduler.remove_project(&"a".parse().unwrap()).unwrap_err();
    assert_eq!(in_use, ProjectRefusal::InUse { name: "a".parse().unwrap(), jobs: 1 });
    world.scheduler.remove_project(&"b".parse().unwrap()).unwrap();
    assert!(world.scheduler.remove_project(&"b".parse().unwrap()).is_err());
}

#[test]
fn interactive_limits_apply_to_runtime_and_idleness() {
    let limits = Project { interactive_limit: Some(DAY), idle_limit: Some(DAY / 24), ..project("a", "1") };
    let did = |running, idle| MemberActivity { running, idle, counts_as_idle: true };
    let [shell, training] = [JobKind::Interactive, JobKind::Training].map(|kind| spec("a", "job", "1", kind));
    let service = JobSpec { service: Some(ServiceSpec::default()), ..shell.clone() };
    let overdue = |spec, did| limits.overdue(spec, None, did);
    assert_eq!(overdue(&shell, did(DAY / 2, DAY / 48)), None);
    assert_eq!(overdue(&shell, did(DAY, DAY / 48)), Some(Overdue::InteractiveLimit(DAY)));
    assert_eq!(overdue(&shell, did(DAY / 2, DAY / 24)), Some(Overdue::IdleLimit(DAY / 24)));
    assert_eq!([&training, &service].map(|spec| overdue(spec, did(DAY * 9, DAY * 9))), [None; 2]);
    let by_owner = limits.overdue(&service, Some(DAY), did(DAY, Duration::ZERO));
    assert_eq!(by_owner, Some(Overdue::MaxRuntime(DAY)));
    let ends = Project { idle_policy: IdlePolicy::End, ..limits };
    for spec in [&training, &service] {
        let idle = |did| ends.overdue(spec, None, did);
        assert_eq!(idle(did(DAY, DAY / 3)), Some(Overdue::Idle(DAY / 3)));
        assert_eq!(idle(MemberActivity { counts_as_idle: false, ..did(DAY, DAY / 3) }), None);
    }
}

#[test]
fn idle_members_are_preempted_before_busy_ones() {
    let preempted = |idle: &[usize]| {
        let mut world = World::new(islands(1, 8), &[("a", "2"), ("b", "2")]);
        let sizes = [("a-1", "2"), ("a-2", "3"), ("a-3", "1"), ("a-4", "2")];
        let jobs = sizes.map(|(name, gpus)| world.submit("a", name, gpus, JobKind::Training));
        let member = |at: &usize| MemberId { job: jobs[*at], index: 0 };
        world.scheduler.set_idle(idle.iter().map(member).collect());
        world.submit("b", "b-1", "1", JobKind::Training);
        world.stopped
    };
    // The smallest that suffices; an idle one, though it is larger, or safe by its age; the smaller of two idle ones.
    assert_eq!(preempted(&[]), ["a-3"]);
    assert_eq!(preempted(&[1]), ["a-2"]);
    assert_eq!(preempted(&[0]), ["a-1"]);
    assert_eq!(preempted(&[1, 3]), ["a-4"]);
}

#[test]
fn idle_member_is_found_among_many_busy_ones() {
    let mut world = World::new(islands(1, 1), &[("a", "0.1"), ("b", "0.9")]);
    let big = world.submit("a", "big", "0.5", JobKind::Training);
    for at in 0..16 {
        world.submit("a", &std::format!("small-{at}"), "0.03", JobKind::Training);
    }
    world.scheduler.set_idle([MemberId { job: big, index: 0 }].into());
    world.submit("b", "due", "0.4", JobKind::Training);
    assert_eq!(world.stopped, ["big"]);
}

#[test]
fn decision_cost_is_independent_of_queue_length() {
    let looked_at = |behind: usize| {
        let mut world = World::new(islands(1, 1), &[("a", "0.5"), ("b", "0.5")]);
        for (project, at) in
            ["a", "b"].into_iter().flat_map(|project| (0..behind).map(move |at| (project, at)))
        {
            for gpus in ["0.3", "0.5", "1"] {
                let name = std::format!("{project}-{at}-{}", gpus.replace('.', ""));
                world.submit(project, &name, gpus, JobKind::Training);
            }
        }
        world.scheduler.guaranteed().len() + world.scheduler.surplus().len()
    };
    assert_eq!((looked_at(3), looked_at(60)), (6, 6), "three of each of two projects");
}

#[test]
fn member_count_is_limited() {
    let mut world = World::new(islands(1, 1), &[("a", "1")]);
    let members = |at_once: u32, all: u32| JobSpec {
        parallelism: NonZeroU32::new(at_once).unwrap(),
        completions: NonZeroU32::new(all).unwrap(),
        ..spec("a", "j", "1", JobKind::Training)
    };
    let most = JobSpec::MOST_MEMBERS;
    for (at_once, all) in [(1, most + 1), (most + 1, 1), (u32::MAX, u32::MAX)] {
        let refused = world.scheduler.submit(members(at_once, all)).unwrap_err();
        assert_eq!(refused, JobRefusal::TooManyMembers(NonZeroU32::new(at_once.max(all)).unwrap()));
        assert!(refused.to_string().contains("at most 2000: submit several"), "{refused}");
    }
    world.submit_spec(members(most, most));
}

#[test]
fn job_limit_applies_to_users_not_administrators() {
    assert_eq!(permit_another(MOST_JOBS_OF_A_USER - 1, false), Ok(()));
    assert_eq!(permit_another(MOST_JOBS_OF_A_USER, true), Ok(()));
    let refused = permit_another(MOST_JOBS_OF_A_USER, false).unwrap_err().to_string();
    assert!(refused.contains("you have 2000 jobs") && refused.contains("delete some"), "{refused}");
}

#[test]
fn latency_targets_spread_over_gpus_that_can_hold_them_and_wait_for_others() {
    let mut world = World::new(islands(1, 2), &[("a", "2")]);
    let target = |millis: u32| Latency::try_from(millis * 1000).unwrap();
    let service = |name: &str, millis| JobSpec {
        latency: Some(target(millis)),
        ..spec("a", name, "0.2", JobKind::Training)
    };
    for name in ["s-0", "s-1"] {
        world.submit_spec(service(name, 3));
    }
    let gpus = |world: &World, name: &str| world.gpus_of("a", &[name]);
    assert_ne!(gpus(&world, "s-0"), gpus(&world, "s-1"), "two need 4 ms each");
    let third = world.submit_spec(service("s-2", 50));
    assert_eq!(wait(&world, third), Some(Wait::Latency(target(50))));
    assert!(Wait::Latency(target(50)).to_string().contains("latency of 50 ms"));
    world.submit("a", "plain", "0.8", JobKind::Training);
    assert_eq!(world.gpus_of("a", &["plain"]).len(), 1, "a job without a target does not wait");
    world.delete("a", &["s-1"]);
    assert_eq!(wait(&world, third), None);
    let gpu = |index: u8| GpuUuid::from_bytes([index; 16]);
    world.delete("a", &["s-0", "s-2"]);
    (0..2).for_each(|index| world.scheduler.set_outside(gpu(index), MilliGpus::ZERO, vec![target(2)]));
    let last = world.submit_spec(service("s-3", 50));
    assert_eq!(wait(&world, last), Some(Wait::Latency(target(50))), "targets of other slices count");
    world.scheduler.set_outside(gpu(1), MilliGpus::ZERO, vec![target(4)]);
    world.settle();
    assert_eq!(gpus(&world, "s-3"), BTreeSet::from([1]));
}

#[test]
fn gang_is_its_jobs_own_and_all_its_members_run_at_once() {
    let mut world = World::new(islands(1, 2), &[("a", "2")]);
    let members = |name: &str, at_once: u32, all: u32| JobSpec {
        parallelism: NonZeroU32::new(at_once).unwrap(),
        completions: NonZeroU32::new(all).unwrap(),
        gang: true,
        ..spec("a", name, "0.2", JobKind::Training)
    };
    let refused = world.scheduler.submit(members("j", 2, 3)).unwrap_err().to_string();
    assert!(refused.contains("its 3 members") && refused.contains("leave --gang out"), "{refused}");
    let ids = ["j", "k"].map(|name| world.submit_spec(members(name, 2, 2)));
    let gangs = ids.map(|id| world.scheduler.jobs()[&id].spec.gang_of(id).unwrap());
    assert_ne!(gangs[0], gangs[1]);
    let plain = JobSpec { gang: false, ..members("l", 2, 2) };
    assert_eq!(plain.gang_of(ids[0]), None);
}
