//! Passage of a slice's processes from device memory to host memory, and back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tranche_domain::id::HostPid;
use tranche_domain::units::Bytes;
use tranche_linux::process::Process;
use tranche_parkworker::{DriverState, ParkCall, ParkWorker, WorkerError};
use tranche_shm::crash::point;

use super::LOCK_PATIENCE;

/// Longest wait for a reply that takes no copy.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time for copies besides their bytes.
const COPY_BASE: Duration = Duration::from_secs(60);
/// Slowest rate of a copy that is waited for, in bytes per second.
const SLOWEST: u64 = 256 << 20;
/// Interval of querying the state of a process that returns.
const LOOK: Duration = Duration::from_millis(1);
/// Result of the driver where the state of a process does not permit a call.
const ILLEGAL_STATE: u32 = 401;

/// Largest number of calls side by side; the park worker has room for more.
const MOST_AT_ONCE: usize = 64;

/// The processes of a slice, each with the memory that it may hold.
pub(crate) struct SlicePassage<'a> {
    worker: &'a ParkWorker,
    processes: &'a [(Arc<Process>, Bytes)],
}

/// State to which a process is brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// Its device memory is in host memory.
    Checkpointed,
    /// Its device memory is back.
    Restored,
    /// Its calls are not blocked.
    Running,
}

/// Next step on the way to an [`Aim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Reached,
    Call(ParkCall),
    Wait,
    /// The driver has failed the process.
    Failed,
}

impl Aim {
    const fn next(self, state: DriverState) -> Step {
        match (self, state) {
            (_, DriverState::Uninitialized)
            | (Self::Running | Self::Restored, DriverState::Running)
            | (Self::Restored, DriverState::Locked)
            | (Self::Checkpointed, DriverState::Checkpointed | DriverState::Failed) => Step::Reached,
            (_, DriverState::Busy) => Step::Wait,
            (_, DriverState::Failed) => Step::Failed,
            (Self::Checkpointed, DriverState::Running) => Step::Call(ParkCall::Lock(LOCK_PATIENCE)),
            (Self::Checkpointed, DriverState::Locked) => Step::Call(ParkCall::Checkpoint),
            (Self::Running, DriverState::Locked) => Step::Call(ParkCall::Unlock),
            (_, DriverState::Checkpointed) => Step::Call(ParkCall::Restore),
        }
    }
}

/// A process with the reason for its failure.
pub(crate) type Failed = (HostPid, WorkerError);

impl<'a> SlicePassage<'a> {
    /// A passage of these processes.
    pub(crate) const fn of(worker: &'a ParkWorker, processes: &'a [(Arc<Process>, Bytes)]) -> Self {
        Self { worker, processes }
    }

