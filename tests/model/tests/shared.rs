//! Memory that both processes may hold: each order of exporting, opening and freeing, each death.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use common::{explore, explore_deaths, finds_fault, turn, with_death};
use model::word::{Actor, let_live, live};
use model::world::{Variant, World};

/// Blocks of the slice.
const CAP: u32 = 4;
/// Its units: a block is 512 of 4 KiB.
const CAP_UNITS: u32 = CAP * 512;

/// Number of times that a thread opened the other's export: at zero, the tests show nothing.
static OPENED: AtomicU64 = AtomicU64::new(0);

const HERE: u64 = 1 << 40;
const THERE: u64 = 1 << 41;
const ELSEWHERE: u64 = 1 << 42;

/// One exports, frees and allocates; the other opens it, allocates and closes it.
///
/// The first may die at any step.
fn share(variant: Variant) {
    let world = Arc::new(World::sharing(CAP, variant));
    let second = {
        let world = Arc::clone(&world);
        loom::thread::spawn(move || {
            let opened = world.open(1, THERE);
            world.check(CAP_UNITS);
            if world.create(1, ELSEWHERE, 2) {
                world.check(CAP_UNITS);
                world.destroy(1, ELSEWHERE, 2);
            }
            opened
        })
    };
    let lived = live(Actor::Mortal, || {
        if world.create(0, HERE, 2) {
            world.export(0, HERE, 2);
            world.check(CAP_UNITS);
            world.free_exported(0, HERE);
        }
        if world.create(0, ELSEWHERE, 3) {
            world.check(CAP_UNITS);
        }
    });
    if lived.is_none() {
        world.reap(0);
    }
    let opened = second.join().expect("it ends");
    OPENED.fetch_add(u64::from(opened), Relaxed);
    world.check(CAP_UNITS);
    let_live(Actor::Daemon, None);
    world.check_at_rest();
    assert!(!opened || !world.create(1, ELSEWHERE, 3), "what it opened is held and charged");
    if opened {
        world.close(1, THERE);
    }
    // Messages that a daemon did not receive because it died are sent to its successor with the next free.
    world.flush(1);
    if lived.is_some() {
        world.flush(0);
        world.check_exact();
    }
    world.reap(0);
    world.check_at_rest();
    let words = [world.credit(0), world.credit(1)];
    assert_eq!(world.charged(), 0, "nothing is held; opened: {opened}, words {words:?}");
    assert!(world.create(1, ELSEWHERE, CAP), "what was shared is free, and refused");
    world.check(CAP_UNITS);
}

/// The reverse: one that may die at any step opens what the other exports and frees.
///
/// It closes it, or not.
fn inherit(variant: Variant) {
    let world = Arc::new(World::sharing(CAP, variant));
    let second = {
        let world = Arc::clone(&world);
        loom::thread::spawn(move || {
            assert!(world.create(1, HERE, 2), "the other process allocates nothing");
            world.export(1, HERE, 2);
            world.free_exported(1, HERE);
            world.check(CAP_UNITS);
        })
    };
    let lived = live(Actor::Mortal, || {
        if world.open(0, THERE) {
            OPENED.fetch_add(1, Relaxed);
            world.check(CAP_UNITS);
            world.close(0, THERE);
        }
    });
    second.join().expect("it ends");
    world.check(CAP_UNITS);
    if lived.is_none() {
        world.reap(0);
    }
    let_live(Actor::Daemon, None);
    world.flush(1);
    if lived.is_some() {
        world.flush(0);
        world.check_exact();
    }
    world.check_at_rest();
    world.reap(1);
    assert_eq!(world.charged(), 0, "the last holder is gone");
}

/// A process exports while another thread of it takes all credit that it can get.
fn export_beside(variant: Variant) {
    let world = Arc::new(World::sharing(CAP, variant));
    assert!(world.create(0, HERE, 2));
    let second = {
        let world = Arc::clone(&world);
        loom::thread::spawn(move || {
            for (at, blocks) in [(ELSEWHERE, 2), (THERE, 1)] {
                world.create(0, at, blocks);
                world.check(CAP_UNITS);
            }
        })
    };
    world.export(0, HERE, 2);
    world.check(CAP_UNITS);
    second.join().expect("it ends");
    let_live(Actor::Daemon, None);
    world.check_at_rest();
    world.check_exact();
    world.free_exported(0, HERE);
    assert!(world.create(1, THERE, 2), "what was shared is free again");
    world.check(CAP_UNITS);
    world.check_at_rest();
}

/// One exports, lets the other open it or not, and ends; the daemon that vacates its slot may end, too.
fn bequeath(variant: Variant) {
    for opened in [false, true] {
        let world = World::sharing(CAP, variant);
        assert!(world.create(1, ELSEWHERE, 1) && world.create(0, HERE, 2));
        world.export(0, HERE, 2);
        assert_eq!(opened && world.open(1, THERE), opened);
        world.reap(0);
        world.check_exact();
    }
    let_live(Actor::Daemon, None);
}

#[test]
fn what_is_shared_is_charged_once_and_until_its_last_holder_lets_go() {
    let _turn = turn();
    let orders = explore(2, || share(Variant::Right)) + explore(3, || export_beside(Variant::Right));
    println!("{orders} orders");
    assert!(OPENED.swap(0, Relaxed) > 0, "nothing was ever opened");
}

#[test]
fn a_process_that_shares_may_die_at_any_step() {
    let _turn = turn();
    explore_deaths(Actor::Mortal, 1, share);
    OPENED.store(0, Relaxed);
    explore_deaths(Actor::Mortal, 2, inherit);
    assert!(OPENED.load(Relaxed) > 0, "nothing was ever opened");
}

#[test]
fn the_daemon_may_die_at_any_step_of_sharing() {
    let _turn = turn();
    explore_deaths(Actor::Daemon, 1, share);
    explore_deaths(Actor::Daemon, 1, inherit);
    explore_deaths(Actor::Daemon, 1, export_beside);
    explore_deaths(Actor::Daemon, 1, bequeath);
}

#[test]
fn each_mistake_that_could_be_made_in_sharing_is_found() {
    let _turn = turn();
    assert!(finds_fault(|| explore(2, || export_beside(Variant::HandsOverInTwoSteps))));
    assert!(finds_fault(|| explore(2, || share(Variant::DropsForAll))));
    assert!(with_death(Actor::Mortal, share, Variant::BuriesShares));
    assert!(with_death(Actor::Daemon, share, Variant::NotesExportsLast));
    assert!(with_death(Actor::Daemon, share, Variant::BelievesEveryNote));
    assert!(with_death(Actor::Daemon, share, Variant::SaysReleasesLast));
    assert!(with_death(Actor::Daemon, share, Variant::ForgetsShares));
}
