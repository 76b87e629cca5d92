//! Laws of the arbiter, over tenants that run exactly by their leases. Real delays are in `tests/arena`.

#[path = "arbiter_tests/any.rs"]
mod any;
#[path = "arbiter_tests/game.rs"]
mod game;

use super::*;
use crate::compute::latency::Latency;
use crate::compute::priority::Priority;
use crate::compute::terms::{ComputeMode, Gang, NextLease};
use alloc::format;
use alloc::vec;
use any::{Event, any_event, any_players, fair_players, requests};
use game::{Game, Player, gpu, name, share, sum_of_shares, terms};
use proptest::prelude::*;

fn fair(request: u32) -> ComputeTerms {
    terms(ComputeMode::Fair, request)
}

fn tireless(requests: &[u32]) -> Vec<Player> {
    requests.iter().map(|request| Player::tireless(fair(*request))).collect()
}

/// Observation of a slice that launches kernels of 1 ms whenever it may.
fn busy_for(busy: Nanos, open: bool, progress: u64) -> Observed {
    let kernel = Nanos::millis(1);
    let outstanding = if open { kernel } else { Nanos::ZERO };
    let busy = vec![busy];
    let seen = Observed { outstanding, waiting: !open, in_order: true, ..Observed::default() };
    Observed { busy, kernel, longest: kernel, progress, ..seen }
}

/// Milliseconds of 2000 in which the honest one of two slices may launch, with 300 beside 600.
///
/// The record of the other shows none of its kernels, which the audit has seen or not.
fn beside_one_who_denies(is_known: bool) -> usize {
    let mut arbiter = Arbiter::new(Rules::default());
    let at = |ms: u64| Instant::from_nanos(1 + ms * 1_000_000);
    (0..2).for_each(|who| arbiter.admit(at(0), name(who), fair([300, 600][who])));
    arbiter.mistrust(at(0), &name(1), is_known.then_some(Nanos::ZERO));
    let mut busy = Nanos::ZERO;
    let may = |ms: &u64| {
        let open = [0, 1].map(|who| arbiter.lease(&name(who)).is_some_and(|lease| lease.open));
        busy += if open[0] { Nanos::millis(1) } else { Nanos::ZERO };
        arbiter.observe(at(*ms), &name(0), busy_for(busy, open[0], *ms));
        let denies = Observed { outstanding: Nanos::ZERO, ..busy_for(Nanos::ZERO, open[1], *ms) };
        arbiter.observe(at(*ms), &name(1), denies);
        arbiter.decide(at(*ms));
        open[0]
    };
    (1..2000).filter(may).count()
}

#[test]
fn whoever_denies_what_it_uses_is_taken_to_be_busy_once_that_is_known() {
    let (unknown, known) = (beside_one_who_denies(false), beside_one_who_denies(true));
    assert!(known >= unknown + 200, "{unknown} and {known}");
}

#[test]
fn what_was_taken_in_secret_is_given_back() {
    let mut arbiter = Arbiter::new(Rules::default());
    let at = |ms: u64| Instant::from_nanos(1 + ms * 1_000_000);
    (0..2).for_each(|who| arbiter.admit(at(0), name(who), fair(300)));
    arbiter.mistrust(at(0), &name(1), Some(Nanos::millis(100)));
    let mut turns = [Nanos::ZERO; 2];
    for ms in 1..=300 {
        for (who, turns) in turns.iter_mut().enumerate() {
            let open = arbiter.lease(&name(who)).is_some_and(|lease| lease.open);
            *turns += if open { Nanos::millis(1) } else { Nanos::ZERO };
            arbiter.observe(at(ms), &name(who), busy_for(*turns, open, ms));
        }
        arbiter.mistrust(at(ms), &name(1), None); // it has ended
        arbiter.decide(at(ms));
    }
    let lead = turns[0].get() as f64 / 1e6 - turns[1].get() as f64 / 1e6;
    assert!((85.0..=115.0).contains(&lead), "{turns:?}");
}

