//! A node with the four teams on it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use e2e::{Node, Outcome, PATIENCE, Stage};
use tranche_domain::jobs::JobKind;

use crate::runs::Runs;
use crate::scenario::{Act, Job, PRESET, TEAMS, Totals, team};
use crate::seen::Seen;

/// Pause between two queries of the job list.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest round of the scheduler on request: it takes a few milliseconds.
const ROUND: Duration = Duration::from_millis(100);
/// Longest time in which a job saves its progress.
const GRACE: &str = "30s";
/// Driver that checkpoints processes.
const DRIVER: &str = "580";
/// Length of each kernel in nanoseconds.
const KERNEL_NS: &str = "20000000";

/// A node on which each team has a project.
#[derive(Debug)]
pub struct World {
    /// Simulated node with its daemon.
    pub node: Node,
}

impl World {
    /// Starts the daemon, and creates each team with its quota.
    ///
    /// Documents and shim are configured, so that another build of the daemon finds those of the usual one.
    pub fn begin() -> Self {
        Self::with(Node::without_daemon(PRESET), "")
    }

    /// As [`World::begin`], with a driver that can checkpoint, and a daemon that parks what it preempts.
    pub fn parking() -> Self {
        Self::with(Node::with_stage(Stage::find().with_driver(DRIVER), PRESET), "preemption = \"park\"\n")
    }

    fn with(node: Node, more: &str) -> Self {
        let (documents, shim) = (node.dir().join("cdi"), node.stage().shim());
        node.configure(&format!("cdi_dir = '{}'\nshim = '{}'\n{more}", documents.display(), shim.display()));
        let mut world = Self { node };
        world.node.start_daemon();
        world.found();
        world
    }

    fn found(&self) {
        fs::create_dir(self.folder()).expect("the directory can be written");
        fs::write(self.work(), "").expect("the directory can be written");
        for (team, quota) in TEAMS {
            self.node.tranche(&["project", "create", team, "--quota", &quota.to_string()]).success();
        }
    }

    fn folder(&self) -> PathBuf {
        self.node.dir().join("work")
    }

    /// File that exists as long as there is work to do.
    fn work(&self) -> PathBuf {
        self.folder().join("goes-on")
    }

    /// Sends the request with `tranche`, as a user does.
    pub fn act(&self, act: &Act) -> Outcome {
        match act {
            Act::Submit(job) => self.submit(job),
            Act::Delete(name) => self.node.tranche(&["delete", "-p", team(name), name]),
        }
    }

    fn submit(&self, job: &Job) -> Outcome {
        let mut command = self.node.command(self.node.stage().command());
        command.args([
            "submit",
            job.name,
            "-p",
            job.team(),
            "-g",
            job.gpus,
            "--warn",
            "USR1",
            "--grace",
            GRACE,
        ]);
        if job.kind == JobKind::Interactive {
            command.arg("--interactive");
        }
        command.arg("--").arg(self.node.stage().workload()).args([
            "--memory",
            "64Mi",
            "--kernel-ns",
            KERNEL_NS,
        ]);
        command.arg("--while-exists").arg(self.work()).arg("--checkpoint").arg(self.folder().join(job.name));
        self.node.run(&mut command)
    }

    /// True if the request was carried out: a client whose daemon dies receives no answer.
    pub fn is_done(&self, act: &Act) -> bool {
        self.look().find(act.job()).is_some() == matches!(act, Act::Submit(_))
    }

    /// Reads the job list.
    pub fn look(&self) -> Seen {
        let listed = self.node.tranche(&["list", "-A", "--json"]).success();
        Seen(serde_json::from_str(&listed).unwrap_or_else(|error| panic!("{error}: {listed}")))
    }

    /// Waits until no job starts or stops, with one of these totals if there are any.
    ///
    /// Returns the last list, also when patience ends.
    pub fn settle(&self, then: &[Totals]) -> Seen {
        let began = Instant::now();
        loop {
            let seen = self.look();
            let is_so = seen.is_settled() && (then.is_empty() || then.contains(&seen.totals()));
            if is_so || began.elapsed() > PATIENCE {
                return seen;
            }
            sleep(PAUSE);
        }
    }

    /// Job lists after each of ten rounds of the scheduler.
    ///
    /// An update that changes nothing requests a round; by itself the daemon has one each second.
    pub fn ten_rounds(&self) -> impl Iterator<Item = Seen> + '_ {
        let (team, quota) = TEAMS[0];
        (0..10).map(move |_| {
            self.node.tranche(&["project", "update", team, "--quota", &quota.to_string()]).success();
            sleep(ROUND);
            self.look()
        })
    }

    /// Names of the jobs preempted so far, as often as they were, sorted.
    pub fn preempted(&self) -> Vec<String> {
        let mut jobs = self.jobs_of("job-preempted");
        jobs.sort();
        jobs
    }

    /// Times that each job was preempted and not parked, so that it started over.
    pub fn stopped(&self) -> BTreeMap<String, usize> {
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        self.jobs_of("job-preempted").into_iter().for_each(|job| *times.entry(job).or_default() += 1);
        for job in self.jobs_of("slice-parked") {
            times.entry(job).and_modify(|times| *times = times.saturating_sub(1));
        }
        times
    }

    /// Jobs of the events of a kind, one for each event.
    fn jobs_of(&self, kind: &str) -> Vec<String> {
        let events = self.node.events().into_iter().filter(|event| event.kind == kind);
        // A member's slice is PROJECT.JOB.INDEX.
        let job = |slice: String| slice.split('.').nth(1).map(str::to_string);
        events.filter_map(|event| job(event.slice?)).collect()
    }

    /// Reads the job's own record of its processes.
    pub fn runs(&self, job: &str) -> Runs {
        Runs::read(&self.folder().join(job))
    }

    /// Ends the work, and waits until all jobs have ended.
    ///
    /// Returns the last list, also when patience ends.
    pub fn finish(&self) -> Seen {
        let _ = fs::remove_file(self.work());
        let began = Instant::now();
        loop {
            let seen = self.look();
            let is_over = seen.0.iter().all(|job| ["succeeded", "failed"].contains(&job.state.as_str()));
            if is_over || began.elapsed() > PATIENCE {
                return seen;
            }
            sleep(PAUSE);
        }
    }
}
