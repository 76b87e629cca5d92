//! Laws of the arbiter, over tenants that run exactly as told. Tenants as they are play in `tests/arena`.

use super::*;
use crate::compute::terms::Priority;
use crate::request::ComputeMode;
use alloc::format;
use alloc::vec;
use proptest::prelude::*;

const STEP: Nanos = Nanos::micros(500);

fn gpu(number: u8) -> GpuUuid {
    GpuUuid::from_bytes([number; 16])
}

fn name(at: usize) -> SliceName {
    format!("s{at}").parse().expect("a slice name")
}

fn share(permille: u32) -> Permille {
    Permille::try_from(permille).expect("at most 1000")
}

fn terms(mode: ComputeMode, request: u32) -> Terms {
    Terms::of_mode(mode, vec![gpu(0)], share(request))
}

fn fair(request: u32) -> Terms {
    terms(ComputeMode::Fair, request)
}

/// Tenants that always have work, launch as long as they may, and stop at once when they may not.
struct Game {
    arbiter: Arbiter,
    now: Instant,
    open: Vec<bool>,
    busy: Vec<Nanos>,
    waited: Vec<Nanos>,
    longest_wait: Nanos,
    idle: Nanos,
    history: Vec<Decision>,
}

impl Game {
    fn new(all: &[Terms]) -> Self {
        let now = Instant::from_nanos(1);
        let mut arbiter = Arbiter::new(Rules::default());
        for (at, terms) in all.iter().enumerate() {
            arbiter.admit(now, name(at), terms.clone());
        }
        let (open, busy) = (vec![false; all.len()], vec![Nanos::ZERO; all.len()]);
        let waited = busy.clone();
        let (longest_wait, idle, history) = (Nanos::ZERO, Nanos::ZERO, Vec::new());
        Self { arbiter, now, open, busy, waited, longest_wait, idle, history }
    }

    fn play(mut self, length: Nanos) -> Self {
        let end = self.now + length;
        while self.now < end {
            self.step();
        }
        self
    }

    /// Decides twice, since whoever is closed has nothing outstanding at once.
    fn step(&mut self) {
        self.decide();
        self.decide();
        self.run();
    }

    fn decide(&mut self) {
        for (at, open) in self.open.iter().enumerate() {
            let outstanding = if *open { Nanos::millis(1) } else { Nanos::ZERO };
            let seen = Observed {
                busy: vec![self.busy[at]],
                outstanding,
                waiting: !open,
                kernel: Nanos::micros(100),
                longest: Nanos::micros(100),
                progress: self.now.nanos(),
            };
            self.arbiter.observe(self.now, &name(at), seen);
        }
        let decision = self.arbiter.decide(self.now);
        for (slice, lease) in &decision.leases {
            let at = (0..self.open.len()).find(|at| name(*at) == *slice).expect("it was admitted");
            self.open[at] = lease.open;
        }
        self.history.push(decision);
    }

    fn run(&mut self) {
        self.now = self.now + STEP;
        let running = self.open.iter().filter(|open| **open).count() as u64;
        for (at, open) in self.open.iter().enumerate() {
            if *open {
                self.busy[at] += STEP.scaled(1, running);
                self.waited[at] = Nanos::ZERO;
            } else {
                self.waited[at] += STEP;
                self.longest_wait = self.longest_wait.max(self.waited[at]);
            }
        }
        if running == 0 {
            self.idle += STEP;
        }
    }

    fn part(&self, at: usize) -> u64 {
        let all: Nanos = self.busy.iter().copied().sum();
        self.busy[at].scaled(1000, all.get()).get()
    }
}

fn requests() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(20u32..400, 2..7).prop_map(|parts| {
        let sum: u32 = parts.iter().sum();
        parts.into_iter().map(|part| (part * 1000 / sum).max(10)).collect()
    })
}

