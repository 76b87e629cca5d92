//! The daemon is killed before, during and after each step.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use chaos::points::{AIM, Aim, SAYS, Said};
use e2e::PATIENCE;
use stress::chance::Chance;
use stress::points::{JOBS, PREEMPTIONS};
use teams::scenario::{Act, Step, steps};
use teams::world::World;

use super::{holds, nothing_is_lost};

const DAEMON: &str = env!("CARGO_BIN_EXE_tranched-with-job-points");

/// Crash points at which the daemons of a step die, one after the other, and at which passing.
///
/// At a step without an entry, the daemon is killed as soon as it has answered.
const DEATHS: &[(&str, &[(&str, u64)])] = &[
    ("a-1-1-jupyter", &[("jobs: keeping", 1)]),
    ("a-1-g", &[("jobs: kept", 1)]),
    ("a-2-gg", &[("jobs: keeping", 2), ("jobs: kept", 2)]),
    ("b-1-g06", &[("jobs: opened", 1)]),
    ("b-2-g04", &[("jobs: prepared", 1)]),
    ("b-3-g", &[("jobs: hailed", 1), ("jobs: opened", 1)]),
    ("b-4-gg", &[("jobs: entered", 1)]),
    ("c-1-g05", &[("jobs: ordered", 1)]),
    ("c-2-g03", &[("create: recorded", 1)]),
    ("c-3-g02", &[("enter: entered", 1), ("jobs: closed", 1)]),
    ("c-4-gg", &[("enter: recorded", 1)]),
    ("d-2-gg", &[("jobs: leaving", 1), ("jobs: told", 1), ("jobs: left", 1)]),
    ("d-3-gg", &[("jobs: told", 1), ("jobs: closed", 1), ("jobs: hailed", 1)]),
    ("a-3-gg", &[("jobs: keeping", 1)]),
    ("b-5-gg", &[("jobs: kept", 1)]),
];
/// The same for steps that delete jobs.
const DELETIONS: &[(&str, &[(&str, u64)])] = &[
    ("d-1-gggg", &[("jobs: keeping", 1), ("jobs: ended", 1)]),
    ("d-2-gg", &[("jobs: kept", 1), ("jobs: closed", 1)]),
    ("d-3-gg", &[("jobs: left", 1)]),
];

fn deaths(act: &Act) -> &'static [(&'static str, u64)] {
    let table = if matches!(act, Act::Delete(_)) { DELETIONS } else { DEATHS };
    table.iter().find(|(job, _)| *job == act.job()).map_or(&[], |(_, deaths)| deaths)
}

#[test]
fn whenever_the_daemon_is_killed_it_ends_the_same_and_no_job_is_lost_or_runs_twice() {
    let mut killing = Killing::begin();
    for step in steps() {
        killing.play(step);
    }
    killing.end();
}

#[test]
fn daemons_that_are_killed_one_after_the_other_at_any_moment_change_nothing_either() {
    let mut killing = Killing::begin();
    let mut chance = Chance::new(1);
    for step in steps() {
        killing.world.act(&step.act);
        for _ in 0..chance.below(4) {
            sleep(Duration::from_micros(chance.below(60_000)));
            let point = JOBS[chance.below(JOBS.len() as u64) as usize];
            let aim = Aim { point: point.into(), passing: 1 + chance.below(3) };
            // It may die before it answers.
            let _ = killing.restart(Some(aim).filter(|_| chance.once_in(2)));
        }
        killing.finish(step);
    }
    killing.end();
}

struct Killing {
    world: World,
    died: u64,
}

impl Killing {
    fn begin() -> Self {
        Self { world: World::begin(), died: 0 }
    }

    fn play(&mut self, step: &Step) {
        for (point, passing) in deaths(&step.act) {
            self.die_at(&step.act, point, *passing);
        }
        self.finish(step);
    }

    /// Kills the daemon, repeats the step with another kill if it was not carried out, and checks it.
    fn finish(&mut self, step: &Step) {
        self.restart(None).unwrap();
        if !self.world.is_done(&step.act) {
            // A deleted job that was still ending may be gone by now, and is refused then.
            let again = self.world.act(&step.act);
            assert!(again.code == Some(0) || self.world.is_done(&step.act), "{again:?}");
            self.restart(None).unwrap();
        }
        holds(&self.world.settle(step.then), step.then, step.act.job());
    }

    fn end(self) {
        nothing_is_lost(&self.world, 2);
        let log = self.world.node.daemon_log();
        assert!(!log.contains("panicked"), "{log}");
    }

    fn die_at(&mut self, act: &Act, point: &str, passing: u64) {
        // A daemon that dies while it starts has come to its point as well.
        if self.restart(Some(Aim { point: point.into(), passing })).is_ok() {
            // Refused if it was carried out before.
            self.world.act(act);
        }
        let began = Instant::now();
        while self.world.node.daemon_runs() && began.elapsed() < PATIENCE {
            sleep(Duration::from_millis(5));
        }
        self.died += 1;
        let died: u64 = Said::read(&self.record()).died.values().sum();
        assert_eq!(died, self.died, "no daemon died at {point:?} during {}", act.job());
    }

    fn record(&self) -> PathBuf {
        self.world.node.dir().join("said")
    }

    /// Kills the daemon, and starts the next one.
    fn restart(&mut self, aim: Option<Aim>) -> Result<(), String> {
        let record = self.record().into_os_string();
        let node = &mut self.world.node;
        node.kill_daemon();
        let aim = aim.map(|aim| (AIM, OsString::from(aim.text())));
        node.set_daemon(DAEMON.into(), [(SAYS, record)].into_iter().chain(aim).collect());
        node.try_start_daemon()
    }
}

/// The points that a folder's sources name.
fn points(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(points(&path));
        } else {
            let text = fs::read_to_string(&path).unwrap();
            found.extend(
                text.split("point(\"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_string),
            );
        }
    }
    found
}

#[test]
fn each_point_of_the_desk_is_one_where_a_daemon_dies() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let named = points(&workspace.join("daemon/jobs/src"));
    let known: BTreeSet<String> = JOBS.iter().map(|name| name.to_string()).collect();
    let parking = PREEMPTIONS.iter().map(|name| name.to_string());
    assert_eq!(named, known.iter().cloned().chain(parking).collect());
    let die = DEATHS
        .iter()
        .chain(DELETIONS)
        .flat_map(|(_, deaths)| deaths.iter().map(|(point, _)| point.to_string()));
    let die: BTreeSet<String> = die.filter(|point| point.starts_with("jobs: ")).collect();
    assert_eq!(die, known);
}
