//! Reclaims the memory of processes that have ended, once the driver has released it and no sooner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tranche_domain::id::{GpuUuid, HostPid, SliceName};
use tranche_domain::slice::{ProcessId, Seat};
use tranche_inventory::Driver;
use tranche_shm::crash::point;

use crate::slice_runtime::{MAX_LISTED_TIME, SliceRuntime};
use tranche_linux::process::Process;
use tranche_telemetry::Telemetry;
use tranche_telemetry::conditions::{ConditionKind as Condition, ConditionSubject};

/// Pause between queries for a process that stays listed longer.
const LONG_PAUSE: Duration = Duration::from_millis(500);
/// First pause between queries; each is half as long again as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// Least time between two queries of the same GPU; they are the slowest part of a process's end.
///
/// It delays a process only that ends this soon after another one.
const QUERY_PERIOD: Duration = Duration::from_millis(2);

/// The owner of the slices, which may delete one when a process has ended.
pub trait Slices: Send + Sync {
    /// Schedules without the work of a process that has ended.
    fn process_ended(&self);

    /// Charges a slice for the GPU time that its processes have recorded, before a record is cleared.
    fn settle_use(&self, slice: &SliceName);
    /// Keeps memory committed that a slice still holds beyond its cap.
    fn note_excess(&self, runtime: &SliceRuntime);
    /// Removes a slice whose time is over; returns true if it is gone.
    fn end_if_over(&self, runtime: &Arc<SliceRuntime>) -> bool;
    /// Writes the state file.
    fn save(&self);
}

/// Watches processes of slices and reclaims their memory.
pub struct Reaper {
    /// Sinks of the daemon.
    pub telemetry: Arc<Telemetry>,
    driver: Arc<dyn Driver>,
    listings: Listings,
    owner: Weak<dyn Slices>,
}

impl Reaper {
    /// A reaper without processes. The owner of the slices holds it.
    pub fn new(telemetry: Arc<Telemetry>, driver: Arc<dyn Driver>, owner: Weak<dyn Slices>) -> Self {
        Self { telemetry, driver, listings: Listings::default(), owner }
    }

    /// Releases a process's slot when it has ended. Without a handle it has ended already.
    pub fn watch_member(
        self: &Arc<Self>,
        runtime: &Arc<SliceRuntime>,
        seat: Seat,
        id: ProcessId,
        handle: Option<Arc<Process>>,
    ) {
        let (work, reaper, runtime) = (runtime.worker.work(), Arc::clone(self), Arc::clone(runtime));
        work.spawn(async move {
            if let Some(process) = handle {
                wait_for_end(&process).await;
            }
            runtime.mark_exiting(id);
            point("reap: ended");
            reaper.owner.upgrade().iter().for_each(|owner| owner.settle_use(&runtime.name));
            if runtime.abandon_work(seat) {
                reaper.owner.upgrade().iter().for_each(|owner| owner.process_ended());
            }
            let ended = Instant::now();
            if reaper.wait_until_unlisted(&runtime, id).await == ListedPresence::Yes {
                reaper.wait_while_listed(&runtime, id).await;
            }
            point("reap: free");
            let was_over = runtime.is_over();
            let freed = runtime.release_slot(seat, id);
            let after_us = ended.elapsed().as_micros();
            tracing::info!(slice = %runtime.name, pid = %id.pid, %freed, after_us, "reclaimed");
            // Reclaiming memory beyond the slice may wait for the disk.
            if was_over || runtime.is_deserted() {
                tokio::task::spawn_blocking(move || {
                    let Some(owner) = reaper.owner.upgrade() else { return };
                    owner.note_excess(&runtime);
                    owner.end_if_over(&runtime);
                });
            }
        });
    }

    /// Waits while the driver lists a process that has ended. Its memory is not free, whatever the reason, and must not
    /// be promised to others. If the pid has been reused, the listing no longer counts.
    async fn wait_while_listed(&self, runtime: &SliceRuntime, id: ProcessId) {
        let (pid, name) = (id.pid, &runtime.name);
        let subject = ConditionSubject::Process(name.clone(), pid);
        let message = format!(
            "process {pid} of slice {name} has ended, but the driver still lists it: its memory stays charged until the \
             driver lets go of it; end what the process left running, if anything"
        );
        self.telemetry.conditions.set(Condition::StillListed, subject.clone(), message);
        let is_reused = || Process::open(pid).is_ok_and(|now| now.id != id);
        while self.query(&runtime.gpus, pid).await == ListedPresence::Yes && !is_reused() {
            tokio::time::sleep(LONG_PAUSE).await;
        }
        self.telemetry.conditions.clear(Condition::StillListed, subject);
    }

