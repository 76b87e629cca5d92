//! Gangs: all members of one run, or none.

use proptest::prelude::*;

use super::properties::{Event, PROJECTS, SIZES, can_run, events, world};
use super::*;
use crate::cordon::Cordon;
use crate::jobs::{Holder, JobRefusal, Wait};

#[derive(Clone, Debug)]
enum Step {
    Job(Event),
    Gang {
        project: usize,
        gpus: &'static str,
        members: u32,
        kind: JobKind,
        preemptible: bool,
    },
    Cordon(prop::sample::Index, bool),
    /// A running member exits, and has to start again.
    Fail(prop::sample::Index),
    /// The start of a member fails.
    Refuse(prop::sample::Index),
    /// A member that returns stays parked.
    StayAway(prop::sample::Index),
    /// A member that is leaving cannot be parked, and exits.
    Exit(prop::sample::Index),
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let index = any::<prop::sample::Index>;
    let kind = prop_oneof![3 => Just(JobKind::Training), 1 => Just(JobKind::Interactive)];
    let size = prop::sample::select(&["0.3", "0.5", "0.6", "1", "1", "2"][..]);
    let gang = (0..PROJECTS.len(), size, 2u32..=5, kind, any::<bool>()).prop_map(
        |(project, gpus, members, kind, preemptible)| Step::Gang {
            project,
            gpus,
            members,
            kind,
            preemptible,
        },
    );
    let step = prop_oneof![
        5 => events(SIZES, 2).prop_map(|events| Step::Job(events[0].clone())),
        4 => gang,
        2 => (index(), any::<bool>()).prop_map(|(gpu, cordoned)| Step::Cordon(gpu, cordoned)),
        1 => index().prop_map(Step::Fail),
        1 => index().prop_map(Step::Refuse),
        1 => index().prop_map(Step::StayAway),
        1 => index().prop_map(Step::Exit),
    ];
    prop::collection::vec(step, 1..most)
}

fn cordon() -> Cordon {
    Cordon {
        by_uid: 0,
        since_unix_ms: 0,
        reason: "fan is loud".parse().ok(),
        told: "cordoned by root since noon: fan is loud".into(),
    }
}

fn gang(project: &str, name: &str, gpus: &str, members: u32) -> JobSpec {
    let members = NonZeroU32::new(members).unwrap();
    let spec = spec(project, name, gpus, JobKind::Training);
    JobSpec { gang: true, parallelism: members, completions: members, ..spec }
}

fn gpu(index: u8) -> GpuUuid {
    GpuUuid::from_bytes([index; 16])
}

impl World {
    /// Checks that each gang has all of its members on GPUs, or none, as a decision leaves it.
    pub(super) fn check_gangs(&self) {
        for (id, job) in self.scheduler.jobs().iter().filter(|(_, job)| job.spec.is_gang()) {
            let bound: Vec<_> = self.scheduler.members(*id).collect();
            let phases: BTreeSet<_> = bound.iter().map(|(_, binding)| binding.phase as u8).collect();
            let has_live = bound.iter().any(|(_, binding)| binding.phase != Phase::Stopping);
            let all_there =
                job.all_pending().next().is_none() && self.scheduler.returning_or_held(*id).next().is_none();
            assert!(phases.len() <= 1, "{} is in several phases: {self:?}", job.spec.name);
            assert!(!has_live || all_there, "{} runs without a member: {self:?}", job.spec.name);
        }
    }

    fn take_step(&mut self, at: usize, step: &Step) {
        match step {
            Step::Job(event) => self.apply_event(at, event),
            Step::Gang { project, gpus, members, kind, preemptible } => {
                let spec = gang(PROJECTS[*project], &std::format!("g-{at}"), gpus, *members);
                let preemptible = *preemptible || *kind == JobKind::Training;
                // Refused where the node has no room for it.
                let _ = self.scheduler.submit(JobSpec { kind: *kind, preemptible, ..spec });
            }
            Step::Cordon(which, cordoned) => {
                let gpus: Vec<GpuUuid> = self.scheduler.pool().gpus().map(|gpu| gpu.uuid).collect();
                self.scheduler.set_cordon(gpus[which.index(gpus.len())], cordoned.then(cordon));
            }
            Step::Fail(which) => {
                let member = self.pick(which, Phase::Running);
                member.map(|member| self.scheduler.member_exited(member, Exit::Requeued));
            }
            Step::Refuse(which) => {
                let member = self.pick(which, Phase::Running);
                member.into_iter().for_each(|member| self.scheduler.member_leaves(member));
            }
            Step::StayAway(which) => {
                let member = self.pick(which, Phase::Running);
                member.into_iter().for_each(|member| self.scheduler.member_parked(member));
            }
            Step::Exit(which) => {
                let member = self.pick(which, Phase::Stopping);
                member.map(|member| self.scheduler.member_exited(member, Exit::Requeued));
            }
        }
    }

