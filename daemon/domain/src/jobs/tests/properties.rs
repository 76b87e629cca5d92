//! Invariants under any order of submissions, exits and deletions.

use proptest::prelude::*;

use super::*;
use crate::compute::Latency;
use crate::jobs::project::ProjectAccount;

pub(super) const PROJECTS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
pub(super) enum Event {
    Submit {
        project: usize,
        gpus: &'static str,
        kind: JobKind,
        preemptible: bool,
        priority: i8,
        members: u32,
        at_once: u32,
        latency: Option<Latency>,
    },
    End(prop::sample::Index),
    Delete(prop::sample::Index),
    Suspend(prop::sample::Index, bool),
    Outside(prop::sample::Index, u32),
    /// A stopping member exits.
    Leave(prop::sample::Index),
}

fn submit(sizes: &'static [&'static str], millis: &'static [u32]) -> impl Strategy<Value = Event> {
    let kind = prop_oneof![3 => Just(JobKind::Training), 1 => Just(JobKind::Interactive)];
    let members = prop_oneof![4 => Just((1, 1)), 1 => (1u32..=3, 1u32..=2)];
    let size = (prop::sample::select(sizes), prop::sample::select(millis));
    (0..PROJECTS.len(), size, kind, any::<bool>(), -1i8..=1, members).prop_map(
        |(project, (gpus, millis), kind, preemptible, priority, (members, at_once))| {
            let latency = Latency::try_from(millis * 1000).ok();
            let preemptible = preemptible || kind == JobKind::Training;
            Event::Submit { project, gpus, kind, preemptible, priority, members, at_once, latency }
        },
    )
}

pub(super) fn events(sizes: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<Event>> {
    events_with(sizes, &[0], most)
}

/// Events of jobs with latency targets of these lengths in milliseconds; 0 is none.
fn events_with(
    sizes: &'static [&'static str],
    millis: &'static [u32],
    most: usize,
) -> impl Strategy<Value = Vec<Event>> {
    let index = any::<prop::sample::Index>;
    let event = prop_oneof![
        6 => submit(sizes, millis),
        2 => index().prop_map(Event::End),
        1 => index().prop_map(Event::Delete),
        1 => (index(), any::<bool>()).prop_map(|(job, suspended)| Event::Suspend(job, suspended)),
        1 => (index(), prop::sample::select(vec![0u32, 0, 300, 1000])).prop_map(|(gpu, part)| Event::Outside(gpu, part)),
        2 => index().prop_map(Event::Leave),
    ];
    prop::collection::vec(event, 1..most)
}

pub(super) const SIZES: &[&str] = &["0.2", "0.3", "0.5", "0.7", "1", "1", "2", "3"];

/// A node with quotas within its capacity.
pub(super) fn world() -> impl Strategy<Value = World> {
    (1u32..=2, 2u32..=4, prop::collection::vec(1u32..=10, 3), prop::collection::vec(0u32..=4, 3)).prop_map(
        |(islands_, size, parts, weights)| {
            let (all, sum) = (islands_ * size * 1000, parts.iter().sum::<u32>());
            let mut world = World::new(islands(islands_, size), &[]);
            for ((name, part), weight) in PROJECTS.iter().zip(parts).zip(weights) {
                let quota = MilliGpus::new(all * part / sum / 100 * 100);
                let weight = (weight > 0).then(|| MilliGpus::whole(weight));
                let project = Project { quota, weight, ..project(name, "0") };
                world.scheduler.set_project(project, false).unwrap();
            }
            world
        },
    )
}

impl World {
    pub(super) fn apply_event(&mut self, at: usize, event: &Event) {
        match event {
            Event::Submit { project, gpus, kind, preemptible, priority, members, at_once, latency } => {
                let name = std::format!("j-{at}");
                let _ = self.scheduler.submit(JobSpec {
                    preemptible: *preemptible,
                    priority: Priority::new(*priority),
                    parallelism: NonZeroU32::new(*at_once).unwrap(),
                    completions: NonZeroU32::new(*members).unwrap(),
                    latency: *latency,
                    ..spec(PROJECTS[*project], &name, gpus, *kind)
                });
            }
            Event::End(which) => self.leave(which, &[Phase::Running, Phase::Stopping], Exit::Completed),
            Event::Leave(which) => self.leave(which, &[Phase::Stopping], Exit::Requeued),
            Event::Delete(which) => {
                if let Some(job) = self.any_job(which) {
                    self.delete_job(job);
                }
            }
            Event::Suspend(which, suspended) => {
                let leaving = self.any_job(which).map(|job| self.scheduler.suspend(job, *suspended));
                self.after_stop(leaving);
            }
            Event::Outside(which, part) => {
                let gpus: Vec<GpuUuid> = self.scheduler.pool().gpus().map(|gpu| gpu.uuid).collect();
                self.scheduler.set_outside(gpus[which.index(gpus.len())], MilliGpus::new(*part), Vec::new());
            }
        }
    }

