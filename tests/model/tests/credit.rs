//! Two processes and a daemon, each order of their steps, each possible death.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use common::{explore, explore_deaths, finds_fault, turn, with_death};
use model::word::{Actor, let_live, live};
use model::world::{Variant, World};

const CAP: u32 = 4;

/// Both processes allocate more than half, so that credit has to move; the first may die at any step.
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
    // Nothing is lost: what the first does not hold, the second can allocate.
    let rest = CAP - world.credit(0).used.get();
    assert!(world.allocate(1, rest), "{rest} units are free, and refused");
    world.check(CAP);
    world.check_at_rest();
}

/// The slice shrinks while a process requests more than the new cap allows.
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
    assert!(world.allocate(1, rest), "{rest} units are free, and refused");
    world.check(SHRUNK);
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
    explore_deaths(Actor::Mortal, 2, race);
    explore_deaths(Actor::Mortal, 2, shrink);
}

#[test]
fn the_daemon_may_die_at_any_step() {
    let _turn = turn();
    explore_deaths(Actor::Daemon, 2, race);
    explore_deaths(Actor::Daemon, 2, shrink);
}

#[test]
fn each_mistake_that_could_be_made_is_found() {
    let _turn = turn();
    for variant in [Variant::RecallsWithoutComparing, Variant::ReleasesBeforeFreeing] {
        assert!(finds_fault(|| explore(2, move || race(variant))), "{variant:?}");
    }
    assert!(finds_fault(|| explore(2, || shrink(Variant::ShrinksWithoutTrimming))));
    assert!(with_death(Actor::Mortal, race, Variant::ReapsBeforeTheDriver));
    assert!(with_death(Actor::Daemon, race, Variant::ForgetsGrants));
}
