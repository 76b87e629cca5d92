//! The thread of a process that carries out what others, or the process itself, request of its driver.
//!
//! Law: the table's lock is not held while time passes. Calls of the program wait at the gate meanwhile.

use std::sync::{Once, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use simgpu::{ProcessState, Request, StarvedRestore};

use super::host_copy::HostCopy;
use super::obstacles::{self, Obstacle};
use crate::driver::{Driver, driver};
use crate::personality;
use crate::status::{Outcome, Status, number};

/// Interval at which a lock tests if all is done.
const TICK: Duration = Duration::from_micros(200);
/// Longest sleep without a request, which bounds a lost wakeup.
const NAP: Duration = Duration::from_secs(1);

/// Starts the thread, once in each process whose driver has it.
pub(crate) fn begin() {
    static BEGUN: Once = Once::new();
    if !personality::has_checkpoints() {
        return;
    }
    BEGUN.call_once(|| {
        let (ready, is_ready) = mpsc::channel();
        // Without the thread the process cannot be locked: calls about it return "not initialised".
        let started = thread::Builder::new().name("cuda-checkpoint".into()).spawn(move || {
            if let Ok(driver) = driver() {
                driver.process.serve_requests();
                drop(ready);
                serve(driver);
            }
        });
        if started.is_ok() {
            let _: Result<(), _> = is_ready.recv();
        }
    });
}

fn serve(driver: &Driver) -> ! {
    let mut kept = Kept::default();
    loop {
        if let Some((request, wanted)) = driver.process.next_request(NAP) {
            let result = number(kept.carry_out(driver, wanted));
            driver.process.answer(request, u64::from(result.unsigned_abs()), kept.state);
        }
    }
}

/// State of this process, and what is kept of its device memory.
#[derive(Default)]
struct Kept {
    state: ProcessState,
    copy: Option<HostCopy>,
    /// A restore found no room: there is none that succeeds any more.
    starved: bool,
}

impl Kept {
    fn carry_out(&mut self, driver: &Driver, wanted: Request) -> Outcome {
        match (wanted, self.state) {
            (Request::Lock(timeout), ProcessState::Running) => {
                lock(driver, timeout)?;
                self.state = ProcessState::Locked;
            }
            (Request::Checkpoint, ProcessState::Locked) => return self.checkpoint(driver),
            // NVIDIA/cuda-checkpoint issue 44.
            (Request::Restore(_), _) if self.starved => return Err(Status::OperatingSystem),
            (Request::Restore(places), ProcessState::Checkpointed) => return self.restore(driver, places),
            (Request::Unlock, ProcessState::Locked) => {
                crate::gate::open();
                self.state = ProcessState::Running;
            }
            _ => return Err(Status::IllegalState),
        }
        Ok(())
    }

    fn checkpoint(&mut self, driver: &Driver) -> Outcome {
        let obstacle = obstacles::to_checkpoint(driver, &driver.table());
        let taken = match obstacle {
            Some(Obstacle::Hangs) => hang(),
            Some(Obstacle::Fails(status)) => Err(status),
            None => HostCopy::take(driver),
        };
        self.state = if taken.is_ok() { ProcessState::Checkpointed } else { ProcessState::Failed };
        self.copy = Some(taken?);
        Ok(())
    }

    fn restore(&mut self, driver: &Driver, places: Option<Vec<simgpu::Gpu>>) -> Outcome {
        let copy = self.copy.as_mut().ok_or(Status::IllegalState)?;
        let hindered = obstacles::to_restore(&driver.table());
        let restored = hindered.map_or_else(|| copy.restore(driver, places.as_deref()), Err);
        self.starved = restored == Err(Status::OutOfMemory);
        self.state = match restored {
            Ok(()) => ProcessState::Locked,
            Err(_) if self.starved && personality::own().starved_restore == StarvedRestore::Checkpointed => {
                ProcessState::Checkpointed
            }
            Err(_) => ProcessState::Failed,
        };
        if restored.is_ok() {
            self.copy = None;
        }
        restored
    }
}

/// Never returns; the process can still be killed.
fn hang() -> ! {
    loop {
        thread::park();
    }
}

/// Shuts the gate and waits until no call is inside and all work is done. What takes longer than the timeout leaves
/// the process running.
fn lock(driver: &Driver, timeout: Option<Duration>) -> Outcome {
    let begin = Instant::now();
    crate::gate::shut();
    while !(crate::gate::is_empty() && is_drained(driver)) {
        if timeout.is_some_and(|timeout| begin.elapsed() >= timeout) {
            crate::gate::open();
            return Err(Status::NotReady);
        }
        thread::sleep(TICK);
    }
    Ok(())
}

fn is_drained(driver: &Driver) -> bool {
    let engines: Vec<_> = driver.table().contexts.values().map(|context| context.engine).collect();
    engines.into_iter().all(|engine| driver.process.is_drained(engine))
        && !driver.worker.busy_streams().iter().any(|stream| stream.has_deferred())
}