    /// A bound member of a job in this phase.
    fn pick(&self, which: &prop::sample::Index, phase: Phase) -> Option<MemberId> {
        let bound = self.scheduler.bindings.iter().filter(|(member, binding)| {
            binding.phase == phase && !member.job.is_slice() && !member.job.is_request()
        });
        let members: Vec<MemberId> = bound.map(|(member, _)| *member).collect();
        (!members.is_empty()).then(|| members[which.index(members.len())])
    }

    fn phases(&self, job: JobId) -> Vec<Phase> {
        self.scheduler.members(job).map(|(_, binding)| binding.phase).collect()
    }

    fn set_cordon(&mut self, index: u8, cordoned: bool) {
        self.scheduler.set_cordon(gpu(index), cordoned.then(cordon));
        self.settle();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(4000), ..ProptestConfig::default() })]

    #[test]
    fn gang_has_all_of_its_members_or_none_after_each_decision(
        mut world in world(),
        steps in steps(40),
        slow: bool,
        parks: bool,
    ) {
        (world.slow, world.parks) = (slow, parks);
        for (at, step) in steps.iter().enumerate() {
            world.take_step(at, step);
            let rounds = world.settle();
            prop_assert!(rounds <= 4 + 2 * world.scheduler.jobs().len(), "{rounds} rounds");
            world.check();
        }
        world.run_to_the_end();
        world.check();
        let left: Vec<_> = world.scheduler.jobs().values().filter(|job| can_run(&world.scheduler, job)).collect();
        prop_assert!(left.is_empty(), "{left:?} {world:?}");
    }

    #[test]
    fn gang_alone_on_an_empty_node_starts_unless_it_was_refused(
        mut world in world(),
        gpus in prop::sample::select(&["0.3", "0.5", "0.6", "1", "2"][..]),
        members in 2u32..=9,
    ) {
        let submitted = world.scheduler.submit(gang("a", "g", gpus, members));
        world.settle();
        if let Ok(id) = submitted {
            let job = world.scheduler.jobs()[&id].clone();
            let runs = world.phases(id).len() == members as usize;
            prop_assert_eq!(runs, can_run(&world.scheduler, &job), "{:?}", world);
        }
    }
}

#[test]
fn gang_waits_as_a_whole_for_a_cordoned_gpu_and_names_it() {
    let mut world = World::new(islands(1, 2), &[("a", "2")]);
    world.set_cordon(1, true);
    let job = world.submit_spec(gang("a", "ranks", "1", 2));
    assert_eq!(world.phases(job), []);
    let wait = world.scheduler.wait(job).unwrap();
    assert!(matches!(&wait, Wait::Cordoned(gpus) if gpus.len() == 1 && gpus[0].index == 1), "{wait:?}");
    assert_eq!(wait.to_string(), "GPU 1 is cordoned by root since noon: fan is loud");
    world.set_cordon(1, false);
    assert_eq!((world.phases(job), world.scheduler.wait(job)), (vec![Phase::Running; 2], None));
}

#[test]
fn claimed_gang_gives_up_all_claims_when_one_of_its_gpus_is_cordoned() {
    let mut world = World::new(islands(1, 2), &[("a", "2"), ("b", "0")]);
    let weighted = Project { weight: "1".parse().ok(), ..project("b", "0") };
    world.scheduler.set_project(weighted, false).unwrap();
    let borrower = world.submit("b", "borrows", "1", JobKind::Training);
    world.slow = true;
    let job = world.submit_spec(gang("a", "ranks", "1", 2));
    assert_eq!(world.phases(job), [Phase::Claimed; 2], "the empty GPU is not used alone");
    world.set_cordon(1, true);
    assert_eq!(world.phases(job), []);
    world.set_cordon(1, false);
    assert_eq!(world.phases(job), [Phase::Claimed; 2]);
    world.scheduler.member_exited(MemberId { job: borrower, index: 0 }, Exit::Requeued);
    world.settle();
    assert_eq!(world.phases(job), [Phase::Running; 2]);
}

