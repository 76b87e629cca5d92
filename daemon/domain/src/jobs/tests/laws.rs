//! What holds on every board, whatever is submitted, ends and is deleted in whatever order.

use proptest::prelude::*;

use super::*;
use crate::jobs::project::Account;

const PROJECTS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Event {
    Submit {
        project: usize,
        gpus: &'static str,
        kind: Kind,
        preemptible: bool,
        priority: i8,
        members: u32,
        at_once: u32,
    },
    End(prop::sample::Index),
    Delete(prop::sample::Index),
    Suspend(prop::sample::Index, bool),
    Outside(prop::sample::Index, u32),
    /// One of those who were told to leave has left.
    Leave(prop::sample::Index),
}

fn submit(sizes: &'static [&'static str]) -> impl Strategy<Value = Event> {
    let kind = prop_oneof![3 => Just(Kind::Training), 1 => Just(Kind::Interactive)];
    let members = prop_oneof![4 => Just((1, 1)), 1 => (1u32..=3, 1u32..=2)];
    (0..PROJECTS.len(), prop::sample::select(sizes), kind, any::<bool>(), -1i8..=1, members).prop_map(
        |(project, gpus, kind, preemptible, priority, (members, at_once))| {
            let preemptible = preemptible || kind == Kind::Training;
            Event::Submit { project, gpus, kind, preemptible, priority, members, at_once }
        },
    )
}

