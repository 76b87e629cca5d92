//! Thirteen jobs that hold sixteen GPUs and do not use them.

use std::thread::sleep;
use std::time::{Duration, Instant};

use bench::Result;
use bench::node::{Node, run};
use serde_json::Value;

/// Number of jobs; the first has four GPUs, the others one each.
pub(crate) const COUNT: usize = 13;
/// Longest wait for all jobs to hold their GPUs, or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The running jobs. Dropping them ends them, as their processes outlive a daemon.
pub(crate) struct Jobs<'a>(&'a Node);

impl<'a> Jobs<'a> {
    /// Submits the jobs and waits until all of them are idle.
    pub(crate) fn start(node: &'a Node) -> Result<Self> {
        run(node.tranche().args(["project", "create", "team", "--quota", "16"]))?;
        let jobs = Self(node);
        for number in 0..COUNT {
            let (name, gpus) = (format!("train-{number}"), if number == 0 { "4" } else { "1" });
            run(node.tranche().args(["submit", &name, "-g", gpus, "--", "sleep", "100000"]))?;
        }
        jobs.wait("are not idle", |listed| {
            let idle = listed.iter().filter(|job| job["members"][0]["idle_ms"].is_u64());
            idle.count() == COUNT
        })?;
        Ok(jobs)
    }

    fn wait(&self, complaint: &str, holds: impl Fn(&[Value]) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = run(self.0.tranche().args(["list", "-A", "--json"]))?;
            let listed: Vec<Value> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            if holds(&listed) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("the jobs {complaint} after {} s: {text}", PATIENCE.as_secs()));
            }
            sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Jobs<'_> {
    fn drop(&mut self) {
        let names: Vec<String> = (0..COUNT).map(|number| format!("train-{number}")).collect();
        // After an error some are not there; those that are end all the same.
        for name in names {
            let _ = run(self.0.tranche().args(["delete", &name]));
        }
        if let Err(complaint) = self.wait("are still there", <[Value]>::is_empty) {
            eprintln!("bench-views: {complaint}");
        }
    }
}
