mod gpu;
mod streams;
mod telling;
mod transfers;
mod world;

use std::boxed::Box;
use std::collections::BTreeSet;

use core::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;
use tranche_shm::DeviceSlot;
use tranche_shm::compute::Tally;

use super::*;
use world::{CLOSED, DEVICE, MS, OPEN, World};

#[test]
fn without_a_gate_nothing_is_counted_and_everything_passes() {
    let world = World::new(Lease::UNGOVERNED);
    let grant = world.launch_after(0);
    assert!(grant.launches > 1_000_000);
    assert_eq!((world.tally(Tally::Launches), world.marked.get()), (0, 0));
}

#[test]
fn a_closed_gate_holds_a_launch_until_it_is_opened_and_rings() {
    let world = World::new(CLOSED);
    world.orders.borrow_mut().push((world.now.get() + 120 * MS, OPEN));
    let before = world.now.get();
    world.launch_after(0);
    assert!((120 * MS..125 * MS).contains(&(world.now.get() - before)));
    assert!(world.rung.get() >= 2, "once at first, and again as nobody came");
    assert_eq!((world.tally(Tally::Waiting), world.launched.get()), (0, 1));
    assert!(world.tally(Tally::WaitedNs) >= 120 * MS);
}

/// Wait of a launch at a closed gate.
///
/// Another lease was announced for the 30th millisecond.
fn wait_for_announced(world: &World, next: Lease) -> u64 {
    let before = world.now.get();
    world.daemon().announce(next, before + 30 * MS);
    world.orders.borrow_mut().push((before + 120 * MS, OPEN));
    world.launch_after(0);
    world.now.get() - before
}

#[test]
fn a_closed_gate_opens_by_itself_at_the_announced_time() {
    let world = World::new(CLOSED);
    assert_eq!(wait_for_announced(&world, OPEN), 30 * MS);
    // What passes then passes under the lease that was announced, until another decision.
    let before = world.now.get();
    world.launch_after(0);
    assert_eq!(world.now.get(), before, "as many as that allows");
    world.daemon().set_lease(CLOSED);
    let before = world.now.get();
    world.orders.borrow_mut().push((before + 60 * MS, OPEN));
    world.launch_after(0);
    assert!(world.now.get() - before >= 60 * MS, "it is void under another lease");
}

#[test]
fn an_announced_lease_opens_no_gate_if_it_is_closed_or_of_another_clock_or_the_slice_frozen() {
    assert!(wait_for_announced(&World::new(CLOSED), CLOSED) >= 120 * MS, "opening is only likely then");
    assert!(wait_for_announced(&World::new(Lease { frozen: true, ..CLOSED }), OPEN) >= 120 * MS);
    let world = World::new(CLOSED);
    world.daemon_ahead.set(-3600 * 1000 * MS as i64);
    world.pass(0);
    assert!(wait_for_announced(&world, OPEN) >= 120 * MS, "the time is of another namespace");
}

#[test]
fn what_is_outstanding_stays_within_the_depth_and_one_launch() {
    for kernel in [5_000, 50_000, 300_000, MS, 7 * MS] {
        let world = World::new(OPEN);
        world.kernel_ns.set(kernel);
        world.saturate(400);
        for _ in 0..2_000 {
            world.saturate(1);
            let most = 4 * MS + 2 * kernel + MS / 2;
            assert!(world.outstanding_ns() <= most, "{kernel}: {} outstanding", world.outstanding_ns());
        }
        assert_eq!(world.tally(Tally::Passes), 0);
    }
}

#[test]
fn a_saturating_program_keeps_the_gpu_busy_at_a_depth_of_four_milliseconds() {
    for kernel in [5_000, 50_000, MS] {
        let world = World::new(OPEN);
        world.kernel_ns.set(kernel);
        world.saturate(100);
        let (began, before) = (world.now.get(), world.launched.get());
        world.saturate(3_000);
        let ran = (world.launched.get() - before) * kernel;
        let passed = world.now.get() - began;
        assert!(ran * 100 >= passed.max(1) * 99 - 4 * MS * 100, "{kernel}: {ran} of {passed}");
    }
}

#[test]
fn how_long_a_kernel_takes_is_learnt() {
    for kernel in [20_000, 50_000, MS] {
        let world = World::new(OPEN);
        world.kernel_ns.set(kernel);
        world.saturate(3_000);
        let learnt = world.tally(Tally::KernelNs);
        assert!(learnt.abs_diff(kernel) <= kernel / 5, "{kernel} taken for {learnt}");
        world.kernel_ns.set(kernel / 4);
        world.saturate(3_000);
        let learnt = world.tally(Tally::KernelNs);
        assert!(learnt.abs_diff(kernel / 4) <= kernel / 16, "{} taken for {learnt}", kernel / 4);
    }
}