#[test]
fn a_turn_is_kept_from_the_gate_to_the_first_launch_and_not_for_longer() {
    let mut arbiter = Arbiter::new(Rules::default());
    let at = |us: u64| Instant::from_nanos(1 + us * 1000);
    (0..2).for_each(|who| arbiter.admit(at(0), name(who), fair(500)));
    let open = |arbiter: &Arbiter, who: usize| arbiter.lease(&name(who)).is_some_and(|lease| lease.open);
    let (mut ran, mut ms) = (0, 0);
    while ran == 0 || !open(&arbiter, 1) {
        ms += 1;
        let runs = open(&arbiter, 0);
        ran += u64::from(runs);
        arbiter.observe(at(ms * 1000), &name(0), busy_for(Nanos::millis(ran), runs, ran));
        arbiter.observe(at(ms * 1000), &name(1), busy_for(Nanos::ZERO, false, 0));
        arbiter.decide(at(ms * 1000));
    }
    let opened = ms * 1000;
    let passed = Observed { waiting: false, ..busy_for(Nanos::ZERO, false, 0) };
    for us in [30, 90] {
        arbiter.observe(at(opened + us), &name(1), passed.clone());
        let decision = arbiter.decide(at(opened + us));
        assert!(open(&arbiter, 1), "{us} us: {decision:?}");
        assert!(decision.look_again.is_some_and(|again| again <= at(opened + us + 100)), "{decision:?}");
    }
    arbiter.observe(at(opened + 190), &name(1), passed);
    arbiter.decide(at(opened + 190));
    assert!(open(&arbiter, 0), "it launches nothing");
}

#[test]
fn starved_slices_have_one_launch_and_wait_no_longer_for_the_turn_of_another() {
    let of = |gpus: &[u8], request: u32, rank: i8| {
        let gpus = gpus.iter().map(|number| gpu(*number)).collect();
        Player::tireless(ComputeTerms { gpus, priority: Priority::new(rank), ..fair(request) })
    };
    let players = [of(&[1], 0, 0), of(&[0, 1], 333, 3), of(&[0], 0, 3)];
    let game = Game::new(&players).play(Nanos::millis(2500));
    for at in [0, 2] {
        assert!(game.longest_wait(at) <= Nanos::millis(520), "{at} waited for {}", game.longest_wait(at));
        let later = game.past[at].iter().skip(500 * 20).map(|moment| moment.ran).sum::<Nanos>();
        assert!(later <= Nanos::millis(4), "{at} had {later} by four launches");
    }
}