    /// Processes that have initialised the driver; those that have ended are left out.
    pub(crate) fn initialized(&self) -> Result<Vec<&'a (Arc<Process>, Bytes)>, Failed> {
        let mut found = Vec::new();
        for held in self.processes {
            match self.state(&held.0) {
                Ok(DriverState::Uninitialized) => {}
                Ok(_) => found.push(held),
                Err(_) if !held.0.is_alive() => {}
                Err(cause) => return Err((held.0.id.pid, cause)),
            }
        }
        Ok(found)
    }

    /// Locks all processes; after a failure some are locked.
    pub(crate) fn lock(&self) -> Result<(), Failed> {
        let locked = self
            .each(|(process, _)| self.call(ParkCall::Lock(LOCK_PATIENCE), process, LOCK_PATIENCE + PATIENCE));
        point("park: locked");
        first_failure(locked)
    }

    /// Checkpoints all processes, which are locked.
    pub(crate) fn checkpoint(&self) -> Result<(), Failed> {
        let done = self.each(|(process, bytes)| self.call(ParkCall::Checkpoint, process, copy_time(*bytes)));
        point("park: checkpointed");
        first_failure(done)
    }

    /// Brings every process back that can be: restores what is checkpointed, then unlocks all. Goes by the driver's
    /// state of each, so it may be repeated. Returns those that the driver could not bring back, which stay blocked.
    pub(crate) fn bring_back(&self) -> Result<Vec<Failed>, Failed> {
        let mut lost = BTreeMap::new();
        for aim in [Aim::Restored, Aim::Running] {
            let done = self.each(|(process, bytes)| self.bring_to(aim, process, *bytes));
            point("unpark: returned");
            for (pid, outcome) in done {
                match outcome {
                    Ok(()) => {}
                    Err(cause) if self.is_lost(pid, &cause) => drop(lost.entry(pid).or_insert(cause)),
                    Err(cause) => return Err((pid, cause)),
                }
            }
        }
        Ok(lost.into_iter().collect())
    }

    /// Checkpoints every process that can be. Returns those that are on the GPUs as before.
    pub(crate) fn take_off(&self) -> Vec<Failed> {
        let done = self.each(|(process, bytes)| self.bring_to(Aim::Checkpointed, process, *bytes));
        done.into_iter().filter_map(|(pid, outcome)| Some((pid, outcome.err()?))).collect()
    }

    /// Brings one process to an aim. A request of an earlier daemon may still be carried out meanwhile.
    fn bring_to(&self, aim: Aim, process: &Process, bytes: Bytes) -> Result<(), WorkerError> {
        let patience = copy_time(bytes);
        let deadline = Instant::now() + patience;
        loop {
            let step = match self.state(process) {
                Ok(state) => aim.next(state),
                Err(_) if !process.is_alive() => return Ok(()),
                // Nothing was checkpointed, and nothing can be.
                Err(WorkerError::Unsupported) => return Ok(()),
                Err(error) => return Err(error),
            };
            let outcome = match step {
                Step::Reached => return Ok(()),
                Step::Call(verb) => self.call(verb, process, patience),
                Step::Wait => Ok(()),
                Step::Failed => return Err(WorkerError::Driver(ILLEGAL_STATE)),
            };
            match outcome {
                Ok(()) => {}
                // Its state has changed since.
                Err(WorkerError::Driver(ILLEGAL_STATE)) => {}
                Err(error) => return Err(error),
            }
            if Instant::now() >= deadline {
                return Err(WorkerError::Hangs(patience));
            }
            thread::sleep(LOOK);
        }
    }

    /// Tests if a process stays blocked after this failure.
    ///
    /// The driver has failed it, does not return, or did not restore it though there was room.
    fn is_lost(&self, pid: HostPid, cause: &WorkerError) -> bool {
        let process = self.processes.iter().find(|(process, _)| process.id.pid == pid);
        let state = process.map(|(process, _)| self.state(process));
        let has_failed = matches!(state, Some(Ok(DriverState::Failed | DriverState::Checkpointed)));
        has_failed && matches!(cause, WorkerError::Driver(_)) || matches!(cause, WorkerError::Hangs(_))
    }

    fn state(&self, process: &Process) -> Result<DriverState, WorkerError> {
        self.worker.state(process.as_fd(), PATIENCE)
    }

    /// A call about a process; one that has ended needs none.
    fn call(&self, verb: ParkCall, process: &Process, patience: Duration) -> Result<(), WorkerError> {
        match self.worker.call(verb, process.as_fd(), patience) {
            Err(WorkerError::NotOfASlice) if !process.is_alive() => Ok(()),
            outcome => outcome,
        }
    }

    /// Outcomes of a call for each process, made side by side: the ranks of a job wait for each other.
    fn each(
        &self,
        call: impl Fn(&(Arc<Process>, Bytes)) -> Result<(), WorkerError> + Sync,
    ) -> BTreeMap<HostPid, Result<(), WorkerError>> {
        let gone = || WorkerError::Gone(std::io::Error::other("a thread of the daemon has ended"));
        let side_by_side = |group: &[(Arc<Process>, Bytes)]| {
            thread::scope(|scope| {
                let call = &call;
                let calls = group.iter().map(|held| (held.0.id.pid, scope.spawn(move || call(held))));
                let calls: Vec<_> = calls.collect();
                let joined =
                    calls.into_iter().map(|(pid, done)| (pid, done.join().unwrap_or_else(|_| Err(gone()))));
                joined.collect::<Vec<_>>()
            })
        };
        self.processes.chunks(MOST_AT_ONCE).flat_map(side_by_side).collect()
    }
}

fn first_failure(outcomes: BTreeMap<HostPid, Result<(), WorkerError>>) -> Result<(), Failed> {
    outcomes.into_iter().try_for_each(|(pid, outcome)| outcome.map_err(|cause| (pid, cause)))
}

/// Longest wait for a copy of that many bytes.
fn copy_time(bytes: Bytes) -> Duration {
    COPY_BASE + Duration::from_secs(bytes.get() / SLOWEST)
}
