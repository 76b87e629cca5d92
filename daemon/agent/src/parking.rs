//! Parking: moves the device memory of a slice's processes to host memory, and back.
//!
//! The driver does it, on requests of the park worker. Laws:
//! - The stage of a slice is on disk before the first process is touched, and until the last one is done.
//! - All processes are locked before one is checkpointed, and all are restored before one is unlocked.
//! - No process is restored before its slice has its part of the GPUs again, and the driver shows that much free.
//! - A daemon that takes over goes by the driver's state of each process; a slice that was on its way to host memory
//!   is brought back.

mod host;
mod passage;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tranche_domain::driver_release::DriverRelease;
use tranche_domain::id::{HostPid, SliceName};
use tranche_domain::slice::ProcessId;
use tranche_domain::units::Bytes;
use tranche_inventory::InventoryError;
use tranche_jobs::Preemption;
use tranche_linux::privileges;
use tranche_parkworker::{ParkWorker, WorkerError};
use tranche_slices::slice_runtime::Unparkable;

pub(crate) use host::{check, default_budget};
pub(crate) use passage::SlicePassage;

/// First branch of the driver with checkpoint calls.
const FIRST_BRANCH: u32 = 570;
/// Longest wait for another request that parks the slice or brings it back.
pub(crate) const MOVE_PATIENCE: Duration = Duration::from_secs(30);
/// Pause before such a request is made again.
pub(crate) const MOVE_LOOK: Duration = Duration::from_millis(20);
/// Longest wait until the work of a process is done.
pub(crate) const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// Failure to park a slice, or to bring it back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ParkFailure {
    #[error("slice {0} cannot be parked: {1}; nothing was changed")]
    Unparkable(SliceName, Unparkable),
    #[error(
        "slice {name} cannot be parked: it needs {needed} of host memory, and {free} are {place}; nothing was changed"
    )]
    NoHostMemory { name: SliceName, needed: Bytes, free: Bytes, place: &'static str },
    #[error(
        "nothing is parked with driver {0}: it is among `park_refused_drivers` of the configuration, as restored processes may \
         take the host down at their end; nothing was changed"
    )]
    RefusedDriver(String),
    #[error(
        "nothing is parked with driver {0}: it has no checkpoint calls, which come with driver 570 (CUDA 12.8); nothing was \
         changed"
    )]
    OldDriver(String),
    #[error("slice {0} is being parked or brought back by another request: try again")]
    InProgress(SliceName),
    #[error("cannot start the park worker: {0}")]
    NoWorker(std::io::Error),
    #[error("slice {0} is not parked: none of its processes uses a GPU yet")]
    NothingThere(SliceName),
    #[error("slice {name} stays on its GPUs: process {pid}: {cause}")]
    NotParked { name: SliceName, pid: HostPid, cause: WorkerError },
    #[error(
        "slice {name} stays on its GPUs: process {pid} is about to use a GPU for the first time: try again"
    )]
    Starting { name: SliceName, pid: HostPid },
    #[error(
        "slice {name} stays on its GPUs: the driver still lists process {pid} on one of them, which is of the slice and \
         was not checkpointed"
    )]
    StillListed { name: SliceName, pid: HostPid },
    #[error("slice {0} stays on its GPUs: the driver does not list the processes on them: {1}")]
    Unseen(SliceName, InventoryError),
    #[error("slice {name} is back on its GPUs without {}, which the driver could not restore: {cause}", list(.pids))]
    Lost { name: SliceName, pids: Vec<HostPid>, cause: WorkerError },
    #[error(
        "slice {name} is not back yet: process {pid}: {cause}; `tranche slice unpark {name}` tries again"
    )]
    NotBack { name: SliceName, pid: HostPid, cause: WorkerError },
    #[error(
        "slice {name} cannot come back: its processes need {needed} on GPU {index}, where the driver shows {free} free: \
         others than slices use it"
    )]
    Occupied { name: SliceName, index: u32, needed: Bytes, free: Bytes },
}

pub(crate) fn list(pids: &[HostPid]) -> String {
    let each: Vec<String> = pids.iter().map(ToString::to_string).collect();
    format!("{} {}", if pids.len() == 1 { "process" } else { "processes" }, each.join(", "))
}

/// The park worker, and the slices that are on their way.
#[derive(Debug)]
pub(crate) struct Parking {
    /// Directory of sockets and regions, and path of the job runner: the bounds of the worker.
    bounds: (PathBuf, PathBuf),
    worker: Mutex<Option<Arc<ParkWorker>>>,
    moving: Mutex<BTreeSet<SliceName>>,
    /// A slice is no longer among those that move.
    moved: Condvar,
    /// Slices of which processes are about to be ended.
    ending: Mutex<BTreeSet<SliceName>>,
    /// Slices that have left for others since the daemon started, with their times of creation.
    rotated: Mutex<BTreeMap<SliceName, u64>>,
    /// Times to the earliest returns of rotating slices that wait for their stays.
    returns: Mutex<BTreeMap<SliceName, Duration>>,
    terms: Mutex<ParkTerms>,
}

/// Budget and policy of parking, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParkTerms {
    /// Drivers with which nothing is parked.
    pub(crate) refused: Vec<DriverRelease>,
    /// Host memory that parked slices may have together.
    pub(crate) budget: Bytes,
    /// Treatment of jobs that have to leave their GPUs for a while.
    pub(crate) preemption: Preemption,
}

/// Processes of a slice that are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedProcesses {
    All,
    One(ProcessId),
}

