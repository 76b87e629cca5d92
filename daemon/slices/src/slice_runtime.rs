//! Slice runtime: attached processes of a slice, their grants, and the regions that publish them.
//!
//! The accounting here is authoritative. The control region is its copy for tenants to read; what tenants write in
//! the usage region is accepted only as far as the accounting allows.

mod account;
#[cfg(test)]
mod account_tests;
mod audit;
mod binding;
mod common;
mod container;
mod credit;
mod driver_use;
mod exit;
mod exiting;
mod limits;
mod parking;
mod refusals;
mod reserve;
mod reserves;
mod sharing;
mod slots;
mod termination;
mod units;
mod violations;

use binding::ContainerBinding;
use driver_use::DriverUse;
use reserves::Reserves;
use units::ledger_cap;
use violations::RecentViolations;

use exit::Exit;
pub use exit::{Departure, MAX_LISTED_TIME};
pub use parking::{Candidate, Unparkable};
pub use sharing::ChargeSample;
pub use slots::{Joined, MembershipProof, Way};

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Instant;

use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tranche_domain::event::Instigator;
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::ledger::GrantLedger;
use tranche_domain::sharing::Sharing;
use tranche_domain::slice::{Life, Occupants, Part, ProcessId, Seat};
use tranche_domain::units::Bytes;
use tranche_shm::credit::CreditWord;
use tranche_shm::{DeviceSlot, Slot};

use crate::regions::Regions;
use crate::shares::{Legacy, Shares};
use crate::worker::SliceThread;
use tranche_linux::ancestry::AncestryCache;
use tranche_linux::process::Process;

/// Live state of one slice.
#[derive(Debug)]
pub struct SliceRuntime {
    /// Name, unique on the node while the slice is there.
    pub name: SliceName,
    /// Number by which slices of one name differ.
    pub generation: u64,
    /// GPUs of the slice, in the order of its devices.
    pub gpus: Vec<GpuUuid>,
    /// Shared memory of the slice.
    pub regions: Regions,
    /// Thread that serves the slice's sockets and processes.
    pub worker: SliceThread,
    /// Request or rule that ends the slice.
    pub ended_by: OnceLock<Instigator>,
    /// Notified whenever a process has left and memory became free.
    pub left: Notify,
    /// GPU utilization of each device in percent, or [`UNKNOWN`].
    utilization: Vec<AtomicU64>,
    accounting: Mutex<Accounting>,
    listeners: Mutex<Vec<AbortHandle>>,
    over_since: Mutex<Option<Instant>>,
    /// Refused allocations counted by processes that have left.
    refusals: AtomicU64,
    ancestry: AncestryCache,
    /// Process killed last for exceeding the cap.
    condemned: Mutex<Option<ProcessId>>,
    violations: RecentViolations,
    /// Last figures of the driver for the slice.
    pub driver_use: DriverUse,
    reserves: Reserves,
    /// True while the slice is not on its GPUs, so that requests for memory wait.
    held_back: watch::Sender<bool>,
    /// Nanoseconds by which the clocks of processes are ahead of the daemon's, where they differ.
    clock_offsets: RwLock<BTreeMap<Seat, i64>>,
}

const UNKNOWN: u64 = u64::MAX;

#[derive(Debug)]
struct Accounting {
    life: Life,
    ledgers: Vec<GrantLedger>,
    sharing: Sharing,
    shares: Shares,
    /// Shares of an earlier daemon that are not in `sharing`, or in doubt, until its slots are taken over.
    legacy: Legacy,
    handles: BTreeMap<ProcessId, Arc<Process>>,
    /// Containers that use the slice, or did last.
    binding: ContainerBinding,
    /// Attached processes that have ended and whose memory is not free yet.
    exiting: BTreeMap<ProcessId, Exit>,
}

/// An attached process and its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachedProcess {
    /// Index in the slice's regions.
    pub seat: Seat,
    /// Pid and start time.
    pub id: ProcessId,
}

/// Memory that a process holds on each device.
pub type Held = Vec<Bytes>;

impl SliceRuntime {
    /// A slice without processes; publishes its limits.
    pub fn new(
        name: SliceName,
        worker: SliceThread,
        directory: &Path,
        regions: Regions,
        parts: &[(Part, Bytes)],
        several_containers: bool,
        deadline_ms: u64,
    ) -> Self {
        let (shares, sharing, legacy) = Shares::open(directory);
        let ledger = |(at, (part, _)): (usize, &(Part, Bytes))| {
            let mut ledger = GrantLedger::new(ledger_cap(part.cap));
            // Until its shares are known, none of that memory may be granted.
            let common = DeviceSlot::new(at).map(|device| regions.control().reader().common(device));
            ledger.restore_shared(Bytes::new(common.unwrap_or_default().bytes()));
            ledger
        };
        let ledgers = parts.iter().enumerate().map(ledger).collect();
        let earlier = |at| {
            let device = DeviceSlot::new(at)?;
            Some(Bytes::new(regions.control().reader().limits(device).context.bytes()))
        };
        let earlier = (0..parts.len()).map(|at| earlier(at).unwrap_or_default()).collect();
        let runtime = Self {
            name,
            worker,
            ended_by: OnceLock::new(),
            generation: regions.control().reader().generation(),
            gpus: parts.iter().map(|(part, _)| part.gpu).collect(),
            regions,
            left: Notify::new(),
            utilization: parts.iter().map(|_| AtomicU64::new(UNKNOWN)).collect(),
            accounting: Mutex::new(Accounting {
                life: Life::awaiting(deadline_ms),
                ledgers,
                sharing,
                shares,
                legacy,
                handles: BTreeMap::new(),
                binding: ContainerBinding::open(directory, several_containers),
                exiting: BTreeMap::new(),
            }),
            listeners: Mutex::default(),
            over_since: Mutex::new(None),
            refusals: AtomicU64::new(0),
            ancestry: AncestryCache::default(),
            condemned: Mutex::new(None),
            violations: RecentViolations::default(),
            driver_use: DriverUse::of(parts.len()),
            reserves: Reserves::new(earlier),
            held_back: watch::Sender::new(false),
            clock_offsets: RwLock::default(),
        };
        runtime.publish_limits(&mut runtime.accounting(), parts);
        // No heartbeat yet: until the scheduler has decided, gates pass as they did without a daemon.
        runtime.regions.control().set_departing_until(0);
        runtime
    }