fn all_fair(requests: &[u32]) -> Vec<Terms> {
    requests.iter().copied().map(fair).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn everybody_gets_what_was_requested_and_the_gpu_is_never_idle(requests in requests()) {
        let game = Game::new(&all_fair(&requests)).play(Nanos::millis(4000));
        let sum: u32 = requests.iter().sum();
        for (at, request) in requests.iter().enumerate() {
            let promised = u64::from(request * 1000 / sum);
            prop_assert!(game.part(at).abs_diff(promised) <= 10, "{} of {promised}", game.part(at));
        }
        prop_assert_eq!(game.idle, Nanos::ZERO);
    }

    #[test]
    fn everybody_who_waits_is_served_within_a_bound(requests in requests(), rank in -3i8..=3) {
        let mut all = all_fair(&requests);
        all[0].priority = Priority::new(rank);
        all.push(terms(ComputeMode::BestEffort, 0));
        let game = Game::new(&all).play(Nanos::millis(4000));
        let bound = Rules::default().starved + Nanos::millis(100 * all.len() as u64);
        prop_assert!(game.longest_wait <= bound, "{} of {bound}", game.longest_wait);
    }

    #[test]
    fn a_higher_weight_never_lowers_a_share(requests in requests(), more in 10u32..300) {
        let mut raised = requests.clone();
        raised[0] = (raised[0] + more).min(1000);
        let before = Game::new(&all_fair(&requests)).play(Nanos::millis(3000)).part(0);
        let after = Game::new(&all_fair(&raised)).play(Nanos::millis(3000)).part(0);
        prop_assert!(after + 5 >= before, "{before} became {after}");
    }

    #[test]
    fn a_limit_is_kept_and_used_up(limit in 50u32..=950) {
        let all = [terms(ComputeMode::Strict, limit), terms(ComputeMode::Fair, 0)];
        let game = Game::new(&all[..1]).play(Nanos::millis(4000));
        let used = game.busy[0].scaled(1000, Nanos::millis(4000).get()).get();
        prop_assert!(used.abs_diff(u64::from(limit)) <= 10, "{used} of {limit}");
    }

    #[test]
    fn the_same_inputs_give_the_same_decisions(requests in requests()) {
        let play = || Game::new(&all_fair(&requests)).play(Nanos::millis(300)).history;
        prop_assert_eq!(play(), play());
    }
}

#[derive(Clone, Debug)]
enum Event {
    Admit(usize, Terms),
    Change(usize, Terms),
    Leave(usize),
    Observe(usize, Observed),
    Decide,
}

fn any_terms() -> impl Strategy<Value = Terms> {
    let gpus = prop::collection::btree_set(0u8..3, 0..3);
    (gpus, 0u32..=1000, 0u32..=1000, -2i8..=2, any::<bool>()).prop_map(
        |(gpus, request, limit, rank, frozen)| Terms {
            gpus: gpus.into_iter().map(gpu).collect(),
            request: share(request),
            limit: share(limit),
            priority: Priority::new(rank),
            frozen,
        },
    )
}

fn any_nanos() -> impl Strategy<Value = Nanos> {
    prop_oneof![0u64..20_000_000, any::<u64>(), Just(0)].prop_map(Nanos::new)
}

fn any_observed() -> impl Strategy<Value = Observed> {
    let busy = prop::collection::vec(any_nanos(), 0..4);
    (busy, any_nanos(), any::<bool>(), any_nanos(), any_nanos(), any::<u64>()).prop_map(
        |(busy, outstanding, waiting, kernel, longest, progress)| Observed {
            busy,
            outstanding,
            waiting,
            kernel,
            longest,
            progress,
        },
    )
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0usize..5, any_terms()).prop_map(|(at, terms)| Event::Admit(at, terms)),
        (0usize..5, any_terms()).prop_map(|(at, terms)| Event::Change(at, terms)),
        (0usize..5).prop_map(Event::Leave),
        (0usize..5, any_observed()).prop_map(|(at, seen)| Event::Observe(at, seen)),
        Just(Event::Decide),
        Just(Event::Decide),
    ]
}

fn apply(arbiter: &mut Arbiter, now: Instant, event: Event) -> Option<Decision> {
    match event {
        Event::Admit(at, terms) => arbiter.admit(now, name(at), terms),
        Event::Change(at, terms) => arbiter.change(now, &name(at), terms),
        Event::Leave(at) => arbiter.leave(now, &name(at)),
        Event::Observe(at, seen) => arbiter.observe(now, &name(at), seen),
        Event::Decide => return Some(arbiter.decide(now)),
    }
    None
}