#[test]
fn a_program_that_waits_for_each_launch_is_busy_for_as_long_as_they_take() {
    let world = World::new(OPEN);
    for _ in 0..100 {
        world.launch_after(0);
        world.wait(Awaited::Stream);
        world.pass(3 * MS);
    }
    let device = DeviceSlot::new(DEVICE).unwrap();
    let busy = world.record().busy_ns(device).load(Relaxed);
    assert!(busy.abs_diff(100 * MS) < 2 * MS, "{busy}");
    assert_eq!(world.record().busy_since_ns(device).load(Relaxed), 0);
    let learnt = world.tally(Tally::KernelNs);
    assert!(learnt.abs_diff(MS) < MS / 10, "{learnt}");
}

#[test]
fn a_program_that_never_waits_is_not_charged_for_its_gaps() {
    let world = World::new(OPEN);
    for _ in 0..100 {
        world.launch_after(0);
        world.pass(20 * MS);
    }
    let busy = world.record().busy_ns(DeviceSlot::new(DEVICE).unwrap()).load(Relaxed);
    assert!((80 * MS..400 * MS).contains(&busy), "{busy} for 100 ms of work within 2 s");
}

#[test]
fn a_kernel_that_never_ends_lets_one_more_launch_pass_each_fiftieth_of_a_second() {
    let world = World::new(OPEN);
    world.kernel_ns.set(MS);
    world.saturate(100);
    world.wait(Awaited::Context);
    // It spins until the third launch from now has begun.
    world.kernel_ns.set(1 << 60);
    world.saturate(1);
    let began = world.now.get();
    let mut grants = 0;
    for _ in 0..6 {
        grants += world.launch_after(0).launches;
    }
    assert!(world.now.get() - began <= 6 * 60 * MS, "{}", world.now.get() - began);
    assert!(world.tally(Tally::Passes) >= 2, "{}", world.tally(Tally::Passes));
    assert_eq!(grants, 0);
}

#[test]
fn work_longer_than_any_before_holds_its_own_stream_for_four_of_the_longest() {
    let world = World::new(Lease { bell: true, ..OPEN });
    world.kernel_ns.set(40 * MS);
    world.saturate(100);
    world.wait(Awaited::Context);
    world.kernel_ns.set(1 << 60);
    world.saturate(1);
    let took = || {
        let began = world.now.get();
        world.launch_after(0);
        world.now.get() - began
    };
    let before = (0..4).map(|_| took()).max();
    world.stream.set(9);
    assert!(took() <= 60 * MS);
    world.stream.set(5);
    let last = took();
    assert!((160 * MS..230 * MS).contains(&last), "{last} after {before:?}");
}

#[test]
fn what_is_captured_passes_a_closed_gate_and_is_not_counted() {
    let world = World::new(CLOSED);
    world.captured.set(true);
    let before = world.now.get();
    assert_eq!(world.launch_after(0), Grant::NONE);
    assert_eq!((world.now.get(), world.tally(Tally::Launches)), (before, 0));
}

#[test]
fn without_a_daemon_launches_pass_counted_and_bounded_until_it_is_back() {
    let world = World::new(CLOSED);
    world.daemon_lives.set(false);
    world.launch_after(0);
    // It beat last at 1,000 ms. What waits when a daemon dies may stand still for a second at most.
    assert!((800 * MS..=810 * MS).contains(&(world.now.get() - 1_000 * MS)), "{}", world.now.get());
    for _ in 0..50 {
        world.launch_after(0);
        assert!(world.outstanding_ns() <= 8 * MS, "{}", world.outstanding_ns());
    }
    assert_eq!(world.tally(Tally::Degraded), 51);
    assert_closed_once_it_returned(&world, 30 * MS);
}

/// A daemon returns, and the gate is closed again until it opens the lease after this time.
fn assert_closed_once_it_returned(world: &World, opens_after: u64) {
    let degraded = world.tally(Tally::Degraded);
    world.daemon_lives.set(true);
    world.pass(MS);
    let now = world.now.get();
    world.orders.borrow_mut().push((now + opens_after, OPEN));
    world.launch_after(0);
    assert!(world.now.get() >= now + opens_after, "the gate is closed again");
    assert_eq!(world.tally(Tally::Degraded), degraded);
}

/// A launch that waits when a daemon is killed passes within 50 ms; the next waits for the successor.
#[test]
fn killed_daemon_is_seen_to_have_ended_until_another_beats() {
    for since_beat in [0, 1, 77, 199] {
        let world = World::new(CLOSED);
        world.daemon_shows_end.set(true);
        world.daemon_lives.set(false);
        world.pass(since_beat * MS);
        for launch in 1..=50 {
            let began = world.now.get();
            world.launch_after(0);
            assert!(world.now.get() - began <= 30 * MS, "{launch}: {}", world.now.get() - began);
        }
        assert_eq!(world.tally(Tally::Degraded), 50);
        assert_closed_once_it_returned(&world, 2_000 * MS);
    }
}

