//! A training is preempted by parking again and again, while daemons die at every step of it.
//!
//! Law: it is one process from its begin to its end, and its memory is what it wrote there.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use e2e::{Node, Tenant};
use serde_json::Value;
use stress::chance::Chance;
use stress::points::{PARKS, PREEMPTIONS};
use stress::report::Claim;
use tranche_domain::units::Bytes;

use crate::outcome::Outcome;
use crate::points::{AIM, Aim, SAYS, Said};
use crate::toll::Toll;

/// A driver with checkpoints.
const DRIVER: &str = "580";
/// Longest wait until the training runs again.
const PATIENCE: Duration = Duration::from_secs(60);
/// Memory of the GPU, as slices see it.
const CAPACITY: Bytes = Bytes::mib(32510);
/// Words that the training's log has for each time that it was parked.
const PARKED: &str = "lies in host memory";

struct Scene {
    node: Node,
    program: PathBuf,
    toll: Toll,
    deaths: u64,
}

/// Preempts a training that many times, and kills at least one daemon at each point.
pub(crate) fn run(preemptions: u64, seed: u64, program: PathBuf) -> Outcome {
    let mut scene = Scene::set(program);
    let (mut chance, says) = (Chance::new(seed), scene.node.dir().join("said"));
    let points: Vec<&str> = PREEMPTIONS.iter().chain(PARKS).copied().collect();
    let never = |says: &PathBuf| {
        let said = Said::read(says);
        points.iter().filter(|point| said.deaths(point) == 0).count() as u64
    };
    let (mut done, mut tries) = (0, 0);
    while done < preemptions || (never(&says) > 0 && tries < preemptions + 500) {
        tries += 1;
        // Each preemption passes every point.
        let said = Said::read(&says);
        let unseen = points.iter().find(|point| said.deaths(point) == 0);
        let any = points[chance.below(points.len() as u64) as usize];
        if let Some(point) = unseen.copied().or(chance.once_in(3).then_some(any)) {
            scene.start(Some(&Aim { point: point.into(), passing: 1 }));
        }
        done += u64::from(scene.preempt(tries));
    }
    let parked = scene.close();
    let zero = |name| Claim::exactly(name, scene.toll.count(name), "times", 0);
    let claims = vec![
        Claim::at_least("preemptions", done, "times", preemptions),
        Claim::at_least("parked", parked, "times", preemptions),
        Claim::at_least("daemon_deaths", scene.deaths, "daemons", preemptions / 8),
        Claim::exactly("points_never_died_at", never(&says), "points", 0),
        zero("steps_lost"),
        zero("contents_lost"),
        zero("bytes_over"),
        zero("stuck"),
    ];
    Outcome { claims, deaths_at: Said::read(&says).died, ..Outcome::default() }
}

impl Scene {
    /// One GPU of two projects: the training borrows it, and what preempts it is within its quota.
    fn set(program: PathBuf) -> Self {
        let mut node = Node::with_driver("v100x8", DRIVER);
        node.kill_daemon();
        let (shim, documents) = (node.stage().shim(), node.dir().join("cdi"));
        let (shim, documents) = (shim.display(), documents.display());
        node.configure(&format!("shim = '{shim}'\ncdi_dir = '{documents}'\npreemption = \"park\"\n"));
        node.set_daemon(program.clone(), Vec::new());
        node.start_daemon();
        for (project, quota) in [("a", "8"), ("b", "0")] {
            let create =
                ["project", "create", project, "--quota", quota, "--weight", "1", "--training-gpus", "0"];
            node.tranche(&create).success();
        }
        let scene = Self { node, program, toll: Toll::default(), deaths: 0 };
        fs::write(scene.work(), "").expect("the directory can be written");
        scene.submit();
        scene
    }

    /// File that exists as long as the training has work.
    fn work(&self) -> PathBuf {
        self.node.dir().join("work")
    }