    fn any_job(&self, which: &prop::sample::Index) -> Option<JobId> {
        let jobs: Vec<JobId> =
            self.scheduler.jobs().keys().copied().filter(|id| !id.is_slice() && !id.is_request()).collect();
        (!jobs.is_empty()).then(|| jobs[which.index(jobs.len())])
    }

    /// Deletes a job. What is parked exits at once, as everything does unless the world is slow.
    fn delete_job(&mut self, job: JobId) {
        let leaving = self.scheduler.delete(job);
        let parked: Vec<MemberId> = self.scheduler.parked().filter(|member| member.job == job).collect();
        let leaving = leaving.into_iter().filter(|_| !self.slow).chain(parked).collect::<Vec<_>>();
        for member in leaving {
            self.scheduler.member_exited(member, Exit::Requeued);
        }
    }

    fn after_stop(&mut self, leaving: Option<Vec<MemberId>>) {
        if !self.slow {
            leaving.into_iter().flatten().for_each(|member| self.leave_gpus(member));
        }
    }

    fn leave(&mut self, which: &prop::sample::Index, phases: &[Phase], why: Exit) {
        let bindings = self.scheduler.bindings.iter().filter(|(_, binding)| phases.contains(&binding.phase));
        let members: Vec<MemberId> = bindings.map(|(member, _)| *member).collect();
        if !members.is_empty() {
            let member = members[which.index(members.len())];
            if member.job.is_request() {
                return;
            }
            if self.end_user_slice(member) {
                return;
            }
            match why {
                Exit::Requeued if !self.scheduler.jobs()[&member.job].deleted => self.leave_gpus(member),
                Exit::Requeued => drop(self.scheduler.member_exited(member, why)),
                Exit::Completed => drop(self.scheduler.member_exited(member, why)),
            }
        }
    }

    /// The books agree with the seats, and no seat is where it must not be.
    pub(super) fn check(&self) {
        for (index, gpu) in self.scheduler.pool().gpus().enumerate() {
            let sum = |phase: Phase| {
                self.sum(|binding| binding.phase == phase && binding.indices.contains(&index), false)
            };
            let entry = self.scheduler.pool.entry(index);
            assert_eq!(entry.running, sum(Phase::Running));
            assert_eq!(entry.claimed, sum(Phase::Claimed));
            assert_eq!(entry.stopping, sum(Phase::Stopping));
            let here = self.scheduler.bindings.iter().filter(|(_, binding)| binding.indices.contains(&index));
            let mut targets: Vec<Latency> =
                here.filter_map(|(member, _)| self.scheduler.jobs()[&member.job].spec.latency).collect();
            targets.sort_unstable();
            assert_eq!(
                {
                    let mut known = entry.targets.clone();
                    known.sort_unstable();
                    known
                },
                targets
            );
            let least = Latency::least_of(targets.len());
            assert!(targets.iter().all(|target| *target >= least), "GPU {} holds {targets:?}", gpu.index);
            assert!(entry.running.plus(entry.stopping) <= MilliGpus::ONE, "GPU {} holds too much", gpu.index);
            assert!(
                entry.running.plus(entry.claimed) <= MilliGpus::ONE,
                "GPU {} is promised twice",
                gpu.index
            );
        }
        for member in self.scheduler.parked() {
            let phase = self.scheduler.binding(member).map(|(phase, _)| phase);
            assert!(matches!(phase, None | Some(Phase::Claimed)), "{member:?} is parked and {phase:?}");
        }
        for (member, binding) in &self.scheduler.bindings {
            let islands: BTreeSet<usize> = binding
                .indices
                .iter()
                .map(|index| self.scheduler.pool.entry(*index).gpu.island as usize)
                .collect();
            let spec = &self.scheduler.jobs()[&member.job].spec;
            assert_eq!(
                (islands.len(), binding.indices.len()),
                (1, spec.size.gpus() as usize),
                "{}",
                spec.name
            );
        }
        for account in self.scheduler.accounts.values() {
            let own = |binding: &super::super::Binding| binding.phase != Phase::Stopping;
            let all = self.of(&account.project.name, own, false);
            let non_preemptible = self.of(&account.project.name, own, true);
            assert_eq!(
                (account.used, account.non_preemptible),
                (all, non_preemptible),
                "{}",
                account.project.name
            );
            assert!(
                non_preemptible <= account.project.quota,
                "{} has too many that last",
                account.project.name
            );
        }
    }