/// `unshare --time --monotonic`, in either direction.
#[test]
fn gate_in_another_time_namespace_waits_while_daemon_lives() {
    for ahead in [-900_000_000_000, -900_000_000, 3_000_000_000, 900_000_000_000_i64] {
        let world = World::new(CLOSED);
        world.daemon_ahead.set(ahead);
        world.now.set(1_000_000 * MS);
        world.pass(0);
        let began = world.now.get();
        world.orders.borrow_mut().push((began + 5_000 * MS, OPEN));
        world.launch_after(0);
        assert!(world.now.get() - began >= 5_000 * MS, "by {ahead}: {}", world.now.get() - began);
        assert_eq!(world.tally(Tally::Degraded), 0, "by {ahead}");

        world.daemon().set_lease(CLOSED);
        world.daemon_lives.set(false);
        let died = world.now.get();
        world.launch_after(0);
        let stood = world.now.get() - died;
        assert!((750 * MS..=900 * MS).contains(&stood), "by {ahead}: {stood} after the daemon died");
        assert_eq!(world.tally(Tally::Degraded), 1, "by {ahead}");
    }
}

/// A process that begins anew each time has never seen the daemon away.
#[test]
fn new_process_under_an_old_heartbeat_waits_its_time_first() {
    let world = World::new(CLOSED);
    world.daemon_lives.set(false);
    world.pass(60_000 * MS);
    let began = world.now.get();
    world.launch_after(0);
    assert!(world.now.get() - began >= 800 * MS, "{}", world.now.get() - began);
    assert_eq!(world.tally(Tally::Degraded), 1);
}

#[test]
fn what_is_frozen_waits_until_it_is_thawed_with_or_without_a_daemon() {
    let world = World::new(Lease { frozen: true, ..OPEN });
    world.daemon_lives.set(false);
    world.orders.borrow_mut().push((world.now.get() + 5_000 * MS, OPEN));
    let before = world.now.get();
    world.launch_after(0);
    assert!(world.now.get() - before >= 5_000 * MS);
    assert_eq!(world.tally(Tally::Passes), 0);
}

#[test]
fn with_a_bell_it_rings_when_work_begins_and_when_there_is_none_any_more() {
    let world = World::new(Lease { bell: true, ..OPEN });
    world.launch_after(0);
    assert_eq!(world.rung.get(), 1);
    world.launch_after(0);
    assert_eq!(world.rung.get(), 1);
    world.wait(Awaited::Context);
    assert_eq!(world.rung.get(), 2);
}

#[test]
fn it_rings_when_all_else_ended_while_the_driver_took_a_launch() {
    let world = World::new(Lease { bell: true, ..OPEN });
    world.launch_after(0);
    world.launch_after(0);
    assert_eq!(world.rung.get(), 1);
    // The daemon sees that both are done, and looks again only for a signal.
    world.stops.set(30 * MS);
    world.launch_after(0);
    assert_eq!(world.rung.get(), 2);
    world.launch_after(0);
    assert_eq!(world.rung.get(), 2);
}

#[test]
fn a_refused_launch_leaves_no_trace() {
    struct Refusing<'a>(&'a World);
    impl Launch for Refusing<'_> {
        fn is_captured(&self) -> bool {
            false
        }
        fn place(&self) -> Option<LaunchTarget> {
            self.0.place()
        }
        fn launch(&self) -> i32 {
            719
        }
        fn mark(&self, _: u32) -> bool {
            panic!("there is nothing to mark")
        }
    }
    let world = World::new(OPEN);
    let (result, grant) = world.gate().launch(Spent::default(), Work::Kernel, &world, &Refusing(&world));
    assert_eq!((result, grant), (719, Grant::NONE));
    assert_eq!(world.record().busy_since_ns(DeviceSlot::new(DEVICE).unwrap()).load(Relaxed), 0);
    assert_eq!(world.tally(Tally::Launches), 0);
}

#[test]
fn graphs_are_learnt_each_by_itself() {
    let world = World::new(OPEN);
    let run = |graph: u64, takes: u64| {
        world.kernel_ns.set(takes);
        world.gate().launch(Spent::default(), Work::Graph(graph), &world, &world);
        world.wait(Awaited::Stream);
    };
    for _ in 0..20 {
        run(0x1000, 3 * MS);
        run(0x2000, MS / 2);
    }
    let cost = |graph| world.gate().state.graph_ns(graph).unwrap();
    assert!(cost(0x1000).abs_diff(3 * MS) < MS / 4 && cost(0x2000).abs_diff(MS / 2) < MS / 10);
    world.gate().graph_gone(0x1000);
    assert_eq!(world.gate().state.graph_ns(0x1000), None);
    assert_eq!(world.tally(Tally::Graphs), 40);
}