/// Longest wait of a slice with work, whatever the terms of others.
///
/// Until it is starved, and until all others that are have had a launch; twenty times as long as its last launch of that kind
/// cost others; and as long again as its limit requires.
fn patience(player: &Player, players: usize) -> Nanos {
    let limit = u64::from(player.terms.limit.get());
    let within_limit = if limit < 1000 { Nanos::millis(20 + 2 * 1000 / limit) } else { Nanos::ZERO };
    // A launch that is let through so costs others up to 6 ms: 5 in which it may come, and its own time.
    let cost = Nanos::millis(6).scaled(20, 1);
    Rules::default().starved + cost + Nanos::millis(20 * players as u64) + within_limit
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn everybody_gets_what_was_requested(requests in requests()) {
        let game = Game::new(&tireless(&requests)).play(Nanos::millis(4000));
        let sum: u32 = requests.iter().sum();
        for (at, request) in requests.iter().enumerate() {
            let promised = u64::from(request * 1000 / sum);
            prop_assert!(game.part(at).abs_diff(promised) <= 10, "{} of {promised}", game.part(at));
        }
    }

    #[test]
    fn whoever_has_work_gets_what_it_requested_for_as_long_as_it_has(players in fair_players()) {
        let game = Game::new(&players).play(Nanos::millis(4000));
        for (at, player) in players.iter().enumerate() {
            let lacked = game.most_lacked(at, player.terms.request.get().into());
            // One with a latency target may be ahead of it by a turn more.
            let targets = players.iter().any(|player| player.terms.latency.is_some());
            let most = Nanos::millis(if targets { 50 } else { 40 });
            prop_assert!(lacked <= most, "{at} lacked {lacked}");
        }
    }

    #[test]
    fn the_gpu_is_never_idle_while_somebody_has_work_that_may_run(players in any_players()) {
        let game = Game::new(&players).play(Nanos::millis(3000));
        // A slice that has become idle may come back at once, and is waited for that long.
        let bound = (Rules::default().grace + Nanos::micros(100)).scaled(game.rests(), 1);
        // And for one that the others are far ahead of it is kept a little longer: in one of some thousand games that
        // comes to more than 1 % of the time.
        let bound = bound + Nanos::millis(60);
        prop_assert!(game.wasted <= bound, "{} of {bound}", game.wasted);
    }

    #[test]
    fn everybody_who_waits_is_served_within_a_bound(players in any_players()) {
        let game = Game::new(&players).play(Nanos::millis(4000));
        for (at, player) in players.iter().enumerate().filter(|(_, player)| !player.terms.frozen) {
            let (waited, bound) = (game.longest_wait(at), patience(player, players.len()));
            prop_assert!(waited <= bound, "{at} waited for {waited} of {bound}");
        }
    }

    #[test]
    fn a_slice_over_several_gpus_is_served_within_a_bound(players in any_players(), others in fair_players()) {
        let mut players = players;
        for (player, on) in players.iter_mut().chain(&mut others.clone()).zip([1u8, 2, 0].into_iter().cycle()) {
            player.terms.gpus = if on == 2 { vec![gpu(0), gpu(1)] } else { vec![gpu(on)] };
        }
        let game = Game::new(&players).play(Nanos::millis(4000));
        for (at, player) in players.iter().enumerate().filter(|(_, player)| !player.terms.frozen) {
            let (waited, bound) = (game.longest_wait(at), patience(player, players.len()));
            prop_assert!(waited <= bound, "{at} waited for {waited} of {bound}");
        }
    }

    #[test]
    fn a_higher_weight_never_lowers_a_share(requests in requests(), more in 10u32..300) {
        let mut raised = requests.clone();
        raised[0] = (raised[0] + more).min(1000);
        let before = Game::new(&tireless(&requests)).play(Nanos::millis(3000)).part(0);
        let after = Game::new(&tireless(&raised)).play(Nanos::millis(3000)).part(0);
        prop_assert!(after + 5 >= before, "{before} became {after}");
    }

    #[test]
    fn nor_does_it_where_slices_come_and_go(players in fair_players(), more in 10u32..300) {
        // Work that is not done while a player has it vanishes: of brief work much depends on who has the turn when it comes.
        let long = |(work, rest): &(Nanos, Nanos)| ((*work).max(Nanos::millis(8)), *rest);
        let mut players = players;
        players[0].habit = players[0].habit.iter().map(long).collect();
        let mut raised = players.clone();
        raised[0].terms.request = share((players[0].terms.request.get() + more).min(1000));
        let before = Game::new(&players).play(Nanos::millis(3000)).ran(0);
        let after = Game::new(&raised).play(Nanos::millis(3000)).ran(0);
        prop_assert!(after + Nanos::millis(120) >= before, "{before} became {after}");
    }

    #[test]
    fn a_limit_is_used_up(limit in 50u32..=950) {
        let game = Game::new(&[Player::tireless(terms(ComputeMode::Strict, limit))]).play(Nanos::millis(4000));
        let used = game.ran(0).scaled(1000, Nanos::millis(4000).get()).get();
        prop_assert!(used.abs_diff(u64::from(limit)) <= 10, "{used} of {limit}");
    }

    #[test]
    fn a_limit_is_kept_over_any_time_whatever_others_do(players in any_players()) {
        let game = Game::new(&players).play(Nanos::millis(3000));
        for (at, player) in players.iter().enumerate() {
            let beyond = game.most_beyond(at, player.terms.limit.get().into());
            // The last two kernels that it launched within its limit may end beyond it.
            let most = Rules::default().burst + Nanos::micros(1_200);
            let most = if player.terms.frozen { Nanos::ZERO } else { most };
            prop_assert!(beyond <= most, "{at} had {beyond} more than its limit");
        }
    }

    #[test]
    fn shares_sum_to_one_at_most(players in any_players()) {
        prop_assert!(Game::new(&players).play(Nanos::millis(2500)).most_told <= 1000);
    }

    #[test]
    fn the_same_inputs_give_the_same_decisions(players in any_players()) {
        let play = || Game::new(&players).play(Nanos::millis(600));
        let (one, other) = (play(), play());
        prop_assert_eq!(one.history, other.history);
        prop_assert_eq!(one.past, other.past);
    }
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
        events in prop::collection::vec((any_event(), 0u64..300_000_000), 1..120),
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
                let sum = sum_of_shares(&arbiter, now, gpu(number));
                prop_assert!(sum <= 1000, "shares of GPU {number} sum to {sum}");
            }
        }
    }
}