proptest! {
    #[test]
    fn nothing_that_tenants_claim_breaks_the_books(
        events in prop::collection::vec((any_event(), 0u64..30_000_000), 1..120),
    ) {
        let mut arbiter = Arbiter::new(Rules::default());
        let mut now = Instant::from_nanos(0);
        for (event, passed) in events {
            now = now + Nanos::new(passed);
            let Some(decision) = apply(&mut arbiter, now, event) else { continue };
            prop_assert!(decision.look_again.is_none_or(|again| again > now), "it would look for ever");
            for (at, (slice, _)) in decision.leases.iter().enumerate() {
                prop_assert!(decision.leases[..at].iter().all(|(other, _)| other != slice));
            }
            for (slice, member) in &arbiter.slices {
                prop_assert!(!(member.terms.frozen && arbiter.lease(slice).is_some_and(|lease| lease.open)));
            }
            for number in 0..3 {
                let used = |(slice, _): &(SliceName, Member)| {
                    arbiter.used(now, slice, gpu(number), Window::Second).get()
                };
                let sum: u32 = arbiter.slices.iter().map(used).sum();
                prop_assert!(sum <= 1000 + 100, "shares of GPU {number} sum to {sum}");
            }
        }
    }
}

#[test]
fn one_says_why_it_waits() {
    let mut all = vec![fair(500), fair(300), terms(ComputeMode::Strict, 100), fair(100)];
    all[3].frozen = true;
    let game = Game::new(&all).play(Nanos::millis(1500));
    let whys: Vec<Why> = (0..4).map(|at| game.arbiter.why_waiting(&name(at))).collect();
    assert_eq!(whys[3], Why::Frozen);
    assert_eq!(whys.iter().filter(|why| **why == Why::Running).count(), 1, "{whys:?}");
    let waits = |why: &Why| matches!(why, Why::OverShare { .. } | Why::LimitReached);
    assert_eq!(whys.iter().filter(|why| waits(why)).count(), 2, "{whys:?}");
    assert_eq!(game.arbiter.why_waiting(&name(9)), Why::NoWork);
}

#[test]
fn what_was_used_is_told_over_a_second_and_a_minute() {
    let game = Game::new(&[fair(700), fair(300)]).play(Nanos::millis(3000));
    let used = |at, window| game.arbiter.used(game.now, &name(at), gpu(0), window).get();
    assert!(used(0, Window::Second).abs_diff(700) <= 20, "{}", used(0, Window::Second));
    assert!(used(1, Window::Minute).abs_diff(15) <= 6, "{}", used(1, Window::Minute));
}

#[test]
fn who_had_the_gpu_alone_owes_nothing_to_one_that_comes() {
    let (mut arbiter, first, second) = (Arbiter::new(Rules::default()), name(0), name(1));
    let at = |ms| Instant::from_nanos(1) + Nanos::millis(ms);
    let seen = |busy, outstanding, waiting| Observed {
        busy: vec![Nanos::millis(busy)],
        outstanding: Nanos::millis(outstanding),
        waiting,
        kernel: Nanos::millis(1),
        longest: Nanos::millis(1),
        progress: busy,
    };
    arbiter.admit(at(0), first.clone(), fair(300));
    arbiter.observe(at(0), &first, seen(0, 4, false));
    arbiter.decide(at(0));
    // Nothing that it launches has a mark behind it for a while, so that it seems to be idle.
    arbiter.observe(at(50), &first, seen(50, 0, false));
    arbiter.admit(at(50), second.clone(), fair(500));
    arbiter.decide(at(50));
    arbiter.observe(at(100), &first, seen(100, 4, false));
    arbiter.observe(at(100), &second, seen(0, 0, true));
    arbiter.decide(at(100));
    let mut handed = None;
    for ms in 101..200 {
        let (open, other) = (arbiter.lease(&second), arbiter.lease(&first));
        let holds = open.is_some_and(|lease| lease.open);
        handed = handed.or((holds && !other.is_some_and(|lease| lease.open)).then_some(ms));
        let used = handed.map_or(0, |since| ms - since);
        arbiter.observe(at(ms), &first, seen(100 + (ms - 100 - used).min(4), 0, true));
        arbiter.observe(at(ms), &second, seen(used, 1, handed.is_some()));
        arbiter.decide(at(ms));
        if handed.is_some() && arbiter.lease(&first).is_some_and(|lease| lease.open) {
            assert!(used <= 25, "it had to wait for {used} ms");
            return;
        }
    }
    panic!("it never had the GPU again");
}
