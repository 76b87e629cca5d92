//! Copies and fills that count, alone and among kernels.

use super::super::*;
use super::world::{CLOSED, DEVICE, MS, OPEN, World};
use tranche_shm::compute::Tally;

const FILL: Transfer = Transfer { route: Route::Fill, bytes: 64 << 20 };
const SMALL: Transfer = Transfer { route: Route::Device, bytes: 4 << 10 };

fn cost(world: &World, transfer: Transfer) -> u64 {
    world.gate().state.graph_ns(transfer.key()).unwrap_or(0)
}

/// One of them, which takes so long.
fn transfer(world: &World, transfer: Transfer, takes: u64) {
    world.kernel_ns.set(takes);
    world.gate().launch(Spent::default(), Work::Transfer(transfer), world, world);
    world.pass(2_000);
}

fn kernel(world: &World, takes: u64) {
    world.kernel_ns.set(takes);
    world.launch_after(0);
    world.pass(2_000);
}

#[test]
fn what_a_transfer_takes_is_learnt_by_route_and_size_and_disturbs_no_kernel() {
    let world = World::new(OPEN);
    for _ in 0..100 {
        kernel(&world, MS);
    }
    world.wait(Awaited::Context);
    let learnt = world.gate().kernel_ns();
    for _ in 0..300 {
        transfer(&world, FILL, 3 * MS);
        world.wait(Awaited::Stream);
        transfer(&world, SMALL, 5_000);
        world.wait(Awaited::Stream);
    }
    let (fill, small) = (cost(&world, FILL), cost(&world, SMALL));
    assert!(fill.abs_diff(3 * MS) < MS / 4, "{fill}");
    assert!(small.abs_diff(5_000) < 2_000, "{small}");
    assert_eq!(world.gate().kernel_ns(), learnt);
    assert_eq!(
        cost(&world, Transfer { bytes: 2 * SMALL.bytes, ..SMALL }),
        0,
        "another size is another matter"
    );
    assert_eq!(cost(&world, Transfer { route: Route::Upload, ..SMALL }), 0, "and so is another route");
    assert_eq!((world.tally(Tally::Launches), world.tally(Tally::Graphs)), (700, 0));
}

#[test]
fn sizes_are_alike_to_a_power_of_two() {
    let key = |bytes| Transfer { bytes, ..SMALL }.key();
    assert_eq!(key(4096), key(8191));
    assert_ne!(key(4095), key(4096));
    assert_ne!((key(0), key(u64::MAX)), (key(1), state::SEVERAL));
}

#[test]
fn a_closed_gate_holds_a_transfer_and_a_captured_one_passes_uncounted() {
    let world = World::new(CLOSED);
    world.captured.set(true);
    transfer(&world, FILL, MS);
    assert_eq!(world.tally(Tally::Launches), 0);
    world.captured.set(false);
    let before = world.now.get();
    world.orders.borrow_mut().push((before + 20 * MS, OPEN));
    transfer(&world, FILL, MS);
    assert!(world.now.get() - before >= 20 * MS);
    assert_eq!(world.tally(Tally::Launches), 1);
}

#[test]
fn transfers_of_any_length_are_bounded_by_the_depth_and_keep_the_gpu_busy() {
    for takes in [2_500, 20_000, 400_000, 3 * MS] {
        let world = World::new(OPEN);
        for _ in 0..400 {
            transfer(&world, FILL, takes);
        }
        let (began, mut ran) = (world.now.get(), 0);
        for _ in 0..3_000 {
            transfer(&world, FILL, takes);
            ran += takes;
            let outstanding = world.outstanding_ns();
            assert!(outstanding <= 4 * MS + 2 * takes + MS / 2, "{takes}: {outstanding} outstanding");
        }
        let passed = world.now.get() - began;
        assert!(ran + 4 * MS >= passed / 100 * 98, "{takes}: {ran} of {passed}");
        assert_eq!(world.tally(Tally::Passes), 0);
    }
}

#[test]
fn short_transfers_share_marks() {
    let world = World::new(OPEN);
    (0..100).for_each(|_| transfer(&world, SMALL, 5_000));
    let before = world.marked.get();
    (0..1_000).for_each(|_| transfer(&world, SMALL, 5_000));
    let marks = world.marked.get() - before;
    assert!((10..=60).contains(&marks), "{marks} marks behind 5 ms of transfers");
}

#[test]
fn among_kernels_and_transfers_the_sum_is_right_whatever_comes_first() {
    let device = DeviceSlot::new(DEVICE).unwrap();
    for (kernels, transfers) in [(50_000, 5_000), (5_000, 50_000), (300_000, 300_000)] {
        let world = World::new(OPEN);
        for at in 0..4_000 {
            if at % 2 == 0 {
                kernel(&world, kernels);
            } else {
                transfer(&world, SMALL, transfers);
            }
            let outstanding = world.outstanding_ns();
            let most = if at < 200 { 20 * MS } else { 6 * MS };
            assert!(outstanding <= most, "{kernels} and {transfers}: {outstanding} outstanding");
        }
        let pair = world.gate().kernel_ns() + cost(&world, SMALL);
        assert!(pair.abs_diff(kernels + transfers) <= (kernels + transfers) / 4, "{pair}");
        let busy = world.record().busy_ns(device).load(core::sync::atomic::Ordering::Relaxed);
        let since = world.record().busy_since_ns(device).load(core::sync::atomic::Ordering::Relaxed);
        let passed = world.now.get() - 1_000 * MS;
        assert!(since != 0 && busy + (world.now.get() - since) <= passed + MS, "{busy}");
    }
}

#[test]
fn transfers_of_several_kinds_by_turns_are_learnt_each() {
    let copy = Transfer { route: Route::Device, ..FILL };
    for (first, second) in [(440_000, 870_000), (3 * MS, MS)] {
        let world = World::new(Lease { bell: true, ..OPEN });
        for _ in 0..1_000 {
            transfer(&world, FILL, first);
            transfer(&world, copy, second);
        }
        let (fill, copied) = (cost(&world, FILL), cost(&world, copy));
        let near = |found: u64, takes: u64| found.abs_diff(takes) <= takes / 8;
        assert!(near(fill, first) && near(copied, second), "{fill} and {copied}");
        assert!(near(world.tally(Tally::LongestNs), first.max(second)));
    }
}