fn events(sizes: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<Event>> {
    let index = any::<prop::sample::Index>;
    let event = prop_oneof![
        6 => submit(sizes),
        2 => index().prop_map(Event::End),
        1 => index().prop_map(Event::Delete),
        1 => (index(), any::<bool>()).prop_map(|(job, suspended)| Event::Suspend(job, suspended)),
        1 => (index(), prop::sample::select(vec![0u32, 0, 300, 1000])).prop_map(|(gpu, part)| Event::Outside(gpu, part)),
        2 => index().prop_map(Event::Leave),
    ];
    prop::collection::vec(event, 1..most)
}

const SIZES: &[&str] = &["0.2", "0.3", "0.5", "0.7", "1", "1", "2", "3"];

/// Quotas that the node has.
fn world() -> impl Strategy<Value = World> {
    (1u32..=2, 2u32..=4, prop::collection::vec(1u32..=10, 3), prop::collection::vec(0u32..=4, 3)).prop_map(
        |(islands_, size, parts, weights)| {
            let (all, sum) = (islands_ * size * 1000, parts.iter().sum::<u32>());
            let mut world = World::new(islands(islands_, size), &[]);
            for ((name, part), weight) in PROJECTS.iter().zip(parts).zip(weights) {
                let quota = MilliGpus::new(all * part / sum / 100 * 100);
                let weight = (weight > 0).then(|| MilliGpus::whole(weight));
                let project = Project { quota, weight, ..project(name, "0") };
                world.board.set_project(project, false).unwrap();
            }
            world
        },
    )
}

impl World {
    fn happen(&mut self, at: usize, event: &Event) {
        match event {
            Event::Submit { project, gpus, kind, preemptible, priority, members, at_once } => {
                let name = std::format!("j-{at}");
                let _ = self.board.submit(JobSpec {
                    preemptible: *preemptible,
                    priority: Priority::new(*priority),
                    parallelism: NonZeroU32::new(*at_once).unwrap(),
                    completions: NonZeroU32::new(*members).unwrap(),
                    ..spec(PROJECTS[*project], &name, gpus, *kind)
                });
            }
            Event::End(which) => self.leave(which, &[Phase::Running, Phase::Stopping], Left::Done),
            Event::Leave(which) => self.leave(which, &[Phase::Stopping], Left::Again),
            Event::Delete(which) => {
                let leaving = self.any_job(which).map(|job| self.board.delete(job));
                self.dismissed(leaving);
            }
            Event::Suspend(which, suspended) => {
                let leaving = self.any_job(which).map(|job| self.board.suspend(job, *suspended));
                self.dismissed(leaving);
            }
            Event::Outside(which, part) => {
                let gpus: Vec<GpuUuid> = self.board.floor().gpus().map(|gpu| gpu.uuid).collect();
                self.board.set_outside(gpus[which.index(gpus.len())], MilliGpus::new(*part));
            }
        }
    }

    fn any_job(&self, which: &prop::sample::Index) -> Option<JobId> {
        let jobs: Vec<JobId> = self.board.jobs().keys().copied().collect();
        (!jobs.is_empty()).then(|| jobs[which.index(jobs.len())])
    }

    fn dismissed(&mut self, leaving: Option<Vec<MemberId>>) {
        for member in leaving.into_iter().flatten().filter(|_| !self.slow) {
            self.board.left(member, Left::Again);
        }
    }

    fn leave(&mut self, which: &prop::sample::Index, phases: &[Phase], why: Left) {
        let seats = self.board.seats.iter().filter(|(_, seat)| phases.contains(&seat.phase));
        let members: Vec<MemberId> = seats.map(|(member, _)| *member).collect();
        if !members.is_empty() {
            self.board.left(members[which.index(members.len())], why);
        }
    }

    /// The books agree with the seats, and no seat is where it must not be.
    fn check(&self) {
        for (spot, gpu) in self.board.floor().gpus().enumerate() {
            let sum =
                |phase: Phase| self.sum(|seat| seat.phase == phase && seat.spots.contains(&spot), false);
            let tile = self.board.floor.tile(spot);
            assert_eq!(tile.running, sum(Phase::Running));
            assert_eq!(tile.claimed, sum(Phase::Claimed));
            assert_eq!(tile.stopping, sum(Phase::Stopping));
            assert!(tile.running.plus(tile.stopping) <= MilliGpus::ONE, "GPU {} holds too much", gpu.index);
            assert!(tile.running.plus(tile.claimed) <= MilliGpus::ONE, "GPU {} is promised twice", gpu.index);
        }
        for (member, seat) in &self.board.seats {
            let islands: BTreeSet<usize> =
                seat.spots.iter().map(|spot| self.board.floor.tile(*spot).gpu.island as usize).collect();
            let spec = &self.board.jobs()[&member.job].spec;
            assert_eq!((islands.len(), seat.spots.len()), (1, spec.size.gpus() as usize), "{}", spec.name);
        }
        for account in self.board.accounts.values() {
            let own = |seat: &super::super::Seat| seat.phase != Phase::Stopping;
            let all = self.of(&account.project.name, own, false);
            let lasting = self.of(&account.project.name, own, true);
            assert_eq!((account.used, account.lasting), (all, lasting), "{}", account.project.name);
            assert!(lasting <= account.project.quota, "{} has too many that last", account.project.name);
        }
    }

    fn sum(&self, which: impl Fn(&super::super::Seat) -> bool, lasting: bool) -> MilliGpus {
        let seats = self.board.seats.iter().filter(|(_, seat)| which(seat));
        let jobs = seats.map(|(member, _)| &self.board.jobs()[&member.job].spec);
        jobs.filter(|spec| !lasting || spec.is_lasting()).map(|spec| spec.size.of_each()).sum()
    }

    fn of(
        &self,
        project: &ProjectName,
        which: impl Fn(&super::super::Seat) -> bool,
        lasting: bool,
    ) -> MilliGpus {
        let seats = self.board.seats.iter().filter(|(_, seat)| which(seat));
        let jobs = seats.map(|(member, _)| &self.board.jobs()[&member.job].spec);
        let own = jobs.filter(|spec| spec.project == *project && (!lasting || spec.is_lasting()));
        own.map(|spec| spec.size.total()).sum()
    }

    /// What the board does next, as the oracle says it.
    fn planned(&self) -> Option<oracle::Choice> {
        let plan = self.board.plan()?;
        let job = |member: &MemberId| &self.board.jobs()[&member.job].spec;
        let taken: MilliGpus = plan.victims.iter().map(|victim| job(victim).size.total()).sum();
        let own = &job(&plan.member).project;
        let below =
            self.board.accounts.values().filter(|account| account.project.name != *own).any(|account| {
                let its = plan.victims.iter().map(job).filter(|spec| spec.project == account.project.name);
                let sum: MilliGpus = its.map(|spec| spec.size.total()).sum();
                sum > MilliGpus::ZERO && account.used.less(sum) < account.project.quota
            });
        Some((plan.member.job, taken.get(), plan.victims.len(), below))
    }

    /// Makes its moves one by one, and asks the oracle before each.
    fn settle_as_the_oracle_says(&mut self) {
        loop {
            self.board.drop_stale_hold();
            assert_eq!(self.planned(), oracle::choice(&self.board), "not the oracle's choice: {self:?}");
            let mut moves = Vec::new();
            if !self.board.step(&mut moves) {
                break;
            }
            for one in &moves {
                if let Move::Stop { member, .. } = one {
                    let spec = &self.board.jobs()[&member.job].spec;
                    assert!(!spec.is_lasting(), "{} was stopped", spec.name);
                }
            }
            self.follow(&moves);
        }
    }

    /// Ends one member after the other until no job is left.
    fn run_to_the_end(&mut self) {
        self.slow = false;
        let gpus: Vec<GpuUuid> = self.board.floor().gpus().map(|gpu| gpu.uuid).collect();
        gpus.into_iter().for_each(|gpu| self.board.set_outside(gpu, MilliGpus::ZERO));
        let suspended: Vec<JobId> = self.board.jobs().keys().copied().collect();
        suspended.into_iter().for_each(|job| drop(self.board.suspend(job, false)));
        let stopping = |world: &Self| {
            let seats = world.board.seats.iter().filter(|(_, seat)| seat.phase == Phase::Stopping);
            seats.map(|(member, _)| *member).collect::<Vec<_>>()
        };
        stopping(self).into_iter().for_each(|member| {
            self.board.left(member, Left::Again);
        });
        self.settle();
        while let Some((member, _)) = self.running().first().cloned() {
            self.board.left(member, Left::Done);
            self.settle();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2000), ..ProptestConfig::default() })]

    #[test]
    fn the_books_are_right_and_every_job_ends(mut world in world(), events in events(SIZES, 40), slow: bool) {
        world.slow = slow;
        for (at, event) in events.iter().enumerate() {
            world.happen(at, event);
            let rounds = world.settle();
            prop_assert!(rounds <= 2 + world.board.jobs().len(), "{rounds} rounds");
            world.check();
        }
        world.run_to_the_end();
        world.check();
        let left: Vec<_> = world.board.jobs().values().filter(|job| can_run(&world.board, job)).collect();
        prop_assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn the_same_happenings_make_the_same_moves(world in world(), events in events(SIZES, 30)) {
        let mut twin = World { board: world.board.clone(), slow: false, stopped: Vec::new() };
        let mut world = world;
        for (at, event) in events.iter().enumerate() {
            world.happen(at, event);
            twin.happen(at, event);
            prop_assert_eq!(world.board.decide(), twin.board.decide());
        }
    }

    #[test]
    fn a_slow_and_simple_mind_comes_to_the_same_choices(mut world in world(), events in events(SIZES, 14)) {
        for (at, event) in events.iter().enumerate() {
            world.happen(at, event);
            world.settle_as_the_oracle_says();
            world.settle();
            world.check();
        }
    }

    #[test]
    fn the_surplus_is_within_a_job_of_the_weighted_ideal(mut world in world(), events in events(&["1"], 60)) {
        for (at, event) in events.iter().enumerate() {
            if matches!(event, Event::Outside(..) | Event::Suspend(..)) {
                continue;
            }
            world.happen(at, event);
            world.settle();
            if world.board.hold.is_none() {
                is_divided(&world.board)?;
            }
        }
    }
}