#[test]
fn gang_is_preempted_and_returns_as_a_whole() {
    let mut world = World::new(islands(1, 4), &[("a", "0"), ("b", "4")]);
    world.parks = true;
    let weighted = Project { weight: "1".parse().ok(), ..project("a", "0") };
    world.scheduler.set_project(weighted, false).unwrap();
    let job = world.submit_spec(gang("a", "ranks", "1", 3));
    let first = world.submit("b", "fits", "1", JobKind::Training);
    assert_eq!((world.phases(job).len(), world.stopped.len()), (3, 0));
    let taker = world.submit("b", "takes", "1", JobKind::Training);
    assert_eq!((world.phases(job), world.scheduler.parked().count()), (vec![], 3));
    // The GPU that never was the gang's empties first.
    world.scheduler.member_exited(MemberId { job: first, index: 0 }, Exit::Completed);
    world.settle();
    let wait = world.scheduler.wait(job).unwrap();
    assert!(
        matches!(&wait, Wait::Parked { gpus, holders } if gpus.len() == 3 && holders.len() == 1),
        "{wait:?}"
    );
    assert_eq!(world.unparked, [""; 0]);
    world.scheduler.member_exited(MemberId { job: taker, index: 0 }, Exit::Completed);
    world.settle();
    assert_eq!((world.unparked.len(), world.phases(job)), (3, vec![Phase::Running; 3]));
}

#[test]
fn gang_within_its_quota_is_not_preempted_for_a_member_beyond_it() {
    let mut world = World::new(islands(1, 4), &[("a", "2"), ("b", "2")]);
    let within = world.submit_spec(gang("a", "within", "1", 2));
    let beyond = world.submit_spec(gang("a", "beyond", "1", 2));
    world.submit("b", "due", "1", JobKind::Training);
    assert_eq!((world.phases(within).len(), world.phases(beyond).len()), (2, 0));
    assert_eq!(world.stopped, ["beyond", "beyond"]);
}

#[test]
fn lost_member_has_its_mates_start_over_with_it() {
    let mut world = World::new(islands(1, 3), &[("a", "3")]);
    world.slow = true;
    let job = world.submit_spec(gang("a", "ranks", "1", 3));
    let member = |index| MemberId { job, index };
    world.scheduler.member_exited(member(1), Exit::Requeued);
    world.settle();
    assert_eq!((world.phases(job), world.recalled.len()), (vec![Phase::Stopping; 2], 2));
    assert_eq!(world.scheduler.wait(job), Some(Wait::Regrouping(2)));
    assert!(Wait::Regrouping(2).to_string().contains("once 2 of them have left"));
    world.scheduler.member_exited(member(0), Exit::Requeued);
    world.settle();
    assert_eq!(world.phases(job), [Phase::Stopping]);
    world.scheduler.member_exited(member(2), Exit::Requeued);
    world.settle();
    assert_eq!(world.phases(job), [Phase::Running; 3]);
    world.scheduler.member_exited(member(0), Exit::Completed);
    world.settle();
    assert_eq!((world.phases(job).len(), world.recalled.len()), (2, 2), "one that succeeded is not missed");
}

#[test]
fn mates_of_a_member_that_could_not_be_parked_start_over() {
    let mut world = World::new(islands(1, 2), &[("a", "2")]);
    (world.slow, world.parks) = (true, true);
    let job = world.submit_spec(gang("a", "ranks", "1", 2));
    let [one, other] = [0, 1].map(|index| MemberId { job, index });
    world.scheduler.suspend(job, true);
    world.scheduler.member_parked(one);
    world.scheduler.member_exited(other, Exit::Requeued);
    world.settle();
    assert_eq!((world.recalled.len(), world.scheduler.parked().count()), (1, 0));
    world.scheduler.suspend(job, false);
    world.settle();
    assert_eq!((world.phases(job), world.unparked.len()), (vec![Phase::Running; 2], 0));
}

#[test]
fn mates_of_a_member_that_did_not_return_are_parked_again() {
    let mut world = World::new(islands(1, 2), &[("a", "2")]);
    world.parks = true;
    let job = world.submit_spec(gang("a", "ranks", "1", 2));
    for member in world.scheduler.suspend(job, true) {
        world.scheduler.member_parked(member);
    }
    world.scheduler.suspend(job, false);
    world.settle();
    assert_eq!((world.phases(job), world.unparked.len()), (vec![Phase::Running; 2], 2));
    world.scheduler.member_parked(MemberId { job, index: 1 });
    world.settle();
    assert_eq!((world.recalled.len(), world.unparked.len()), (1, 4), "both left, and both returned");
    assert_eq!(world.phases(job), [Phase::Running; 2]);
}

#[test]
fn parked_gang_starts_elsewhere_only_as_a_whole() {
    let mut world = World::new(islands(1, 4), &[("a", "2"), ("b", "2")]);
    world.parks = true;
    let job = world.submit_spec(gang("a", "ranks", "1", 2));
    for member in world.scheduler.suspend(job, true) {
        world.scheduler.member_parked(member);
    }
    let others = [0, 1].map(|at| world.submit("b", &std::format!("b-{at}"), "1", JobKind::Training));
    world.scheduler.set_outside(gpu(3), MilliGpus::ONE, Vec::new());
    world.scheduler.suspend(job, false);
    world.settle();
    let member = MemberId { job, index: 1 };
    assert!(world.scheduler.is_parked(member) && !world.scheduler.starts_elsewhere(member));
    world.scheduler.set_outside(gpu(3), MilliGpus::ZERO, Vec::new());
    assert!(world.scheduler.starts_elsewhere(member));
    assert!(
        matches!(world.scheduler.wait(job), Some(Wait::Parked { holders, .. }) if holders.len() == others.len())
    );
}