    /// Empties the account of a process after its `exec`, if the driver no longer lists it.
    /// The process reports the `exec`. While the driver lists it or fails to answer, it may still hold what it was
    /// charged for.
    pub async fn reset_after_exec(&self, runtime: &SliceRuntime, seat: Seat, id: ProcessId) {
        if self.wait_until_unlisted(runtime, id).await == ListedPresence::No {
            self.owner.upgrade().iter().for_each(|owner| owner.settle_use(&runtime.name));
            let freed = runtime.reset_account(seat);
            tracing::info!(slice = %runtime.name, pid = %id.pid, %freed, "became another program");
        }
    }

    /// Removes a root process from its slice when it has ended.
    pub fn watch_root(self: &Arc<Self>, runtime: &Arc<SliceRuntime>, root: Arc<Process>) {
        let (work, reaper, runtime) = (runtime.worker.work(), Arc::clone(self), Arc::clone(runtime));
        work.spawn(async move {
            wait_for_end(&root).await;
            runtime.remove_root(root.id);
            runtime.left.notify_waiters();
            tokio::task::spawn_blocking(move || {
                if let Some(owner) = reaper.owner.upgrade()
                    && !owner.end_if_over(&runtime)
                {
                    owner.save();
                }
            });
        });
    }

    /// Queries until the process is no longer listed, or [`MAX_LISTED_TIME`] has passed.
    async fn wait_until_unlisted(&self, runtime: &SliceRuntime, id: ProcessId) -> ListedPresence {
        let deadline = Instant::now() + MAX_LISTED_TIME;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.query(&runtime.gpus, id.pid).await {
                ListedPresence::Yes if Instant::now() < deadline => runtime.note_listed(id),
                answer => return answer,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    }

    async fn query(&self, gpus: &[GpuUuid], pid: HostPid) -> ListedPresence {
        let mut listed = ListedPresence::No;
        for gpu in gpus {
            match self.listings.after(&self.driver, *gpu, Instant::now()).await {
                Some(pids) if pids.contains(&pid) => return ListedPresence::Yes,
                Some(_) => {}
                None => listed = ListedPresence::Unknown,
            }
        }
        listed
    }
}

/// Waits on the pidfd; where the runtime cannot watch it, polls.
async fn wait_for_end(process: &Process) {
    if let Err(error) = process.ended().await {
        tracing::warn!(pid = %process.id.pid, %error, "cannot watch the process; looking from time to time");
    }
    while process.is_alive() {
        tokio::time::sleep(LONGEST_PAUSE).await;
    }
}

/// Presence of a process in the driver's listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListedPresence {
    /// Listed on one of the slice's GPUs.
    Yes,
    /// Listed on none of them.
    No,
    /// Listed on none that answered; at least one did not.
    Unknown,
}

/// The driver's list of processes on each GPU, with the time of the query. When many processes end at once, one
/// answer serves all that wait for it.
#[derive(Debug, Default)]
struct Listings(Mutex<BTreeMap<GpuUuid, Arc<tokio::sync::Mutex<Listing>>>>);

/// `None` if the GPU does not answer.
type Pids = Option<Arc<BTreeSet<HostPid>>>;

#[derive(Debug, Default)]
struct Listing {
    queried: Option<Instant>,
    pids: Pids,
}

impl Listings {
    /// The driver's list for a GPU, from a query that began no earlier than `since`.
    async fn after(&self, driver: &Arc<dyn Driver>, gpu: GpuUuid, since: Instant) -> Pids {
        let listing = {
            let mut listings = self.0.lock().expect("nothing panics while it holds the listings");
            Arc::clone(listings.entry(gpu).or_default())
        };
        let mut listing = listing.lock().await;
        if listing.queried.is_none_or(|queried| queried < since) {
            // Requests that arrive during this pause are served by the same query.
            let rest = listing.queried.map(|queried| QUERY_PERIOD.saturating_sub(queried.elapsed()));
            if let Some(rest) = rest.filter(|rest| !rest.is_zero()) {
                tokio::time::sleep(rest).await;
            }
            let (driver, queried) = (Arc::clone(driver), Instant::now());
            let list_processes = move || {
                let listed = driver.processes(gpu).ok()?;
                Some(Arc::new(listed.into_iter().map(|process| process.pid).collect()))
            };
            let pids = tokio::task::spawn_blocking(list_processes).await.unwrap_or_default();
            *listing = Listing { queried: Some(queried), pids };
        }
        listing.pids.clone()
    }
}
