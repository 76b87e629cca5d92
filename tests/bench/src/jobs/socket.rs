//! Submissions and lists through the daemon's socket, while its jobs run and make room.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use bench::node::{Node, run};
use bench::report::Report;
use bench::stage::{Driver, Stage};
use bench::stats::{greatest, quantile, sorted};
use bench::{Result, interrupt};
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Channel;
use tranche_rpc::v1;
use tranche_rpc::v1::jobs_client::JobsClient;

use crate::crowd::Crowd;
use crate::disk::{Beside, Place};
use crate::scale::Scale;

/// Number of submissions after which a page is written for comparison.
const BETWEEN: usize = 10;
/// Number of requests for the list.
const LISTS: usize = 20;
/// Time within which all jobs have ended at the close.
const PATIENCE: Duration = Duration::from_secs(60);

/// The daemon, with sixteen GPUs, and a connection to it.
struct Counter {
    node: Node,
    runtime: Runtime,
    jobs: JobsClient<Channel>,
}

impl Counter {
    fn open(stage: &Stage, place: &Place) -> Result<Self> {
        let node = Node::of(stage, Driver::Simulated, "v100x16", &place.path(""))?;
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        let jobs = runtime.block_on(tranche_rpc::connect_to_jobs(&node.socket()));
        let jobs = jobs.map_err(|error| error.to_string())?;
        Ok(Self { node, runtime, jobs })
    }

    fn create_projects(&mut self, crowd: &Crowd) -> Result<()> {
        for project in crowd.projects() {
            let change =
                v1::ProjectChange { quota_milligpus: Some(project.quota.get()), ..Default::default() };
            let message = v1::CreateProjectRequest {
                name: project.name.to_string(),
                change: Some(change),
                beyond_capacity: false,
            };
            self.runtime.block_on(self.jobs.create_project(message)).map_err(|status| status.to_string())?;
        }
        Ok(())
    }

    /// Submits a job; returns the length of the request in milliseconds.
    fn submit(&mut self, crowd: &mut Crowd) -> Result<f64> {
        let message = v1::SubmitJobRequest::from(crowd.submission());
        let begun = Instant::now();
        self.runtime.block_on(self.jobs.submit_job(message)).map_err(|status| status.to_string())?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }

    fn list(&mut self) -> Result<Vec<v1::JobView>> {
        let message = v1::ListJobsRequest { project: None, name: None };
        let answer = self.runtime.block_on(self.jobs.list_jobs(message));
        Ok(answer.map_err(|status| status.to_string())?.into_inner().jobs)
    }

    /// Time of `tranche list -A` from its start to its end, in milliseconds.
    fn command(&self) -> Result<f64> {
        let mut command = self.node.tranche();
        command.args(["list", "-A"]).stdin(Stdio::null()).stdout(Stdio::null());
        let begun = Instant::now();
        let status = interrupt::start(&mut command).and_then(|mut child| child.wait());
        let took = begun.elapsed().as_secs_f64() * 1e3;
        match status {
            Ok(status) if status.success() => Ok(took),
            other => Err(format!("{command:?}: {other:?}")),
        }
    }

    /// Cordons all GPUs, so that no job starts, and deletes the running jobs.
    fn close(mut self) -> Result<()> {
        for gpu in 0..16 {
            run(self.node.tranche().args(["gpu", "cordon", &gpu.to_string()]))?;
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let here = |job: &v1::JobView| job.members.iter().any(|member| member.slice.is_some());
            let left: Vec<v1::JobView> = self.list()?.into_iter().filter(here).collect();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("{} jobs do not end", left.len()));
            }
            for job in left {
                let message = v1::DeleteJobRequest { project: job.project, name: job.name };
                // It may have ended by itself.
                let _ = self.runtime.block_on(self.jobs.delete_job(message));
            }
            thread::sleep(Duration::from_millis(200));
        }
    }
}

pub(crate) fn all(scale: Scale, place: &Place, stage: &Stage, report: &mut Report) -> Result<()> {
    let mut counter = Counter::open(stage, place)?;
    let mut crowd = Crowd::of(scale.projects);
    counter.create_projects(&crowd)?;
    let (mut took, mut beside) = (Vec::new(), Beside::of(place)?);
    for number in 0..scale.jobs {
        took.push(counter.submit(&mut crowd)?);
        if number % BETWEEN == 0 {
            beside.write()?;
        }
    }
    place.within(report, "socket_submit", &took, &mut beside, 5.0);
    let settled = &took[took.len() / 2..];
    report.figure("socket_submit_second_half_p99_ms", place.name, "ms", &[quantile(&sorted(settled), 0.99)]);
    lists(&mut counter, scale, place, report)?;
    counter.close()
}

fn lists(counter: &mut Counter, scale: Scale, place: &Place, report: &mut Report) -> Result<()> {
    let listed = counter.list()?;
    let runs = listed.iter().filter(|job| job.state() == v1::JobState::Running).count();
    if listed.len() != scale.jobs || runs == 0 {
        return Err(format!("{} jobs are listed, and {runs} of them run", listed.len()));
    }
    report.figure("jobs_running", place.name, "", &[runs as f64]);
    let mut took = Vec::new();
    for _ in 0..LISTS {
        let begun = Instant::now();
        counter.list()?;
        took.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    report.figure("socket_list_ms", place.name, "ms", &took);
    let commands: Vec<f64> = (0..LISTS).map(|_| counter.command()).collect::<Result<_>>()?;
    report.figure("command_list_ms", place.name, "ms", &commands);
    report.at_most(&format!("command_list_worst_ms_{}", place.name), greatest(&commands), "ms", 200.0);
    Ok(())
}