    /// Submits the training, whose steps each sum up its memory, and waits for the first.
    fn submit(&self) {
        let steps = format!(
            "{{ printf 'cuda\\ncontext 0\\nalloc plain 16777216\\nwrite 0 7\\n'; \
             while [ -e '{}' ]; do echo 'sum 0'; sleep 0.02; done; }} | '{}'",
            self.work().display(),
            Tenant::program().display()
        );
        self.node.tranche(&["submit", "trains", "-p", "b", "-g", "1", "--", "sh", "-c", &steps]).success();
        let began = Instant::now();
        while sums(&self.log()).len() < 3 {
            assert!(began.elapsed() < PATIENCE, "the training does not begin: {}", self.log());
            sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        self.node.tranche(&["logs", "-p", "b", "trains"]).stdout
    }

    /// Starts a daemon that dies at a point, if one is set, in the place of the last.
    fn start(&mut self, aim: Option<&Aim>) {
        self.node.kill_daemon();
        let mut variables = vec![(SAYS, self.node.dir().join("said").into_os_string())];
        variables.extend(aim.map(|aim| (AIM, aim.text().into())));
        self.node.set_daemon(self.program.clone(), variables);
        // It may die at the point during its start.
        let _ = self.node.try_start_daemon();
    }

    /// Has a short job preempt the training, and waits until that runs again. True if the job ran.
    ///
    /// Daemons that die are replaced.
    fn preempt(&mut self, number: u64) -> bool {
        let name = format!("urgent-{number}");
        let workload = self.node.stage().workload().display().to_string();
        let work = [&workload, "--memory", "20Gi", "--kernel-ns", "1000000", "--launches", "5"];
        self.node.tranche(&[&["submit", &name, "-p", "a", "-g", "1", "--"], &work[..]].concat());
        let began = Instant::now();
        let ran = loop {
            if !self.node.daemon_runs() {
                self.deaths += 1;
                self.start(None);
            }
            match self.states(&name) {
                Some((urgent, training))
                    if training == "running" && urgent != "pending" && urgent != "running" =>
                {
                    break urgent == "succeeded";
                }
                state if began.elapsed() > PATIENCE => {
                    self.toll.wrong("stuck", || format!("{name}: {state:?}\n{}", self.node.daemon_log()));
                    self.start(None);
                    break false;
                }
                _ => sleep(Duration::from_millis(5)),
            }
            // Each has the whole GPU.
            let device = self.node.device();
            let processes = &device.gpus[0].processes;
            let is_over = processes.len() > 1 || device.held() > CAPACITY;
            self.toll.wrong_if(is_over, "bytes_over", || format!("{processes:?}"));
        };
        self.node.tranche(&["delete", "-p", "a", &name]);
        ran
    }

    /// States of the short job, `gone` if it was never recorded, and of the training.
    fn states(&self, name: &str) -> Option<(String, String)> {
        let listed = self.node.tranche(&["list", "-A", "--json"]);
        let jobs: Vec<Value> = serde_json::from_str(&listed.stdout).ok()?;
        let state = |name: &str| {
            let job = jobs.iter().find(|job| job["name"] == name);
            job.and_then(|job| job["state"].as_str()).unwrap_or("gone").to_owned()
        };
        Some((state(name), state("trains")))
    }

    /// Ends the training, and judges its log; returns how often it was parked.
    fn close(&mut self) -> u64 {
        self.start(None);
        let _ = fs::remove_file(self.work());
        let began = Instant::now();
        while self.states("trains").is_none_or(|(_, training)| training != "succeeded") {
            if began.elapsed() > PATIENCE {
                self.toll.wrong("stuck", || format!("the training does not end:\n{}", self.log()));
                break;
            }
            sleep(Duration::from_millis(20));
        }
        let log = self.log();
        let (sums, begun) = (sums(&log), log.matches("[tranche: start ").count());
        self.toll.wrong_if(begun > 0, "steps_lost", || format!("it began again {begun} times"));
        let others = sums.iter().filter(|sum| **sum != sums[0]).count();
        self.toll.wrong_if(sums.is_empty() || others > 0, "contents_lost", || {
            format!("{others} of {}", sums.len())
        });
        log.matches(PARKED).count() as u64
    }
}

/// Sums of the training's memory, one of each step.
fn sums(log: &str) -> Vec<&str> {
    // The commands before the first step have other replies: none, none, and the number of the piece.
    log.lines().filter_map(|line| line.strip_prefix("ok ")).filter(|sum| sum.len() > 4).collect()
}
