//! Submissions to the job controller: checked, recorded, and on the disk when the call returns.

use std::collections::BTreeSet;
use std::fs;
use std::future::{Future, pending};
use std::time::{Duration, Instant};

use bench::Result;
use bench::report::Report;
use nix::sys::signal::Signal;
use nix::unistd::{getgid, getuid};
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::jobs::{JobSpec, MemberId, PoolGpu, UserSlice};
use tranche_domain::slice::ProcessId;
use tranche_jobs::{
    Happened, JobClaims, JobCondition, JobController, JobOwner, JobSite, JobSlice, Launcher, NodeUse,
    Preemption, Requester, UnparkFailure, UserDemand,
};

use crate::crowd::{Crowd, gpus};
use crate::disk::{Beside, Place};
use crate::scale::Scale;

/// Number of submissions after which a page is written for comparison.
const BETWEEN: usize = 10;
/// Number of requests for the list.
const LISTS: usize = 20;

/// A node on which nothing runs.
struct Still;

impl JobSite for Still {
    fn gpus(&self, _: &BTreeSet<MemberId>) -> Vec<PoolGpu> {
        gpus()
    }

    fn user_demand(&self) -> UserDemand {
        UserDemand::default()
    }

    fn grant(&self, _: u64, _: Vec<GpuUuid>) {}

    fn set_claims(&self, _: JobClaims) {}

    async fn end_user_slice(&self, _: &UserSlice, _: String) {}

    fn open(&self, _: &JobSlice, _: &JobSpec, _: &[GpuUuid], _: JobOwner) -> std::result::Result<(), String> {
        Ok(())
    }

    fn claim(&self, _: &JobSlice) {}

    fn enter(
        &self,
        _: &JobSlice,
        _: ProcessId,
        environment: Vec<(String, String)>,
    ) -> std::result::Result<Vec<(String, String)>, String> {
        Ok(environment)
    }

    fn preemption(&self) -> Preemption {
        Preemption::Stop
    }

    async fn park(&self, _: &JobSlice) -> std::result::Result<(), String> {
        Ok(())
    }

    async fn unpark(&self, _: &JobSlice) -> std::result::Result<bool, UnparkFailure> {
        Ok(false)
    }

    async fn close(&self, _: &JobSlice) {}

    fn ended(&self, _: ProcessId) -> impl Future<Output = ()> + Send {
        pending()
    }

    fn signal(&self, _: ProcessId, _: Signal) {}

    fn node_use(&self) -> NodeUse {
        NodeUse::default()
    }

    fn unused(&self, _: &SliceName) -> Duration {
        Duration::ZERO
    }

    fn idle(&self, _: &SliceName) -> Option<Duration> {
        None
    }

    fn set_condition(&self, _: JobCondition, message: String) {
        eprintln!("bench-jobs: {message}");
    }

    fn clear_condition(&self, _: JobCondition) {}

    fn record(&self, _: Happened) {}
}

pub(crate) fn all(scale: Scale, place: &Place, report: &mut Report) -> Result<()> {
    let folder = place.path("desk");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // No job is started: the loop of the controller does not run, only requests are made.
    let launcher = Launcher { program: "/nonexistent".into(), socket: "/nonexistent".into() };
    let desk = JobController::open(&folder, Still, launcher).map_err(|error| error.to_string())?;
    let mut crowd = Crowd::of(scale.projects);
    for project in crowd.projects() {
        desk.create_project(project.clone(), false).map_err(|error| error.to_string())?;
    }
    let (mut took, mut beside) = (Vec::new(), Beside::of(place)?);
    // Another user's job would need a ticket of a job launcher.
    let owner = JobOwner { uid: getuid().as_raw(), gid: getgid().as_raw() };
    let requester = Requester { uid: owner.uid, admin: true };
    for number in 0..scale.jobs {
        let submission = crowd.submission();
        let begun = Instant::now();
        desk.submit(submission, owner, requester).map_err(|error| error.to_string())?;
        took.push(begun.elapsed().as_secs_f64() * 1e3);
        if number % BETWEEN == 0 {
            beside.write()?;
        }
    }
    place.within(report, "desk_submit", &took, &mut beside, 5.0);
    let lists: Result<Vec<f64>> = (0..LISTS).map(|_| list(&desk, requester, scale.jobs)).collect();
    report.figure("desk_list_ms", place.name, "ms", &lists?);
    Ok(())
}

fn list(desk: &JobController<Still>, requester: Requester, jobs: usize) -> Result<f64> {
    let begun = Instant::now();
    let listed = desk.jobs(None, None, requester).map_err(|error| error.to_string())?.len();
    let took = begun.elapsed().as_secs_f64() * 1e3;
    if listed == jobs { Ok(took) } else { Err(format!("{listed} of {jobs} jobs are listed")) }
}
