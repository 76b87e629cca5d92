//! Two processes and a daemon, each order of their steps, each possible death.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use model::word::{Actor, deaths, let_live, live};
use model::world::{Variant, World};

/// The deaths are counted in words of the process's, so the models take turns.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

const CAP: u32 = 4;

/// Explores every order in which nobody is interrupted more often than that; gives their number.
fn explore(interruptions: usize, scenario: impl Fn() + Send + Sync + 'static) -> u64 {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.max_branches = 10_000;
    let orders = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&orders);
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        scenario();
    });
    orders.load(Relaxed)
}

/// Whether the model finds that something is wrong.
fn finds_fault(scenario: impl FnOnce() -> u64) -> bool {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let outcome = catch_unwind(AssertUnwindSafe(scenario));
    std::panic::set_hook(quiet);
    outcome.is_err()
}

/// Both processes want more than half, so that credit has to move; the first may die at any step.
fn race(variant: Variant) {
    let world = Arc::new(World::new(CAP, variant));
    let second = {
        let world = Arc::clone(&world);
        loom::thread::spawn(move || {
            if world.allocate(1, 3) {
                world.check(CAP);
                world.free(1, 3);
            }
        })
    };
    let lived = live(Actor::Mortal, || {
        if world.allocate(0, 2) {
            world.check(CAP);
            world.free(0, 1);
        }
        if world.allocate(0, 1) {
            world.check(CAP);
        }
    });
    if lived.is_none() {
        world.reap(0);
    }
    second.join().expect("it ends");
    world.check(CAP);
    let_live(Actor::Daemon, None);
    world.check_at_rest();
    // Nothing is lost: what the first does not hold, the second can have.
    let rest = CAP - world.credit(0).used.get();
    assert!(world.allocate(1, rest), "{rest} units are nobody's, and refused");
    world.check(CAP);
    world.check_at_rest();
}

/// The slice shrinks below what one process has while the other wants more.
fn shrink(variant: Variant) {
    const SHRUNK: u32 = 2;
    let world = Arc::new(World::new(CAP, variant));
    assert!(world.allocate(0, 1));
    let announced = Arc::new(loom::sync::atomic::AtomicBool::new(false));
    let daemon = {
        let (world, announced) = (Arc::clone(&world), Arc::clone(&announced));
        loom::thread::spawn(move || {
            world.resize(SHRUNK);
            announced.store(true, Relaxed);
        })
    };
    let lived = live(Actor::Mortal, || {
        let before = announced.load(Relaxed);
        loom::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if world.allocate(0, 2) {
            assert!(!before, "granted beyond a cap that had been set");
            world.check(CAP);
            world.free(0, 2);
        }
    });
    daemon.join().expect("it ends");
    if lived.is_none() {
        world.reap(0);
    }
    let_live(Actor::Daemon, None);
    world.check(SHRUNK);
    world.check_at_rest();
    let rest = SHRUNK - world.credit(0).used.get();
    assert!(world.allocate(1, rest), "{rest} units are nobody's, and refused");
    world.check(SHRUNK);
}

/// Explores a scenario with the death of `actor` at its first step, its second, and so on until it outlives them.
fn explore_deaths(actor: Actor, scenario: fn(Variant)) {
    let (mut all, mut orders) = (0, 0);
    for steps in 0.. {
        orders += explore(2, move || {
            let_live(actor, Some(steps));
            scenario(Variant::Right);
        });
        let_live(actor, None);
        let died = deaths();
        all += died;
        if died == 0 {
            println!("{actor:?}: {orders} orders, {all} deaths at {steps} different steps");
            assert!(steps > 5, "{actor:?} took steps that could be its last");
            return;
        }
    }
}

fn turn() -> std::sync::MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn two_processes_never_hold_more_than_the_cap_and_nothing_is_lost() {
    let _turn = turn();
    let orders = explore(3, || race(Variant::Right));
    println!("{orders} orders");
}

#[test]
fn a_shrink_is_kept_to_from_the_moment_it_is_announced() {
    let _turn = turn();
    let orders = explore(3, || shrink(Variant::Right));
    println!("{orders} orders");
}

#[test]
fn a_process_may_die_at_any_step() {
    let _turn = turn();
    explore_deaths(Actor::Mortal, race);
    explore_deaths(Actor::Mortal, shrink);
}

#[test]
fn the_daemon_may_die_at_any_step() {
    let _turn = turn();
    explore_deaths(Actor::Daemon, race);
    explore_deaths(Actor::Daemon, shrink);
}

#[test]
fn each_mistake_that_could_be_made_is_found() {
    let _turn = turn();
    for variant in [Variant::RecallsWithoutComparing, Variant::ReleasesBeforeFreeing] {
        assert!(finds_fault(|| explore(2, move || race(variant))), "{variant:?}");
    }
    assert!(finds_fault(|| explore(2, || shrink(Variant::ShrinksWithoutTrimming))));
    let with_death = |actor, variant| {
        (0..40).any(|steps| {
            let found = finds_fault(|| {
                explore(1, move || {
                    let_live(actor, Some(steps));
                    race(variant);
                })
            });
            let_live(actor, None);
            found
        })
    };
    assert!(with_death(Actor::Mortal, Variant::ReapsBeforeTheDriver));
    assert!(with_death(Actor::Daemon, Variant::ForgetsGrants));
}