#[test]
fn a_lost_context_leaves_nothing_outstanding() {
    let world = World::new(OPEN);
    world.saturate(3);
    assert!(world.gate().pending(&world).any);
    world.gate().context_gone(77);
    let device = DeviceSlot::new(DEVICE).unwrap();
    assert_eq!(world.record().marks().outstanding(device).marks, 0);
}

#[test]
fn a_driver_that_writes_no_marks_is_governed_by_what_the_program_waits_for() {
    let world = World::new(OPEN);
    world.can_mark.set(false);
    for _ in 0..10 {
        world.launch_after(0);
        world.wait(Awaited::Stream);
    }
    assert_eq!(world.tally(Tally::Launches), 10);
    assert_eq!(world.record().marks().pending().count(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Launch(u8),
    Graph(u64),
    Transfer(u64),
    Wait(u8),
    Pass(u32),
    Takes(u32),
    Lease(u64),
    Capture(bool),
    Daemon(bool),
    Mark(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any::<u8>().prop_map(Step::Launch),
        2 => (0u64..4).prop_map(Step::Graph),
        3 => (0u64..1 << 24).prop_map(Step::Transfer),
        2 => any::<u8>().prop_map(Step::Wait),
        3 => (0u32..30_000_000).prop_map(Step::Pass),
        1 => (100u32..50_000_000).prop_map(Step::Takes),
        2 => any::<u64>().prop_map(Step::Lease),
        1 => any::<bool>().prop_map(Step::Capture),
        1 => any::<bool>().prop_map(Step::Daemon),
        1 => any::<bool>().prop_map(Step::Mark),
    ]
}

impl World {
    /// Streams with marks that were not found reached yet.
    fn streams_pending(&self) -> u64 {
        let (gate, device) = (self.gate(), DeviceSlot::new(DEVICE).unwrap());
        let pending = gate.state.pending_on(device);
        let streams: BTreeSet<u64> =
            pending.map(|place| gate.state.about(place, state::About::Stream)).collect();
        streams.len() as u64
    }

    fn streams_counted(&self) -> u64 {
        self.gate().state.get(DeviceSlot::new(DEVICE).unwrap(), state::DeviceWord::Streams)
    }

    fn take(&self, step: &Step) {
        match *step {
            Step::Launch(spent) => {
                self.stream.set(5 + u64::from(spent) % 3);
                self.launch_after(spent.into());
            }
            Step::Graph(graph) => {
                let _ = self.gate().launch(Spent::default(), Work::Graph(graph + 1), self, self);
            }
            Step::Transfer(bytes) => {
                let transfer = Transfer { route: Route::Fill, bytes };
                let _ = self.gate().launch(Spent::default(), Work::Transfer(transfer), self, self);
            }
            Step::Wait(what) => {
                self.wait([Awaited::Context, Awaited::Stream, Awaited::Event][usize::from(what) % 3]);
            }
            Step::Pass(nanoseconds) => self.pass(nanoseconds.into()),
            Step::Takes(nanoseconds) => self.kernel_ns.set(nanoseconds.into()),
            Step::Lease(word) => {
                self.daemon().set_lease(Lease { frozen: false, ..Lease::decode(word) });
                // A daemon opens each slice again.
                self.orders.borrow_mut().push((self.now.get() + 100 * MS, OPEN));
            }
            Step::Capture(captured) => self.captured.set(captured),
            Step::Daemon(lives) => self.daemon_lives.set(lives),
            Step::Mark(can) => self.can_mark.set(can),
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_no_launch_waits_long_and_nobody_is_charged_more_than_time_passed(
        steps in proptest::collection::vec(step(), 1..120)
    ) {
        let world = Box::new(World::new(OPEN));
        let began = world.now.get();
        for step in &steps {
            let before = world.now.get();
            world.take(step);
            if matches!(step, Step::Launch(_) | Step::Graph(_) | Step::Transfer(_)) {
                // The daemon gone, the lease closed and its own work stuck, one after the other.
                prop_assert!(world.now.get() - before <= 1_400 * MS, "{step:?}");
            }
            prop_assert!(world.tally(Tally::Waiting) == 0);
            prop_assert!(world.record().marks().pending().count() <= 32);
            prop_assert_eq!(world.streams_pending(), world.streams_counted());
        }
        let busy = world.record().busy_ns(DeviceSlot::new(DEVICE).unwrap()).load(Relaxed);
        prop_assert!(busy <= world.now.get() - began);
    }
}