    fn accounting(&self) -> MutexGuard<'_, Accounting> {
        self.accounting.lock().expect("nothing panics while it holds the books")
    }

    /// Clears what a process writes about itself.
    fn clear(&self, seat: Seat) {
        self.keep_refusals(seat);
        self.regions.usage().clear(slot(seat));
        self.regions.compute().clear(slot(seat));
    }

    /// Devices of the slice with their numbers.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceSlot, GpuUuid)> + '_ {
        self.gpus.iter().enumerate().filter_map(|(at, gpu)| Some((DeviceSlot::new(at)?, *gpu)))
    }

    fn word(&self, seat: Seat, device: DeviceSlot) -> CreditWord<'_> {
        self.regions.usage().credit(slot(seat), device)
    }

    /// Discards the outstanding work of a process that has ended; returns true if it ever reported any.
    pub fn abandon_work(&self, seat: Seat) -> bool {
        self.regions.compute().clear(slot(seat))
    }

    // Life cycle

    /// Ends the slice: no further process is admitted.
    pub fn end(&self) {
        self.accounting().life.end();
    }

    /// Ends the slice if its time is over, and returns true if so.
    pub fn end_if_over(&self, ephemeral: bool, now_ms: u64) -> bool {
        let mut accounting = self.accounting();
        let over = accounting.life.is_over(ephemeral, now_ms);
        if over {
            accounting.life.end();
        }
        over
    }

    // Queries

    /// Roots and attached processes.
    pub fn occupants(&self) -> Occupants {
        self.accounting().life.occupants().cloned().unwrap_or_default()
    }

    /// Returns true if the slice has neither roots nor attached processes.
    pub fn is_deserted(&self) -> bool {
        self.accounting().life.occupants().is_none_or(Occupants::is_empty)
    }

    fn roots(&self) -> BTreeSet<ProcessId> {
        self.accounting().life.occupants().map(|here| here.roots.clone()).unwrap_or_default()
    }

    /// Reported use of each process on each device, at most the grant. A tenant's value must not spoil the node's
    /// totals.
    pub fn held(&self) -> BTreeMap<ProcessId, Held> {
        let members = self.occupants().members;
        let accounting = self.accounting();
        let held = |seat: Seat, device: DeviceSlot| {
            let said = Bytes::new(self.word(seat, device).load().used.bytes());
            said.min(accounting.ledgers[device.index()].granted(seat))
        };
        let of = |seat: Seat| self.devices().map(|(device, _)| held(seat, device)).collect();
        members.into_iter().map(|(seat, id)| (id, of(seat))).collect()
    }

    /// Aborts the listening tasks, and with them the connections that they serve.
    pub fn close(&self) {
        for task in self.listeners().drain(..) {
            task.abort();
        }
    }

    /// Adds a listening task, which ends with the slice.
    pub fn add_listener(&self, task: AbortHandle) {
        self.listeners().push(task);
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<AbortHandle>> {
        self.listeners.lock().expect("nothing panics while it holds the listeners")
    }
}

impl Drop for SliceRuntime {
    fn drop(&mut self) {
        self.close();
    }
}

impl Accounting {
    /// Attached processes by slot.
    fn members(&self) -> impl Iterator<Item = (Seat, ProcessId)> {
        let members = self.life.occupants().into_iter().flat_map(|here| &here.members);
        members.map(|(seat, id)| (*seat, *id))
    }

    /// Slots of the attached processes.
    fn seats(&self) -> Vec<Seat> {
        self.members().map(|(seat, _)| seat).collect()
    }

    /// Slot of an attached process.
    fn seat_of(&self, id: ProcessId) -> Option<Seat> {
        self.members().find(|(_, member)| *member == id).map(|(seat, _)| seat)
    }

    /// Closes a process's handle unless it is still root or attached; it may be both.
    fn drop_handle(&mut self, id: ProcessId) {
        let here = |occupants: &Occupants| {
            occupants.roots.contains(&id) || occupants.members.values().any(|member| *member == id)
        };
        if !self.life.occupants().is_some_and(here) {
            self.handles.remove(&id);
        }
    }
}

fn slot(seat: Seat) -> Slot {
    Slot::new(seat.0.into()).expect("seats are only made from the indices of slots")
}