#[test]
fn gang_beyond_the_node_is_refused() {
    let mut world = World::new(islands(2, 3), &[("a", "4")]);
    let mut refused = |spec: JobSpec| world.scheduler.submit(spec).unwrap_err();
    assert!(
        matches!(refused(gang("a", "j", "2", 3)), JobRefusal::GangNeverFits { most: 2, .. }),
        "2 of each 3"
    );
    assert!(matches!(refused(gang("a", "j", "0.6", 7)), JobRefusal::GangNeverFits { most: 6, .. }));
    let said = refused(gang("a", "j", "1", 7)).to_string();
    assert!(
        said.contains("its 7 members start together") && said.contains("room for 6 of 1 GPUs each"),
        "{said}"
    );
    let interactive = JobSpec { kind: JobKind::Interactive, preemptible: false, ..gang("a", "j", "1", 5) };
    assert!(refused(interactive).to_string().contains("takes 5 GPUs"));
    world.submit_spec(gang("a", "j", "0.5", 12));
    assert_eq!(world.used("a"), "6");
}

#[test]
fn reason_is_the_quota_the_holders_or_the_cordon_whichever_binds() {
    let mut world = World::new(islands(1, 2), &[("a", "1"), ("b", "1")]);
    let none = Project { weight: "0".parse().ok(), ..project("a", "1") };
    world.scheduler.set_project(none, false).unwrap();
    world.set_cordon(0, true);
    let beyond = world.submit_spec(gang("a", "beyond", "1", 2));
    assert_eq!(
        world.scheduler.wait(beyond),
        Some(Wait::NoWeight { quota: MilliGpus::ONE }),
        "not the cordon"
    );
    world.submit("b", "holds", "1", JobKind::Interactive);
    let due = world.submit("a", "due", "1", JobKind::Training);
    assert!(matches!(world.scheduler.wait(due), Some(Wait::Cordoned(gpus)) if gpus[0].index == 0));
    world.delete("a", &["due"]);
    let due = world.submit_spec(JobSpec { preemptible: true, ..gang("a", "halves", "0.5", 2) });
    assert!(matches!(world.scheduler.wait(due), Some(Wait::Cordoned(_))), "{world:?}");
    world.set_cordon(0, false);
    assert_eq!(world.phases(due), [Phase::Running; 2]);
    let holder = Holder::Job("b".parse().unwrap(), "holds".parse().unwrap());
    let more = Project { weight: "1".parse().ok(), ..project("a", "1") };
    world.scheduler.set_project(more, false).unwrap();
    world.settle();
    let wait = world.scheduler.wait(beyond).unwrap();
    assert!(matches!(&wait, Wait::NothingIdle { holders, .. } if *holders == [holder]), "{wait:?}");
    assert!(wait.to_string().contains("none is idle to borrow; most is held by job b/holds"), "{wait}");
}

#[test]
fn parked_job_names_the_cordon_of_its_own_gpu() {
    let mut world = World::new(islands(1, 2), &[("a", "1")]);
    world.parks = true;
    let job = world.submit("a", "one", "1", JobKind::Training);
    let home = *world.gpus_of("a", &["one"]).first().unwrap();
    for member in world.scheduler.suspend(job, true) {
        world.scheduler.member_parked(member);
    }
    world.set_cordon(home as u8, true);
    world.scheduler.suspend(job, false);
    world.settle();
    let wait = world.scheduler.wait(job);
    assert!(matches!(&wait, Some(Wait::Cordoned(gpus)) if gpus[0].index == home), "{wait:?}");
    assert_eq!(world.scheduler.reserved, None, "a cordoned GPU is not kept for it");
}

#[test]
fn gang_that_an_earlier_release_started_in_part_starts_over() {
    let mut world = World::new(islands(1, 2), &[("a", "2")]);
    let job = world.submit_spec(gang("a", "ranks", "1", 2));
    world.scheduler.release(MemberId { job, index: 1 });
    world.scheduler.jobs.get_mut(&job).unwrap().again.insert(1);
    world.scheduler.update_queue(job);
    world.settle();
    assert_eq!((world.recalled.len(), world.phases(job)), (1, vec![Phase::Running; 2]));
}