/// Whether a job of a project that has nothing to run it with could ever start.
fn can_run(board: &Board, job: &crate::jobs::Job) -> bool {
    let project = board.project(&job.spec.project).unwrap();
    job.spec.size.total() <= project.quota || !job.spec.is_lasting() && project.weight() > MilliGpus::ZERO
}

/// Whoever wants more has borrowed no less for its weight than anybody else has without the last of its jobs.
fn is_divided(board: &Board) -> Result<(), TestCaseError> {
    let borrows = |name: &ProjectName| board.borrowers().projects().contains(name);
    let wants = board.accounts.values().filter(|account| {
        let mut shapes = account.queue.keys();
        account.project.weight() > MilliGpus::ZERO && shapes.any(|shape| !shape.lasting)
    });
    for poor in wants {
        for rich in board.accounts.values().filter(|rich| borrows(&rich.project.name)) {
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
    let ideal = ideal(board);
    for rich in board.accounts.values() {
        let (over, most) = (over(rich), ideal * f64::from(rich.project.weight().get()) + 1000.0);
        prop_assert!(over <= most + 1e-6, "{} has borrowed {over}, at most {most}", rich.project.name);
    }
    Ok(())
}

fn over(account: &Account) -> f64 {
    f64::from(account.used.less(account.project.quota).get())
}

/// How much each would have borrowed for its weight, were GPUs water: who wants no more has what it has at most.
fn ideal(board: &Board) -> f64 {
    let all: f64 = board.accounts.values().map(over).sum();
    let held = |level: f64| -> f64 {
        let share = |account: &Account| {
            let mut shapes = account.queue.keys();
            let most = if shapes.any(|shape| !shape.lasting) { f64::INFINITY } else { over(account) };
            most.min(level * f64::from(account.project.weight().get()))
        };
        board.accounts.values().map(share).sum()
    };
    let (mut low, mut high) = (0.0, 1e3);
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        if held(middle) < all { low = middle } else { high = middle }
    }
    high
}
