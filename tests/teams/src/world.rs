//! A node with the four teams on it.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use e2e::{Node, Outcome, PATIENCE};
use tranche_domain::jobs::Kind;

use crate::runs::Runs;
use crate::scenario::{Act, Job, PRESET, TEAMS, Totals, team};
use crate::seen::Seen;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest round of the scheduler on request: it takes a few milliseconds.
const ROUND: Duration = Duration::from_millis(100);
/// Longest time in which a job saves its progress.
const GRACE: &str = "30s";
/// Length of each kernel in nanoseconds.
const KERNEL_NS: &str = "20000000";

/// The node.
#[derive(Debug)]
pub struct World {
    /// With its daemon.
    pub node: Node,
}

impl World {
    /// The daemon runs, and each team has its quota. Another daemon finds there what lies beside the usual one.
    pub fn begin() -> Self {
        let node = Node::without_daemon(PRESET);
        let (documents, shim) = (node.dir().join("cdi"), node.stage().shim());
        node.configure(&format!("cdi_dir = '{}'\nshim = '{}'\n", documents.display(), shim.display()));
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

    /// As long as it is there, there is work to do.
    fn work(&self) -> PathBuf {
        self.folder().join("goes-on")
    }

    /// Does it, as a user does.
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
        if job.kind == Kind::Interactive {
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

    /// Tests if it was done already: a client whose daemon dies is not told.
    pub fn is_done(&self, act: &Act) -> bool {
        self.look().find(act.job()).is_some() == matches!(act, Act::Submit(_))
    }

    /// What there is to see now.
    pub fn look(&self) -> Seen {
        let listed = self.node.tranche(&["list", "-A", "--json"]).success();
        Seen(serde_json::from_str(&listed).unwrap_or_else(|error| panic!("{error}: {listed}")))
    }

    /// What there is to see once everybody is where they are to be, with one of these totals if there are any; or when
    /// patience ends.
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

    /// What there is to see after each of ten rounds of the scheduler. A change that changes nothing asks for one; by itself the
    /// daemon has one each second.
    pub fn ten_rounds(&self) -> impl Iterator<Item = Seen> + '_ {
        let (team, quota) = TEAMS[0];
        (0..10).map(move |_| {
            self.node.tranche(&["project", "update", team, "--quota", &quota.to_string()]).success();
            sleep(ROUND);
            self.look()
        })
    }

    /// Who has been stopped for others, as often as that was, in order of their names.
    pub fn preempted(&self) -> Vec<String> {
        let events = self.node.events().into_iter().filter(|event| event.kind == "job-preempted");
        // A member's slice is PROJECT.JOB.INDEX.
        let job = |slice: String| slice.split('.').nth(1).map(str::to_string);
        let mut jobs: Vec<String> = events.filter_map(|event| job(event.slice?)).collect();
        jobs.sort();
        jobs
    }

    /// The processes of a job.
    pub fn runs(&self, job: &str) -> Runs {
        Runs::read(&self.folder().join(job))
    }

    /// There is no more work to do: returns what there is to see when all jobs have come to an end, or patience does.
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