    fn sum(&self, which: impl Fn(&super::super::Binding) -> bool, non_preemptible: bool) -> MilliGpus {
        let bindings = self.scheduler.bindings.iter().filter(|(_, binding)| which(binding));
        let jobs = bindings.map(|(member, _)| &self.scheduler.jobs()[&member.job].spec);
        jobs.filter(|spec| !non_preemptible || spec.is_non_preemptible())
            .map(|spec| spec.size.of_each())
            .sum()
    }

    fn of(
        &self,
        project: &ProjectName,
        which: impl Fn(&super::super::Binding) -> bool,
        non_preemptible: bool,
    ) -> MilliGpus {
        let bindings = self.scheduler.bindings.iter().filter(|(_, binding)| which(binding));
        let jobs = bindings.map(|(member, _)| &self.scheduler.jobs()[&member.job].spec);
        let own =
            jobs.filter(|spec| spec.project == *project && (!non_preemptible || spec.is_non_preemptible()));
        own.map(|spec| spec.size.total()).sum()
    }

    /// The scheduler's next choice, in the oracle's terms.
    fn planned(&self) -> Option<oracle::Choice> {
        let plan = self.scheduler.plan()?;
        let job = |member: &MemberId| &self.scheduler.jobs()[&member.job].spec;
        let taken: MilliGpus = plan.victims.iter().map(|victim| job(victim).size.total()).sum();
        let (first, _) = plan.members.first()?;
        let own = &job(first).project;
        let below =
            self.scheduler.accounts.values().filter(|account| account.project.name != *own).any(|account| {
                let its = plan.victims.iter().map(job).filter(|spec| spec.project == account.project.name);
                let sum: MilliGpus = its.map(|spec| spec.size.total()).sum();
                sum > MilliGpus::ZERO && account.used.less(sum) < account.project.quota
            });
        Some((first.job, taken.get(), plan.victims.len(), below))
    }

    /// Binds one member at a time, and compares each choice with the oracle.
    pub(super) fn settle_as_the_oracle_says(&mut self) {
        loop {
            self.scheduler.drop_stale_reservation();
            assert_eq!(self.planned(), oracle::choice(&self.scheduler), "not the oracle's choice: {self:?}");
            let mut actions = Vec::new();
            if !self.scheduler.bind_next(&mut actions) {
                break;
            }
            for one in &actions {
                if let Action::Stop { member, .. } = one {
                    let spec = &self.scheduler.jobs()[&member.job].spec;
                    assert!(!spec.is_non_preemptible(), "{} was stopped", spec.name);
                }
            }
            self.apply_actions(&actions);
        }
    }

