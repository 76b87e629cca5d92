//! Faults of GPUs: received from the driver on a thread of their own, and part of every snapshot.
//! A fault is over once its GPU has been healthy for a while.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tranche_domain::event::{EventKind, Happening};
use tranche_domain::fault::{Fault, Faults, Xid};
use tranche_domain::id::GpuUuid;
use tranche_inventory::{Driver, GpuFacts, GpuFault, InventoryError, NotSliceable};

use tranche_linux::clock::now_unix_ms;
use tranche_telemetry::Telemetry;
use tranche_telemetry::conditions::{ConditionKind as Condition, ConditionSubject};

/// Longest wait for a fault, after which the thread checks whether to stop.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause before a driver that reports no faults is queried again.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Health of the GPUs.
pub(crate) struct FaultMonitor {
    driver: Arc<dyn Driver>,
    gpus: Vec<GpuFacts>,
    telemetry: Arc<Telemetry>,
    state: Mutex<FaultState>,
    since: Instant,
    /// Number of times that a lost GPU returned, and so has to be subscribed to again.
    returns: AtomicU64,
    /// Incremented whenever the health of a GPU changes; `None` once the daemon is ending.
    changes: watch::Sender<Option<u64>>,
}

#[derive(Debug)]
struct FaultState {
    faults: Faults,
    /// Reason why each GPU took no slices at the last sample, if there was one.
    obstacles: BTreeMap<GpuUuid, Option<NotSliceable>>,
}

impl FaultMonitor {
    /// Starts without faults. A fault is over once its GPU has been healthy for `quiet`.
    pub(crate) fn new(
        quiet: Duration,
        driver: Arc<dyn Driver>,
        gpus: Vec<GpuFacts>,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self {
            driver,
            gpus,
            telemetry,
            state: Mutex::new(FaultState { faults: Faults::new(quiet), obstacles: BTreeMap::new() }),
            since: Instant::now(),
            returns: AtomicU64::new(0),
            changes: watch::Sender::new(Some(0)),
        }
    }

    /// Changes the time that a GPU has to be healthy until its faults are over.
    pub(crate) fn set_quiet(&self, quiet: Duration) {
        self.state().faults.set_quiet(quiet);
    }

    /// Current faults of a GPU.
    pub(crate) fn of(&self, gpu: GpuUuid) -> Vec<Fault> {
        self.state().faults.of(gpu)
    }

