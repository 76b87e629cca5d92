//! The wall clock is set, by hours and by years, forwards and back; terms run by another clock.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use e2e::{Node, compile};
use stress::report::Claim;

use crate::client::Client;
use crate::outcome::Outcome;
use crate::world::World;

const HOUR: i64 = 3600;
/// Settings of the clock in turn, in seconds from its value.
const SHIFTS: [i64; 8] = [3 * HOUR, -3 * HOUR, 26 * HOUR, 0, -9000 * HOUR, 1, 9000 * HOUR, -26 * HOUR];
/// Time for which an ephemeral slice waits for its first process, and the delay allowed until its end.
const ENTRY_PATIENCE: Duration = Duration::from_secs(10);
const LATE: Duration = Duration::from_secs(5);
/// Kinds of events that only the clock could cause here.
const ALARMS: [&str; 8] = [
    "over-cap",
    "killed",
    "gpu-fault",
    "under-reported",
    "gate-bypassed",
    "usage-tampered",
    "unshimmed-process",
    "history-incomplete",
];

/// Sets the clock `jumps` times.
pub(crate) fn run(jumps: u64) -> Outcome {
    let mut node = Node::without_daemon("v100x8");
    let clock = Clock::of(&mut node);
    node.start_daemon();
    let world = World::populate(node);
    let degraded = degraded(&world);
    let (waiting, seen) = (Waiting::begin(&world), jumps_seen(&world, &clock, jumps));
    waiting.end(&world);
    clock.set(0);
    world.close();
    let alarms = world.node().events().iter().filter(|event| ALARMS.contains(&&*event.kind)).count() as u64;
    let zero = |name| Claim::exactly(name, world.toll.count(name), "times", 0);
    let claims = vec![
        Claim::at_least("jumps_seen_by_the_daemon", seen, "jumps", jumps),
        Claim::exactly("alarms", alarms, "events", 0),
        Claim::exactly("launches_ungoverned", self::degraded(&world).saturating_sub(degraded), "launches", 0),
        zero("ended_too_early"),
        zero("ended_too_late"),
        zero("events_out_of_order"),
        zero("slices_wrong"),
        zero("charges_wrong"),
        zero("processes_lost"),
        zero("tenants_died"),
        zero("tenants_stuck"),
        zero("panics"),
    ];
    Outcome { claims, ..Outcome::default() }
}

/// Offset of the daemon's clock from the machine's, in a file.
struct Clock(File);

impl Clock {
    fn of(node: &mut Node) -> Self {
        let library =
            compile("tests/chaos/c/clock.c", &["-shared", "-fPIC"]).expect("the tests need a C compiler");
        let page = node.dir().join("clock");
        fs::write(&page, [0; 8]).expect("the directory can be written");
        let variables = vec![("LD_PRELOAD", library.into()), ("CHAOS_CLOCK", page.clone().into_os_string())];
        node.set_daemon(node.stage().daemon(), variables);
        Self(File::options().write(true).open(page).expect("the page is there"))
    }

    fn set(&self, seconds: i64) {
        let shift = (seconds * 1_000_000_000).to_le_bytes();
        self.0.write_all_at(&shift, 0).expect("the page can be written");
    }
}

/// Sets the clock again and again; returns how often an event of the daemon had the new time.
fn jumps_seen(world: &World, clock: &Clock, jumps: u64) -> u64 {
    let mut seen = 0;
    for (number, shift) in (0..jumps).zip(SHIFTS.iter().cycle()) {
        clock.set(*shift);
        let name = format!("jump-{number}");
        let node = world.node();
        node.tranche(&["slice", "create", &name, "--memory", "1Gi", "--gpu", "5"]).success();
        node.tranche(&["slice", "delete", &name]).success();
        let events = node.events();
        let in_order = events.windows(2).all(|two| two[0].seq < two[1].seq);
        world.toll.wrong_if(!in_order, "events_out_of_order", || format!("after {shift} s"));
        let made = events.iter().find(|event| event.slice.as_deref() == Some(&*name));
        let off = made.map_or(i64::MAX, |event| event.time_unix_ms.cast_signed() / 1000 - now_s() - shift);
        seen += u64::from(off.abs() < 60);
        drop(node);
        sleep(Duration::from_millis(700));
        world.look_beside(|name| name == Waiting::NAME);
    }
    seen
}

fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs().cast_signed()
}

/// Launches that passed a closed gate because the daemon seemed to be away.
fn degraded(world: &World) -> u64 {
    world.node().smi().slices.iter().map(|slice| slice.launches_degraded).sum()
}

/// An ephemeral slice that waits for its first process: for its term, and no longer.
struct Waiting(std::time::Instant);

impl Waiting {
    const NAME: &str = "waiting";

    fn begin(world: &World) -> Self {
        let made = Client::of(&world.node().socket()).create(Self::NAME, 1 << 30, 6, true);
        made.expect("there is room for another slice");
        Self(std::time::Instant::now())
    }

    fn end(self, world: &World) {
        loop {
            let is_there = world.node().smi().find(Self::NAME).is_some();
            let age = self.0.elapsed();
            if !is_there {
                let early = age < ENTRY_PATIENCE;
                return world.toll.wrong_if(early, "ended_too_early", || format!("after {age:?}"));
            }
            if age > ENTRY_PATIENCE + LATE {
                return world.toll.wrong("ended_too_late", || format!("it is there after {age:?}"));
            }
            sleep(Duration::from_millis(100));
        }
    }
}
