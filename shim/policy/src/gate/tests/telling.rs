//! The record for the daemon: waiting threads, lengths of launches, outstanding work.

use core::sync::atomic::Ordering::Relaxed;

use super::super::measure::CompletionGlance;
use super::super::state::DeviceWord;
use super::super::*;
use super::world::{CLOSED, DEVICE, MS, OPEN, World};
use tranche_shm::compute::Tally;

fn pending(world: &World) -> usize {
    world.record().marks().pending().count()
}

#[test]
fn a_thread_that_waits_for_room_is_said_to_wait() {
    let world = World::new(OPEN);
    world.saturate(20);
    assert!(world.slept.get() > 0, "nothing waited");
    assert_eq!((world.seen_waiting.get(), world.tally(Tally::Waiting)), (1, 0));
    assert_eq!(world.tally(Tally::WaitedNs), 0, "that is for the daemon's turns");
}

#[test]
fn whoever_waits_for_room_has_marked_what_it_launched_before() {
    let world = World::new(Lease { depth_us: 1_000_000, ..OPEN });
    world.kernel_ns.set(MS);
    for _ in 0..20 {
        world.launch_after(0);
        world.wait(Awaited::Context);
    }
    world.launch_after(0);
    // These are recorded together with the next.
    for _ in 0..3 {
        world.launch();
    }
    world.daemon().set_lease(Lease { depth_us: 0, ..OPEN });
    let before = world.now.get();
    world.launch_after(3);
    assert!(world.now.get() - before < 5 * MS, "{} ns for 4 ms of work", world.now.get() - before);
    assert_eq!((pending(&world), world.tally(Tally::Passes)), (1, 0));
}

#[test]
fn launches_made_one_by_one_follow_each_other_at_once() {
    for (kernel, most) in [(MS, 5_000), (10 * MS, 100_000)] {
        let world = World::new(Lease { depth_us: 0, least: 1, ..OPEN });
        world.kernel_ns.set(kernel);
        world.saturate(10);
        let (before, slept) = (world.now.get(), world.slept.get());
        world.saturate(100);
        let gap = (world.now.get() - before) / 100 - kernel;
        assert!(gap <= most, "the GPU is idle for {gap} ns before each launch of {kernel}");
        assert!(world.slept.get() - slept >= 100, "a thread sleeps for most of the time");
    }
}

#[test]
fn a_program_of_graphs_alone_tells_what_they_take() {
    let world = World::new(OPEN);
    for at in 0..40 {
        world.kernel_ns.set(if at % 2 == 0 { MS } else { 3 * MS });
        world.gate().launch(Spent::default(), Work::Graph(0x1000 + at % 2), &world, &world);
    }
    let told = world.tally(Tally::KernelNs);
    assert!((MS..3 * MS).contains(&told), "{told} for graphs of 1 and 3 ms");
    let said = world.record().marks().outstanding(DeviceSlot::new(DEVICE).unwrap());
    assert!(said.estimate_us >= 1_000, "{said:?}");
}

#[test]
fn a_long_kernel_that_comes_once_is_forgotten_within_a_few_times_its_length() {
    for (kernel, long) in [(50_000, 20 * MS), (MS, 100 * MS), (10 * MS, 300 * MS)] {
        let world = World::new(OPEN);
        let run = |takes: u64, for_so_long: u64| {
            world.kernel_ns.set(takes);
            let until = world.now.get() + for_so_long;
            let mut longest = 0;
            while world.now.get() < until {
                world.saturate(1);
                longest = world.tally(Tally::LongestNs).max(longest);
            }
            longest
        };
        run(kernel, 200 * MS);
        run(long, 1);
        // A measurement has it and up to as many brief ones as stand behind two marks.
        assert!(run(kernel, 6 * long) > long / 20, "{kernel}: it was not noticed");
        let longest = world.tally(Tally::LongestNs);
        assert!(longest <= (4 * kernel).max(long / 8), "{kernel} beside {long}: {longest}");
    }
}