#[test]
fn one_says_why_it_waits() {
    let mut all = vec![fair(500), fair(300), terms(ComputeMode::Strict, 100), fair(100)];
    all[3].frozen = true;
    let players: Vec<Player> = all.into_iter().map(Player::tireless).collect();
    let game = Game::new(&players).play(Nanos::millis(1500));
    let whys: Vec<Why> = (0..4).map(|at| game.arbiter.why_waiting(&name(at))).collect();
    assert_eq!(whys[3], Why::Frozen);
    assert_eq!(whys.iter().filter(|why| **why == Why::Running).count(), 1, "{whys:?}");
    let waits = |why: &Why| matches!(why, Why::OverShare { .. } | Why::LimitReached);
    assert_eq!(whys.iter().filter(|why| waits(why)).count(), 2, "{whys:?}");
    assert_eq!(game.arbiter.why_waiting(&name(9)), Why::NoWork);
}

#[test]
fn what_was_used_is_told_over_a_second_and_a_minute() {
    let game = Game::new(&tireless(&[700, 300])).play(Nanos::millis(3000));
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
        claims_work: outstanding > 0,
        waiting,
        contexts: 1,
        in_order: true,
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

/// After how many milliseconds one of two may launch, whose other never makes progress with its work.
fn comes_beside_a_stuck_one(hollow: bool) -> u64 {
    let (mut arbiter, first, second) = (Arbiter::new(Rules::default()), name(0), name(1));
    let at = |ms: u64| Instant::from_nanos(1 + ms * 1_000_000);
    arbiter.admit(at(0), first.clone(), fair(500));
    arbiter.admit(at(0), second.clone(), fair(500));
    arbiter.expect_nothing(at(0), &first, hollow);
    let came = (1..1000).find(|ms| {
        let stuck = Observed { waiting: false, progress: 1, ..busy_for(Nanos::millis(*ms), true, 1) };
        arbiter.observe(at(*ms), &first, stuck);
        arbiter.observe(at(*ms), &second, Observed { waiting: true, ..Observed::default() });
        arbiter.decide(at(*ms));
        arbiter.lease(&second).is_some_and(|lease| lease.open)
    });
    came.expect("it comes in the end")
}

#[test]
fn work_of_a_slice_that_computes_nothing_is_not_waited_for() {
    let (waited, not) = (comes_beside_a_stuck_one(false), comes_beside_a_stuck_one(true));
    assert!(not <= 15 && waited > 30, "{not} and {waited} ms");
}

#[test]
fn nobody_waits_longer_for_one_that_stands_still_because_it_says_that_it_always_did() {
    let (mut arbiter, first, second) = (Arbiter::new(Rules::default()), name(0), name(1));
    for longest in [Nanos::millis(1), Nanos::millis(100), Nanos::millis(10_000), Nanos::MAX] {
        let from = arbiter.now;
        arbiter.admit(from, first.clone(), fair(500));
        arbiter.admit(from, second.clone(), fair(500));
        let mut busy = Nanos::ZERO;
        let came = (0..1000).find(|_| {
            let now = arbiter.now + Nanos::millis(1);
            busy += Nanos::millis(1);
            let outstanding = Nanos::millis(1);
            let (kernel, busy) = (outstanding, vec![busy]);
            let seen = Observed { busy, outstanding, kernel, longest, progress: 1, ..Observed::default() };
            arbiter.observe(now, &first, seen);
            arbiter.observe(now, &second, Observed { waiting: true, ..Observed::default() });
            arbiter.decide(now);
            arbiter.lease(&second).is_some_and(|lease| lease.open)
        });
        assert!(came.is_some_and(|ms| ms <= 150), "{came:?} ms where kernels are said to take {longest}");
    }
}

/// Tests if the successor of a slice with a queue of launches of 1 ms learns its time before that ends.
fn is_announced_beside(longest: Nanos, in_order: bool) -> bool {
    let (mut arbiter, first, second) = (Arbiter::new(Rules::default()), name(0), name(1));
    let at = |ms: u64| Instant::from_nanos(1 + ms * 1_000_000);
    arbiter.admit(at(0), first.clone(), fair(500));
    arbiter.admit(at(0), second.clone(), fair(500));
    for ms in 1..100 {
        let seen = busy_for(Nanos::millis(ms), true, ms);
        let outstanding = Nanos::millis(4);
        arbiter.observe(at(ms), &first, Observed { outstanding, longest, in_order, ..seen });
        arbiter.observe(at(ms), &second, Observed { waiting: true, ..Observed::default() });
        let decision = arbiter.decide(at(ms));
        let opens = |(who, next): &(SliceName, Option<NextLease>)| {
            *who == second && next.is_some_and(|next| next.lease.open)
        };
        if decision.next.iter().any(opens) {
            return true;
        }
    }
    false
}

#[test]
fn a_launch_that_seems_longer_by_less_than_a_queue_leaves_the_end_of_one_foreseen() {
    assert!(is_announced_beside(Nanos::millis(1), false));
    assert!(is_announced_beside(Nanos::millis(5), true), "its word may have come late");
    assert!(!is_announced_beside(Nanos::millis(5), false), "it may have run beside others");
    assert!(!is_announced_beside(Nanos::millis(6), true));
}

/// Milliseconds after which requests of 8 ms are done that come after 20 and 23 ms.
///
/// A third slice always has work.
fn requests_end(targets: [u32; 2]) -> [u64; 2] {
    let mut arbiter = Arbiter::new(Rules::default());
    let at = |ms: u64| Instant::from_nanos(1 + ms * 1_000_000);
    for (who, target) in targets.into_iter().enumerate() {
        let latency = Some(Latency::try_from(target * 1000).expect("in range"));
        arbiter.admit(at(0), name(who), ComputeTerms { latency, ..fair(300) });
    }
    arbiter.admit(at(0), name(2), fair(400));
    let (mut used, mut ends) = ([0; 3], [0; 2]);
    for ms in 1..200 {
        for who in 0..3 {
            let open = arbiter.lease(&name(who)).is_some_and(|lease| lease.open);
            let wants = who == 2 || ms >= [20, 23][who] && used[who] < 8;
            used[who] += u64::from(open && wants);
            let seen = busy_for(Nanos::millis(used[who]), open, used[who]);
            let idle = Observed { outstanding: Nanos::ZERO, waiting: false, ..seen.clone() };
            let is_done = who < 2 && used[who] == 8;
            if is_done && ends[who] == 0 {
                ends[who] = ms;
            }
            arbiter.observe(at(ms), &name(who), if wants && !is_done { seen } else { idle });
        }
        arbiter.decide(at(ms));
    }
    ends
}

#[test]
fn requests_with_a_target_are_served_to_their_end_by_the_time_they_are_due() {
    let [first, second] = requests_end([12, 12]);
    assert!(
        first <= 31 && second > first && second <= 40,
        "{first}, {second} ms: the first that came is the first served"
    );
    let [first, second] = requests_end([50, 8]);
    assert!(
        second <= 34 && first > second && first <= 40,
        "{first}, {second} ms: an interrupted one is the next"
    );
}

/// Charge in milliseconds of a slice whose turn has ended, for 40 ms in which another was busy as well.
fn charged_after_its_turn(contexts: u32) -> u32 {
    let (mut arbiter, first, second) = (Arbiter::new(Rules::default()), name(0), name(1));
    let at = |ms: u64| Instant::from_nanos(1 + ms * 1_000_000);
    let seen = |busy| {
        let (busy, outstanding) = (vec![Nanos::millis(busy)], Nanos::millis(4));
        Observed { busy, outstanding, contexts, ..Observed::default() }
    };
    arbiter.admit(at(0), first.clone(), fair(500));
    arbiter.admit(at(0), second.clone(), fair(500));
    arbiter.observe(at(0), &first, seen(0));
    arbiter.observe(at(0), &second, Observed::default());
    arbiter.decide(at(0));
    arbiter.change(at(0), &first, ComputeTerms { frozen: true, ..fair(500) });
    arbiter.decide(at(0));
    arbiter.observe(at(40), &first, seen(40));
    arbiter.observe(at(40), &second, Observed { contexts: 1, ..seen(40) });
    arbiter.decide(at(40));
    arbiter.used(at(500), &first, gpu(0), Window::Second).get()
}

#[test]
fn each_context_of_a_slice_has_time_slices_of_its_own() {
    // Half a millisecond for each before the other, then as much for each as for the other.
    assert!(charged_after_its_turn(1).abs_diff(20) <= 1, "{}", charged_after_its_turn(1));
    assert!(charged_after_its_turn(4).abs_diff(32) <= 1, "{}", charged_after_its_turn(4));
    assert!(charged_after_its_turn(9).abs_diff(36) <= 1, "{}", charged_after_its_turn(9));
}