    /// Ends one member after the other until no job is left.
    pub(super) fn run_to_the_end(&mut self) {
        self.slow = false;
        let gpus: Vec<GpuUuid> = self.scheduler.pool().gpus().map(|gpu| gpu.uuid).collect();
        for gpu in gpus {
            self.scheduler.set_outside(gpu, MilliGpus::ZERO, Vec::new());
            self.scheduler.set_cordon(gpu, None);
        }
        let suspended: Vec<JobId> = self.scheduler.jobs().keys().copied().collect();
        suspended.into_iter().for_each(|job| drop(self.scheduler.suspend(job, false)));
        let stopping = |world: &Self| {
            let bindings =
                world.scheduler.bindings.iter().filter(|(_, binding)| binding.phase == Phase::Stopping);
            bindings.map(|(member, _)| *member).collect::<Vec<_>>()
        };
        stopping(self).into_iter().for_each(|member| {
            self.scheduler.member_exited(member, Exit::Requeued);
        });
        self.settle();
        while let Some((member, _)) = self.running().first().cloned() {
            self.scheduler.member_exited(member, Exit::Completed);
            self.settle();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2000), ..ProptestConfig::default() })]

    #[test]
    fn accounts_stay_consistent_and_every_job_ends(
        mut world in world(),
        events in events_with(SIZES, &[0, 0, 3, 5, 50], 40),
        slow: bool,
        parks: bool,
    ) {
        (world.slow, world.parks) = (slow, parks);
        for (at, event) in events.iter().enumerate() {
            world.apply_event(at, event);
            let rounds = world.settle();
            prop_assert!(rounds <= 2 + world.scheduler.jobs().len(), "{rounds} rounds");
            world.check();
        }
        world.run_to_the_end();
        world.check();
        let left: Vec<_> = world.scheduler.jobs().values().filter(|job| can_run(&world.scheduler, job)).collect();
        prop_assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn equal_events_give_equal_actions(world in world(), events in events(SIZES, 30)) {
        let mut twin = World { scheduler: world.scheduler.clone(), slow: false, parks: false, stopped: Vec::new(), unparked: Vec::new(), recalled: Vec::new(), users: Vec::new(), requests: Vec::new() };
        let mut world = world;
        for (at, event) in events.iter().enumerate() {
            world.apply_event(at, event);
            twin.apply_event(at, event);
            prop_assert_eq!(world.scheduler.decide(), twin.scheduler.decide());
        }
    }

    #[test]
    fn exhaustive_oracle_makes_the_same_choices(mut world in world(), events in events(SIZES, 14)) {
        for (at, event) in events.iter().enumerate() {
            world.apply_event(at, event);
            world.settle_as_the_oracle_says();
            world.settle();
            world.check();
        }
    }

    #[test]
    fn surplus_is_within_one_job_of_ideal(mut world in world(), events in events(&["1"], 60)) {
        for (at, event) in events.iter().enumerate() {
            if matches!(event, Event::Outside(..) | Event::Suspend(..)) {
                continue;
            }
            world.apply_event(at, event);
            world.settle();
            if world.scheduler.reserved.is_none() {
                is_divided(&world.scheduler)?;
            }
        }
    }
}

/// Tests if the quota or weight of a job's project permits it to start.
pub(super) fn can_run(scheduler: &QuotaScheduler, job: &crate::jobs::Job) -> bool {
    let project = scheduler.project(&job.spec.project).unwrap();
    job.spec.shape().total() <= project.quota
        || !job.spec.is_non_preemptible() && project.weight() > MilliGpus::ZERO
}

/// Checks that no project with waiting jobs is below the level of a borrower without its last job.
fn is_divided(scheduler: &QuotaScheduler) -> Result<(), TestCaseError> {
    let borrows = |name: &ProjectName| scheduler.borrowers().projects().contains(name);
    let wants = scheduler.accounts.values().filter(|account| {
        let mut shapes = account.queue.keys();
        account.project.weight() > MilliGpus::ZERO && shapes.any(|shape| !shape.non_preemptible)
    });
    for poor in wants {
        for rich in scheduler.accounts.values().filter(|rich| borrows(&rich.project.name)) {
            let without = rich.level_with(rich.used.less(MilliGpus::ONE));
            let same = poor.project.name == rich.project.name;
            prop_assert!(
                same || without <= poor.level(),
                "{} has too much beside {}",
                rich.project.name,
                poor.project.name
            );
        }
    }
    let ideal = ideal(scheduler);
    for rich in scheduler.accounts.values() {
        let (over, most) = (over(rich), ideal * f64::from(rich.project.weight().get()) + 1000.0);
        prop_assert!(over <= most + 1e-6, "{} has borrowed {over}, at most {most}", rich.project.name);
    }
    Ok(())
}

fn over(account: &ProjectAccount) -> f64 {
    f64::from(account.used.less(account.project.quota).get())
}

/// Level up to which divisible GPUs would fill all projects that want more.
fn ideal(scheduler: &QuotaScheduler) -> f64 {
    let all: f64 = scheduler.accounts.values().map(over).sum();
    let held = |level: f64| -> f64 {
        let share = |account: &ProjectAccount| {
            let mut shapes = account.queue.keys();
            let most = if shapes.any(|shape| !shape.non_preemptible) { f64::INFINITY } else { over(account) };
            most.min(level * f64::from(account.project.weight().get()))
        };
        scheduler.accounts.values().map(share).sum()
    };
    let (mut low, mut high) = (0.0, 1e3);
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        if held(middle) < all { low = middle } else { high = middle }
    }
    high
}