#[test]
fn a_program_of_bursts_that_nobody_waits_for_is_marked_once_each_and_its_kernels_are_known() {
    let world = World::new(Lease { depth_us: 20_000, ..OPEN });
    world.kernel_ns.set(50_000);
    let burst = |times| {
        for _ in 0..times {
            world.saturate(40);
            world.wait(Awaited::Stream);
        }
    };
    burst(20);
    let (marked, slept, kernel) = (world.marked.get(), world.slept.get(), world.tally(Tally::KernelNs));
    assert!(kernel.abs_diff(50_000) <= 10_000, "50 us taken for {kernel} ns");
    burst(100);
    assert_eq!(world.marked.get() - marked, 100, "marks of a hundred bursts");
    assert_eq!(world.tally(Tally::Launches), 120 * 40);
    assert_eq!(world.slept.get(), slept, "two of twenty milliseconds are outstanding");
}

#[test]
fn what_was_done_before_the_program_waited_did_not_take_until_then() {
    let world = World::new(OPEN);
    world.kernel_ns.set(50_000);
    for _ in 0..50 {
        world.launch_after(0);
        world.wait(Awaited::Stream);
    }
    let busy = || world.record().busy_ns(DeviceSlot::new(DEVICE).unwrap()).load(Relaxed);
    let before = busy();
    for _ in 0..50 {
        world.launch_after(0);
        world.pass(10 * MS);
        world.wait(Awaited::Stream);
    }
    let (busy, kernel) = (busy() - before, world.tally(Tally::KernelNs));
    assert!(kernel <= 100_000, "50 us taken for {kernel} ns");
    assert!(busy <= 50 * 500_000, "{busy} ns for 2.5 ms of work within half a second");
}

#[test]
fn what_a_thread_launches_by_itself_is_booked_where_that_was_granted() {
    struct Elsewhere;
    impl Launch for Elsewhere {
        fn is_captured(&self) -> bool {
            false
        }
        fn place(&self) -> Option<LaunchTarget> {
            Some(LaunchTarget { device: DeviceSlot::new(DEVICE + 1)?, context: 78, stream: 9 })
        }
        fn launch(&self) -> i32 {
            0
        }
        fn mark(&self, _: u32) -> bool {
            false
        }
    }
    let world = World::new(OPEN);
    world.kernel_ns.set(50_000);
    world.saturate(100);
    world.wait(Awaited::Stream);
    let (here, there) = (DeviceSlot::new(DEVICE).unwrap(), DeviceSlot::new(DEVICE + 1).unwrap());
    let grant = world.launch_after(0);
    assert!(grant.launches > 3 && grant.device == Some(here), "{grant:?}");
    let entered = |device| world.gate().state.get(device, DeviceWord::Entered);
    let before = entered(here);
    let (_, elsewhere) =
        world.gate().launch(grant.spent(grant.launches - 3), Work::Kernel, &world, &Elsewhere);
    assert_eq!((entered(here) - before, entered(there)), (3, 1));
    assert_eq!(world.gate().state.get(here, DeviceWord::Unmarked), 3);
    assert!(elsewhere.device.is_none_or(|device| device == there), "{elsewhere:?}");
}

#[test]
fn kernels_that_become_longer_are_known_though_each_burst_outlasts_its_mark() {
    let world = World::new(Lease { depth_us: 20_000, ..OPEN });
    let burst = |kernel_ns| {
        world.kernel_ns.set(kernel_ns);
        for _ in 0..40 {
            world.saturate(1);
            world.pass(3_000);
        }
        world.wait(Awaited::Stream);
    };
    (0..20).for_each(|_| burst(20_000));
    (0..20).for_each(|_| burst(80_000));
    let kernel = world.tally(Tally::KernelNs);
    assert!(kernel.abs_diff(80_000) <= 16_000, "80 us taken for {kernel} ns");
}

