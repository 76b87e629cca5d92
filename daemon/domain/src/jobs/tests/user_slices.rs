//! Users' slices beside jobs: what is owed is had, and what is safe stays.

use proptest::prelude::*;

use super::properties::{Event, PROJECTS, SIZES, events, world};
use super::*;
use crate::jobs::pool::When;
use crate::jobs::{Holder, UserRequest, UserSlice, Wait};

#[derive(Clone, Debug)]
enum Step {
    Job(Event),
    /// A slice of this size for a project, the default one beyond the last.
    Create(usize, prop::sample::Index, &'static str),
    Resize(prop::sample::Index, &'static str),
    Delete(prop::sample::Index),
    /// A request of this size for a project that waits, the default one beyond the last.
    Request(usize, &'static str),
    /// A request is withdrawn.
    Withdraw(prop::sample::Index),
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let index = any::<prop::sample::Index>;
    let part = || prop::sample::select(&["0.2", "0.5", "0.7", "1"][..]);
    let job = events(SIZES, 2).prop_map(|events| Step::Job(events[0].clone()));
    let step = prop_oneof![
        4 => job,
        3 => (0..=PROJECTS.len(), index(), part()).prop_map(|(project, gpu, part)| Step::Create(project, gpu, part)),
        1 => (index(), part()).prop_map(|(slice, part)| Step::Resize(slice, part)),
        1 => index().prop_map(Step::Delete),
        2 => (0..=PROJECTS.len(), prop::sample::select(&["0.5", "1", "2"][..]))
            .prop_map(|(project, size)| Step::Request(project, size)),
        1 => index().prop_map(Step::Withdraw),
    ];
    prop::collection::vec(step, 1..most)
}

fn slice(name: &str, project: Option<&str>, gpus: &[GpuUuid], part: &str, at: u64) -> UserSlice {
    UserSlice {
        name: name.parse().unwrap(),
        owner_uid: 7,
        created_unix_ms: at,
        project: project.map(|name| name.parse().unwrap()),
        gpus: gpus.to_vec(),
        size: size(part),
        latency: None,
    }
}

impl World {
    fn uuids(&self) -> Vec<GpuUuid> {
        self.scheduler.pool().gpus().map(|gpu| gpu.uuid).collect()
    }

    /// Part of a GPU that a new slice may take: what the node has, less what is kept for jobs.
    fn open_part(&self, gpu: GpuUuid) -> MilliGpus {
        let index = self.scheduler.pool.index_of(gpu).unwrap();
        let kept = self.scheduler.kept().parts;
        let kept = kept.get(&gpu).map_or(MilliGpus::ZERO, |kept| MilliGpus::new(kept.get()));
        let entry = self.scheduler.pool.entry(index);
        entry.free(When::Now).plus(entry.claimed).less(kept)
    }

    /// Takes a step; returns the slice that is new or has grown.
    fn take(&mut self, at: usize, step: &Step) -> Option<UserSlice> {
        let mut grown = None;
        match step {
            Step::Job(event) => self.apply_event(at, event),
            Step::Create(project, gpu, part) => {
                let gpus = self.uuids();
                let gpu = gpus[gpu.index(gpus.len())];
                if size(part).of_each() <= self.open_part(gpu) {
                    let project = PROJECTS.get(*project).copied();
                    self.users.push(slice(&std::format!("s-{at}"), project, &[gpu], part, at as u64));
                    grown = self.users.last().cloned();
                }
            }
            Step::Resize(which, part) if !self.users.is_empty() => {
                let at = which.index(self.users.len());
                let most = self.open_part(self.users[at].gpus[0]).plus(self.users[at].size.of_each());
                // A slice of several whole GPUs is not resized.
                if self.users[at].gpus.len() == 1 && size(part).of_each() <= most {
                    let before = std::mem::replace(&mut self.users[at].size, size(part));
                    grown =
                        (self.users[at].size.of_each() > before.of_each()).then(|| self.users[at].clone());
                }
            }
            Step::Delete(which) if !self.users.is_empty() => {
                let at = which.index(self.users.len());
                self.users.swap_remove(at);
            }
            Step::Request(project, part) => self.requests.push(UserRequest {
                number: at as u64,
                project: PROJECTS.get(*project).map(|name| name.parse().unwrap()),
                size: size(part),
                latency: None,
            }),
            Step::Withdraw(which) if !self.requests.is_empty() => {
                let at = which.index(self.requests.len());
                self.requests.swap_remove(at);
            }
            Step::Resize(..) | Step::Delete(_) | Step::Withdraw(_) => {}
        }
        self.tell_of_users();
        grown
    }

    fn claimed(&self) -> BTreeSet<MemberId> {
        let claimed = self.scheduler.bindings.iter().filter(|(_, binding)| binding.phase == Phase::Claimed);
        claimed.map(|(member, _)| *member).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(10_000), ..ProptestConfig::default() })]

    #[test]
    fn no_slice_keeps_a_job_waiting_that_is_owed(mut world in world(), steps in steps(14)) {
        for (at, step) in steps.iter().enumerate() {
            world.take(at, step);
            world.settle_as_the_oracle_says();
            world.settle();
            world.check();
        }
    }

    #[test]
    fn no_slice_takes_what_a_job_has_claimed(mut world in world(), steps in steps(30)) {
        world.slow = true;
        for (at, step) in steps.iter().enumerate() {
            let before = world.claimed();
            let grown = world.take(at, step);
            world.settle();
            world.check();
            let Some(UserSlice { project, .. }) = grown else { continue };
            for member in before {
                // The slice counts against the jobs of its own project.
                let own = project.as_ref() == Some(&world.scheduler.jobs()[&member.job].spec.project);
                let is_bound = world.scheduler.bindings.contains_key(&member);
                prop_assert!(is_bound || own, "{member:?} lost its claim: {world:?}");
            }
        }
    }
}

/// A node of two islands of eight, where a user without a project has all.
fn full() -> World {
    let mut world = World::new(islands(2, 8), &[("vision", "4"), ("speech", "4")]);
    let gpus = world.uuids();
    world.users = vec![slice("all", None, &gpus, "16", 1)];
    world.scheduler.set_user_slices(world.users.clone());
    world.settle();
    world
}

#[test]
fn job_within_its_quota_gets_the_gpus_of_a_slice_beyond_its_own() {
    let mut world = full();
    world.slow = true;
    let job = world.submit("vision", "due", "4", JobKind::Training);
    let Some(Wait::Leaving(holders)) = world.scheduler.wait(job) else { panic!("{world:?}") };
    assert_eq!(holders, [Holder::Slice("all".parse().unwrap(), 7)]);
    world.users.clear();
    world.scheduler.set_user_slices(Vec::new());
    world.settle();
    assert_eq!(world.gpus_of("vision", &["due"]).len(), 4);
}

#[test]
fn waiting_request_within_its_quota_gets_what_others_borrowed() {
    let mut world = World::new(islands(1, 2), &[("vision", "1"), ("speech", "1")]);
    for name in ["one", "two"] {
        world.submit("speech", name, "1", JobKind::Training);
    }
    let request = |number, part: &str| UserRequest {
        number,
        project: Some("vision".parse().unwrap()),
        size: size(part),
        latency: None,
    };
    world.requests = vec![request(0, "1"), request(1, "0.5")];
    world.tell_of_users();
    world.settle();
    let names: Vec<_> = world.users.iter().map(|slice| slice.name.to_string()).collect();
    assert_eq!((names, world.requests.len()), (vec!["r-0".to_string()], 1), "the second would borrow");
    assert_eq!((world.used("vision"), world.used("speech")), ("1".to_string(), "1".to_string()));
    world.delete("speech", &["one"]);
    assert_eq!(world.requests.len(), 1, "one that borrows is granted by the node, where there is room");
}

#[test]
fn slice_within_the_default_project_s_rest_is_safe() {
    let mut world = World::new(islands(1, 8), &[("vision", "4")]);
    let gpus = world.uuids();
    world.users = (0..4).map(|at| slice(&std::format!("s-{at}"), None, &gpus[at..=at], "1", 1)).collect();
    world.scheduler.set_user_slices(world.users.clone());
    world.submit("vision", "four", "4", JobKind::Training);
    world.submit("vision", "more", "1", JobKind::Training);
    assert_eq!((world.users.len(), world.used("vision")), (4, "4".to_string()));
    let rest = world.scheduler.implicit_project().unwrap().quota;
    assert_eq!(rest, "4".parse().unwrap());
}

#[test]
fn job_that_borrows_ends_no_slice() {
    let mut world = full();
    world.scheduler.set_project(project("vision", "0"), true).unwrap();
    let weighed = Project { weight: Some("9".parse().unwrap()), ..project("vision", "0") };
    world.scheduler.set_project(weighed, true).unwrap();
    let job = world.submit("vision", "borrows", "1", JobKind::Training);
    assert_eq!(world.users.len(), 1);
    let Some(Wait::NothingIdle { holders, .. }) = world.scheduler.wait(job) else { panic!("{world:?}") };
    assert_eq!(holders, [Holder::Slice("all".parse().unwrap(), 7)]);
}

#[test]
fn interactive_job_ends_no_slice_of_its_own_project() {
    let mut world = World::new(islands(1, 2), &[("vision", "2")]);
    let gpus = world.uuids();
    world.users =
        (0..2).map(|at| slice(&std::format!("s-{at}"), Some("vision"), &gpus[at..=at], "1", 1)).collect();
    world.scheduler.set_user_slices(world.users.clone());
    world.submit("vision", "book", "1", JobKind::Interactive);
    assert_eq!((world.users.len(), world.queued("vision").len()), (2, 1));
}

#[test]
fn slices_of_a_deleted_project_count_for_the_default_one() {
    let mut world = World::new(islands(1, 2), &[("vision", "2"), ("speech", "0")]);
    let gpus = world.uuids();
    world.users = vec![slice("s", Some("vision"), &gpus[..1], "1", 1)];
    world.scheduler.set_user_slices(world.users.clone());
    assert_eq!(world.used("vision"), "1");
    world.scheduler.remove_project(&"vision".parse().unwrap()).unwrap();
    world.scheduler.set_user_slices(world.users.clone());
    assert_eq!((world.used("vision"), world.used("default")), ("0".to_string(), "1".to_string()));
    let refusal = world.scheduler.remove_project(&"default".parse().unwrap()).unwrap_err().to_string();
    assert!(refusal.contains("there by itself") && refusal.contains("project create default"), "{refusal}");
    world.scheduler.set_project(project("default", "0.5"), false).unwrap();
    assert_eq!(world.scheduler.projects().count(), 2);
    assert!(world.scheduler.implicit_project().is_none());
    world.scheduler.remove_project(&"default".parse().unwrap()).unwrap();
    world.scheduler.set_user_slices(world.users.clone());
    assert_eq!(world.used("default"), "1");
}