    /// Receiver that changes whenever the health of a GPU changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<u64>> {
        self.changes.subscribe()
    }

    /// Ends the thread and every receiver's stream.
    pub(crate) fn stop(&self) {
        self.changes.send_replace(None);
    }

    fn has_stopped(&self) -> bool {
        self.changes.borrow().is_none()
    }

    /// Notifies of a change in the health of a GPU, or in its reason for taking no slices.
    pub(crate) fn changed(&self) {
        self.changes.send_if_modified(|changes| changes.as_mut().map(|changes| *changes += 1).is_some());
    }

    fn state(&self) -> MutexGuard<'_, FaultState> {
        self.state.lock().expect("nothing panics while it holds the book of faults")
    }

    /// Takes in a sample of the GPUs; records faults that are over.
    pub(crate) fn look(&self, gpus: &[GpuFacts]) {
        for gpu in gpus {
            let is_well = !gpu.not_sliceable.as_ref().is_some_and(NotSliceable::is_fault);
            let over = self.state().faults.look(gpu.uuid, is_well, self.since.elapsed());
            for fault in &over {
                self.telemetry
                    .conditions
                    .clear(Condition::GpuFault(fault.xid.get()), ConditionSubject::Gpu(gpu.uuid));
                let told = format!(
                    "{} of GPU {} is over; it was reported {} times",
                    fault.xid, gpu.index, fault.count
                );
                self.telemetry.record(Happening::new(EventKind::GpuRecovered, told).on(gpu.uuid));
            }
            if self.take_obstacle(gpu) || !over.is_empty() {
                self.changed();
            }
        }
    }

    /// Records a GPU's obstacle to slices; returns true if it changed.
    fn take_obstacle(&self, gpu: &GpuFacts) -> bool {
        let before = self.state().obstacles.insert(gpu.uuid, gpu.not_sliceable.clone());
        let Some(before) = before.filter(|before| *before != gpu.not_sliceable) else { return false };
        let index = gpu.index;
        let told = match &gpu.not_sliceable {
            Some(obstacle) => Happening::new(
                EventKind::GpuFault,
                format!("GPU {index} takes no slices from now on: {obstacle}"),
            ),
            None => Happening::new(EventKind::GpuRecovered, format!("GPU {index} takes slices again")),
        };
        self.telemetry.record(told.on(gpu.uuid));
        if matches!(before, Some(NotSliceable::Lost { .. })) {
            self.returns.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Records a fault that the driver reported.
    fn happened(&self, fault: GpuFault) {
        for gpu in self.suspects(fault) {
            self.telemetry.counters.fault(gpu.uuid, fault.xid);
            let new = self.state().faults.happened(gpu.uuid, fault.xid, self.since.elapsed(), now_unix_ms());
            match (new, fault.xid.is_of_programs()) {
                (true, false) => {
                    let description = description(gpu.index, fault.xid);
                    let kind = Condition::GpuFault(fault.xid.get());
                    self.telemetry.conditions.set(kind, ConditionSubject::Gpu(gpu.uuid), &description);
                    self.telemetry.record(Happening::new(EventKind::GpuFault, description).on(gpu.uuid));
                }
                (true, true) => {
                    let told = format!("a program brought about {} on GPU {}", fault.xid, gpu.index);
                    self.telemetry.record(Happening::new(EventKind::ProgramFault, told).on(gpu.uuid));
                }
                (false, _) => tracing::debug!(gpu = gpu.index, "{} again", fault.xid),
            }
            if new {
                self.changed();
            }
        }
    }

    /// GPUs that the fault may concern. Where the driver names none: those that fail to answer, else all.
    fn suspects(&self, fault: GpuFault) -> Vec<&GpuFacts> {
        let select = |is_it: &dyn Fn(&GpuFacts) -> bool| self.gpus.iter().filter(|gpu| is_it(gpu)).collect();
        if let Some(uuid) = fault.gpu {
            return select(&|gpu| gpu.uuid == uuid);
        }
        let unresponsive: Vec<_> = select(&|gpu| self.driver.state(gpu.uuid).is_err());
        if unresponsive.is_empty() { select(&|_| true) } else { unresponsive }
    }

    /// Starts the thread that receives faults until the daemon ends.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<()> {
        let monitor = Arc::clone(self);
        thread::Builder::new().name("faults".into()).spawn(move || monitor.receive()).map(drop)
    }

    fn receive(&self) {
        let mut last_error = None;
        while !self.has_stopped() {
            match self.receive_once() {
                Ok(()) => last_error = None,
                Err(InventoryError::NoDriver { .. }) => return,
                Err(error) => {
                    if last_error.as_ref() != Some(&error) {
                        tracing::warn!("faults of GPUs are not received, and it is tried again: {error}");
                        last_error = Some(error);
                    }
                    thread::sleep(RETRY_PAUSE);
                }
            }
        }
    }

    /// Receives faults until the daemon ends, or a GPU has returned that the driver is not subscribed to.
    fn receive_once(&self) -> Result<(), InventoryError> {
        let returns = || self.returns.load(Ordering::Relaxed);
        let begun = returns();
        self.driver.follow_faults(RECEIVE_TIMEOUT, &mut |received| {
            if let Some(fault) = received {
                self.happened(fault);
            }
            if self.has_stopped() || returns() != begun {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    }
}

fn description(index: u32, xid: Xid) -> String {
    format!("GPU {index} has a fault: the driver reports {xid}")
}
