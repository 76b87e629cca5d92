//! Faults of GPUs, as the driver reports them: heard by a thread of their own, shown in every snapshot, and over
//! when the GPU has been well for a while.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tranche_domain::event::{Happening, Kind};
use tranche_domain::fault::{Fault, Faults, Xid};
use tranche_domain::id::GpuUuid;
use tranche_inventory::{GpuFacts, GpuFault, InventoryError, NotSliceable};

use crate::agent::Agent;
use crate::clock::now_unix_ms;

/// How often the thread that listens looks whether it is to go on.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long until a driver that does not tell of faults is asked again.
const PAUSE: Duration = Duration::from_secs(5);

/// What is known of the health of GPUs.
#[derive(Debug)]
pub(crate) struct FaultBook {
    book: Mutex<Book>,
    since: Instant,
    /// How often a GPU has come back, and so is to be listened to.
    comebacks: AtomicU64,
    /// Moves when the health of some GPU changes; nothing once the daemon is to end.
    turn: watch::Sender<Option<u64>>,
}

#[derive(Debug)]
struct Book {
    faults: Faults,
    /// What was in the way of slices when each GPU was looked at last.
    obstacles: BTreeMap<GpuUuid, Option<NotSliceable>>,
}

impl FaultBook {
    /// Without faults; a GPU is to have been well for so long until its faults are over.
    pub(crate) fn new(quiet: Duration) -> Self {
        Self {
            book: Mutex::new(Book { faults: Faults::new(quiet), obstacles: BTreeMap::new() }),
            since: Instant::now(),
            comebacks: AtomicU64::new(0),
            turn: watch::Sender::new(Some(0)),
        }
    }

    /// For how long a GPU is to have been well from now on.
    pub(crate) fn set_quiet(&self, quiet: Duration) {
        self.book().faults.set_quiet(quiet);
    }

    /// The faults of a GPU that are not over.
    pub(crate) fn of(&self, gpu: GpuUuid) -> Vec<Fault> {
        self.book().faults.of(gpu)
    }

    /// Tells whenever the health of some GPU changes.
    pub(crate) fn turns(&self) -> watch::Receiver<Option<u64>> {
        self.turn.subscribe()
    }

    /// Tells everybody who follows that there will be no more.
    pub(crate) fn stop(&self) {
        self.turn.send_replace(None);
    }

    fn has_stopped(&self) -> bool {
        self.turn.borrow().is_none()
    }

    /// The health of some GPU changed, or what is in the way of slices on it.
    pub(crate) fn changed(&self) {
        self.turn.send_if_modified(|turn| turn.as_mut().map(|turn| *turn += 1).is_some());
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("nothing panics while it holds the book of faults")
    }

    /// Takes in a look at the GPUs.
    pub(crate) fn look(&self, agent: &Agent, gpus: &[GpuFacts]) {
        for gpu in gpus {
            let is_well = !gpu.not_sliceable.as_ref().is_some_and(NotSliceable::is_fault);
            let over = self.book().faults.look(gpu.uuid, is_well, self.since.elapsed());
            for fault in &over {
                agent.withdraw(&complaint(gpu.index, fault.xid));
                let told = format!(
                    "{} of GPU {} is over; it was reported {} times",
                    fault.xid, gpu.index, fault.count
                );
                agent.events.record(Happening::new(Kind::GpuRecovered, told).on(gpu.uuid));
            }
            if self.take_obstacle(agent, gpu) || !over.is_empty() {
                self.changed();
            }
        }
    }

    /// Says whether another obstacle is in the way than before.
    fn take_obstacle(&self, agent: &Agent, gpu: &GpuFacts) -> bool {
        let before = self.book().obstacles.insert(gpu.uuid, gpu.not_sliceable.clone());
        let Some(before) = before.filter(|before| *before != gpu.not_sliceable) else { return false };
        let index = gpu.index;
        let told = match &gpu.not_sliceable {
            Some(obstacle) => {
                Happening::new(Kind::GpuFault, format!("GPU {index} takes no slices from now on: {obstacle}"))
            }
            None => Happening::new(Kind::GpuRecovered, format!("GPU {index} takes slices again")),
        };
        agent.events.record(told.on(gpu.uuid));
        if matches!(before, Some(NotSliceable::Lost { .. })) {
            self.comebacks.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Takes in what the driver reports.
    fn happened(&self, agent: &Agent, fault: GpuFault) {
        for gpu in suspects(agent, fault) {
            agent.tally.fault(gpu.uuid, fault.xid);
            let new = self.book().faults.happened(gpu.uuid, fault.xid, self.since.elapsed(), now_unix_ms());
            match (new, fault.xid.is_of_programs()) {
                (true, false) => {
                    let complaint = complaint(gpu.index, fault.xid);
                    agent.note(complaint.clone());
                    agent.events.record(Happening::new(Kind::GpuFault, complaint).on(gpu.uuid));
                }
                (true, true) => {
                    let told = format!("a program brought about {} on GPU {}", fault.xid, gpu.index);
                    agent.events.record(Happening::new(Kind::ProgramFault, told).on(gpu.uuid));
                }
                (false, _) => tracing::debug!(gpu = gpu.index, "{} again", fault.xid),
            }
            if new {
                self.changed();
            }
        }
    }
}

fn complaint(index: u32, xid: Xid) -> String {
    format!("GPU {index} has a fault: the driver reports {xid}")
}

/// Whose fault it is. Where the driver does not say: of those that do not answer, else of all.
fn suspects(agent: &Agent, fault: GpuFault) -> Vec<&GpuFacts> {
    let those = |is_it: &dyn Fn(&GpuFacts) -> bool| agent.gpus.iter().filter(|gpu| is_it(gpu)).collect();
    if let Some(uuid) = fault.gpu {
        return those(&|gpu| gpu.uuid == uuid);
    }
    let silent: Vec<_> = those(&|gpu| agent.driver.state(gpu.uuid).is_err());
    if silent.is_empty() { those(&|_| true) } else { silent }
}

/// Listens from now on, until the daemon is to end.
pub(crate) fn follow(agent: &Arc<Agent>) -> io::Result<()> {
    let agent = Arc::clone(agent);
    thread::Builder::new().name("faults".into()).spawn(move || listen(&agent)).map(drop)
}

fn listen(agent: &Agent) {
    let mut said = None;
    while !agent.faults.has_stopped() {
        match listen_once(agent) {
            Ok(()) => said = None,
            Err(InventoryError::NoDriver { .. }) => return,
            Err(error) => {
                if said.as_ref() != Some(&error) {
                    tracing::warn!("faults of GPUs are not heard, and it is tried again: {error}");
                    said = Some(error);
                }
                thread::sleep(PAUSE);
            }
        }
    }
}

/// Until the daemon is to end, or a GPU is back that was not listened to.
fn listen_once(agent: &Agent) -> Result<(), InventoryError> {
    let faults = &agent.faults;
    let comebacks = || faults.comebacks.load(Ordering::Relaxed);
    let begun = comebacks();
    agent.driver.follow_faults(PATIENCE, &mut |heard| {
        if let Some(fault) = heard {
            faults.happened(agent, fault);
        }
        if faults.has_stopped() || comebacks() != begun {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })
}