/// Takes turns of 5 ms, which have room for a few launches each. The rest ends while the gate is closed.
fn take_turns(world: &World, turns: u64) {
    for _ in 0..turns {
        let began = world.now.get();
        world.orders.borrow_mut().push((began + 5 * MS, CLOSED));
        world.orders.borrow_mut().push((began + 20 * MS, OPEN));
        while world.now.get() < began + 20 * MS {
            world.launch_after(0);
        }
    }
}

#[test]
fn kernels_that_become_longer_are_known_in_turns_of_a_few_launches() {
    for longer in [1_300_000, 1_700_000, 2_000_000] {
        let world = World::new(OPEN);
        take_turns(&world, 20);
        world.kernel_ns.set(longer);
        take_turns(&world, 60);
        let kernel = world.tally(Tally::KernelNs);
        assert!(kernel.abs_diff(longer) <= longer / 20, "{longer} ns taken for {kernel}");
    }
}

/// Launches one kernel in each of two streams and one more in the first. The GPU has run them all.
///
/// Words of their marks have not come, but for the last one if `last`.
fn launch_in_two_streams(world: &World, last: bool) {
    world.words_come.set(false);
    for stream in [5, 6] {
        world.stream.set(stream);
        world.launch_after(0);
        world.pass(2 * MS);
    }
    world.stream.set(5);
    world.words_come.set(last);
    world.launch_after(0);
    world.pass(2 * MS);
    world.words_come.set(false);
}

#[test]
fn a_wait_for_a_stream_ends_the_marks_of_that_stream_whose_words_are_late() {
    let world = World::new(OPEN);
    launch_in_two_streams(&world, false);
    assert_eq!(pending(&world), 3);
    let before = world.gate().last();
    world.launch_after(0);
    world.gate().waited(Spent::default(), Awaited::Event, world.place().unwrap(), before, &world);
    assert_eq!(pending(&world), 4, "an event may stand before them");
    world.gate().waited(Spent::default(), Awaited::Stream, world.place().unwrap(), before, &world);
    assert_eq!(pending(&world), 2, "that of the other stream, and that of a launch after the wait began");
    world.stream.set(6);
    world.wait(Awaited::Stream);
    world.stream.set(5);
    world.wait(Awaited::Stream);
    assert_eq!(pending(&world), 0);
    assert_eq!(world.record().busy_since_ns(DeviceSlot::new(DEVICE).unwrap()).load(Relaxed), 0);
}

#[test]
fn a_mark_that_was_reached_shows_that_those_before_it_in_its_stream_were() {
    let world = World::new(OPEN);
    launch_in_two_streams(&world, true);
    assert_eq!(pending(&world), 2, "one of each stream has no word");
    world.gate().look(world.place().unwrap(), CompletionGlance::at(world.now.get()));
    assert_eq!(pending(&world), 1, "that of the other stream");
}

#[test]
fn a_stream_with_the_handle_of_one_that_was_destroyed_ends_no_work_of_that() {
    let world = World::new(OPEN);
    launch_in_two_streams(&world, false);
    world.gate().stream_ends(5);
    world.launch_after(0);
    assert_eq!(pending(&world), 4);
    world.wait(Awaited::Stream);
    assert_eq!(pending(&world), 3, "both of the destroyed one's are left, and another stream's");
    world.words_come.set(true);
    world.launch_after(0);
    world.pass(2 * MS);
    world.launch_after(0);
    assert!(pending(&world) >= 3, "a mark that was reached ends none of a destroyed stream");
}

#[test]
fn a_mark_that_the_driver_refused_shows_nothing_of_those_before_it() {
    let world = World::new(OPEN);
    world.kernel_ns.set(50 * MS);
    world.launch_after(0);
    world.can_mark.set(false);
    world.kernel_ns.set(MS);
    while pending(&world) < 1 || world.launched.get() < 2 {
        world.launch_after(0);
    }
    world.gate().look(world.place().unwrap(), CompletionGlance::at(world.now.get()));
    assert_eq!(pending(&world), 1, "that of the first launch, which runs");
}