/// A slice that no other request parks or brings back meanwhile.
pub(crate) struct Moving<'a> {
    parking: &'a Parking,
    name: SliceName,
}

impl Moving<'_> {
    pub(crate) const fn slice(&self) -> &SliceName {
        &self.name
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        locked(&self.parking.moving).remove(&self.name);
        self.parking.moved.notify_all();
    }
}

impl Parking {
    /// No worker yet; one is started at the first request.
    pub(crate) fn new(runtime: PathBuf, job_runner: PathBuf, terms: ParkTerms) -> Self {
        let (worker, moving, moved) = (Mutex::default(), Mutex::default(), Condvar::new());
        let ending = Mutex::default();
        let (rotated, returns, terms) = (Mutex::default(), Mutex::default(), Mutex::new(terms));
        Self { bounds: (runtime, job_runner), worker, moving, moved, ending, rotated, returns, terms }
    }

    pub(crate) fn terms(&self) -> ParkTerms {
        locked(&self.terms).clone()
    }

    /// Refuses a driver of this version if it has no checkpoint calls, or the configuration names it.
    pub(crate) fn refuse_driver(&self, version: &str) -> Result<(), ParkFailure> {
        // A version of another form is left to the driver's own answer.
        let branch = version.split('.').next().and_then(|branch| branch.parse::<u32>().ok());
        if branch.is_some_and(|branch| branch < FIRST_BRANCH) {
            return Err(ParkFailure::OldDriver(version.to_owned()));
        }
        match locked(&self.terms).refused.iter().any(|release| release.covers(version)) {
            true => Err(ParkFailure::RefusedDriver(version.to_owned())),
            false => Ok(()),
        }
    }

    pub(crate) fn set_terms(&self, terms: ParkTerms) {
        *locked(&self.terms) = terms;
    }

    /// Reserves a slice for one request; fails while another has it.
    pub(crate) fn begin(&self, name: &SliceName) -> Result<Moving<'_>, ParkFailure> {
        self.begin_within(name, Duration::ZERO)
    }

    /// Reserves a slice for one request, once no other has it. Blocks up to `patience`, and fails then.
    pub(crate) fn begin_within(
        &self,
        name: &SliceName,
        patience: Duration,
    ) -> Result<Moving<'_>, ParkFailure> {
        let is_moving = |moving: &mut BTreeSet<SliceName>| moving.contains(name);
        let waited = self.moved.wait_timeout_while(locked(&self.moving), patience, is_moving);
        let (mut moving, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !moving.insert(name.clone()) {
            return Err(ParkFailure::InProgress(name.clone()));
        }
        Ok(Moving { parking: self, name: name.clone() })
    }

    /// Notes that a slice has left for others; true if it has not before.
    pub(crate) fn begins_to_rotate(&self, name: &SliceName, created_unix_ms: u64) -> bool {
        locked(&self.rotated).insert(name.clone(), created_unix_ms) != Some(created_unix_ms)
    }

    /// Sets the times to the earliest returns of rotating slices that wait for their stays.
    pub(crate) fn set_returns(&self, returns: BTreeMap<SliceName, Duration>) {
        *locked(&self.returns) = returns;
    }

    /// Time to the earliest return of a rotating slice; `None` unless it waits for its stay.
    pub(crate) fn returns_in(&self, name: &SliceName) -> Option<Duration> {
        locked(&self.returns).get(name).copied()
    }

    /// Slices of which processes are about to be ended.
    pub(crate) fn ending(&self) -> MutexGuard<'_, BTreeSet<SliceName>> {
        locked(&self.ending)
    }

    /// The running worker, or a new one.
    pub(crate) fn worker(&self) -> Result<Arc<ParkWorker>, ParkFailure> {
        let mut worker = locked(&self.worker);
        if let Some(worker) = worker.as_ref().filter(|worker| worker.is_alive()) {
            return Ok(Arc::clone(worker));
        }
        let (runtime, job_runner) = &self.bounds;
        let socket = privileges::park_worker(runtime, job_runner.clone()).map_err(ParkFailure::NoWorker)?;
        let new = Arc::new(ParkWorker::over(socket).map_err(ParkFailure::NoWorker)?);
        *worker = Some(Arc::clone(&new));
        Ok(new)
    }

    /// Drops the worker, so that the next request gets a new one.
    pub(crate) fn discard_worker(&self) {
        *locked(&self.worker) = None;
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn request_waits_until_no_other_has_the_slice() {
        let terms = ParkTerms { refused: Vec::new(), budget: Bytes::ZERO, preemption: Preemption::Stop };
        let parking = Parking::new(PathBuf::new(), PathBuf::new(), terms);
        let (name, other) = ("night".parse::<SliceName>().unwrap(), "day".parse::<SliceName>().unwrap());
        let first = parking.begin(&name).unwrap();
        let is_in_progress = |outcome| matches!(outcome, Err(ParkFailure::InProgress(_)));
        assert!(is_in_progress(parking.begin(&name)));
        assert!(is_in_progress(parking.begin_within(&name, Duration::from_millis(1))));
        drop(parking.begin_within(&other, Duration::ZERO).unwrap());
        thread::scope(|scope| {
            let waits = scope.spawn(|| parking.begin_within(&name, MOVE_PATIENCE).map(drop));
            thread::sleep(Duration::from_millis(20));
            drop(first);
            assert!(waits.join().unwrap().is_ok());
        });
        assert!(parking.begin(&name).is_ok());
    }
}
