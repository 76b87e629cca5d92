//! One slice as it is lived in: who is there, what each may hold, and the regions that say so.
//!
//! The books here are what is true. The control region is their copy for tenants to read; what tenants write
//! in the usage region is believed only as far as the books allow.

mod account;
mod common;
mod container;
mod credit;
mod departures;
mod killing;
mod limits;
mod refusals;
mod reserve;
mod seats;
mod sharing;
mod sight;
mod truth;

use container::Bond;
use limits::ledger_cap;
use reserve::Reserves;
use seats::seat_of;
pub(crate) use seats::{Joined, Pass};
pub(crate) use sharing::Still;
use sight::Sight;
use truth::Deceits;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Instant;

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tranche_domain::event::Actor;
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::ledger::Ledger;
use tranche_domain::sharing::Sharing;
use tranche_domain::slice::{Life, Occupants, Part, ProcessId, Seat};
use tranche_domain::units::Bytes;
use tranche_shm::credit::CreditWord;
use tranche_shm::{DeviceSlot, Slot};

use crate::ancestry::AncestryCache;
use crate::clock::monotonic_ns;
use crate::process::Process;
use crate::regions::Regions;
use crate::shares::{Legacy, Shares};
use crate::worker::SliceThread;

/// A slice in being.
#[derive(Debug)]
pub(crate) struct Tenancy {
    pub(crate) name: SliceName,
    pub(crate) generation: u64,
    /// Its GPUs, in the order of its devices.
    pub(crate) gpus: Vec<GpuUuid>,
    pub(crate) regions: Regions,
    /// Where its sockets and processes are looked after.
    pub(crate) worker: SliceThread,
    /// At whose request it ends.
    pub(crate) ended_by: OnceLock<Actor>,
    /// Told whenever somebody left and memory came free.
    pub(crate) left: Notify,
    /// Per device: GPU utilisation in percent, or [`UNKNOWN`].
    utilization: Vec<AtomicU64>,
    books: Mutex<Books>,
    listeners: Mutex<Vec<AbortHandle>>,
    over_since: Mutex<Option<Instant>>,
    /// What processes had been refused that have left.
    refusals: AtomicU64,
    ancestry: AncestryCache,
    /// Whom we killed last for holding too much.
    condemned: Mutex<Option<ProcessId>>,
    deceits: Deceits,
    sight: Sight,
    reserves: Reserves,
    /// By how many nanoseconds the clocks of processes are ahead of the daemon's, where they are.
    shifted: RwLock<BTreeMap<Seat, i64>>,
}

const UNKNOWN: u64 = u64::MAX;

#[derive(Debug)]
struct Books {
    life: Life,
    ledgers: Vec<Ledger>,
    sharing: Sharing,
    shares: Shares,
    /// What an earlier daemon knew beside that or left in doubt, until its seats are taken over.
    legacy: Legacy,
    handles: BTreeMap<ProcessId, Arc<Process>>,
    /// Whose container it is at the moment, or was last.
    bond: Bond,
    /// Members that were seen to have ended, and until when their memory may come free at any moment.
    departing: BTreeMap<ProcessId, u64>,
}

/// A process and the seat that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) seat: Seat,
    pub(crate) id: ProcessId,
}

/// What a member holds, per device.
pub(crate) type Held = Vec<Bytes>;

impl Tenancy {
    /// A slice that nobody has entered yet, its limits written.
    pub(crate) fn new(
        name: SliceName,
        worker: SliceThread,
        directory: &Path,
        regions: Regions,
        parts: &[(Part, Bytes)],
        deadline_ms: u64,
    ) -> Self {
        let (shares, sharing, legacy) = Shares::open(directory);
        let ledger = |(at, (part, _)): (usize, &(Part, Bytes))| {
            let mut ledger = Ledger::new(ledger_cap(part.cap));
            // Until it is known what was shared in it, none of that may be granted to anybody.
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
        let tenancy = Self {
            name,
            worker,
            ended_by: OnceLock::new(),
            generation: regions.control().reader().generation(),
            gpus: parts.iter().map(|(part, _)| part.gpu).collect(),
            regions,
            left: Notify::new(),
            utilization: parts.iter().map(|_| AtomicU64::new(UNKNOWN)).collect(),
            books: Mutex::new(Books {
                life: Life::awaiting(deadline_ms),
                ledgers,
                sharing,
                shares,
                legacy,
                handles: BTreeMap::new(),
                bond: Bond::open(directory),
                departing: BTreeMap::new(),
            }),
            listeners: Mutex::default(),
            over_since: Mutex::new(None),
            refusals: AtomicU64::new(0),
            ancestry: AncestryCache::default(),
            condemned: Mutex::new(None),
            deceits: Deceits::default(),
            sight: Sight::of(parts.len()),
            reserves: Reserves::new(earlier),
            shifted: RwLock::default(),
        };
        tenancy.publish_limits(&mut tenancy.books(), parts);
        tenancy.beat(monotonic_ns());
        tenancy.regions.control().set_departing_until(0);
        tenancy
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("nothing panics while it holds the books")
    }

    /// Empties what a process says of itself.
    fn clear(&self, seat: Seat) {
        self.keep_refusals(seat);
        self.regions.usage().clear(slot(seat));
        self.regions.compute().clear(slot(seat));
    }

    /// Its devices, numbered.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (DeviceSlot, GpuUuid)> + '_ {
        self.gpus.iter().enumerate().filter_map(|(at, gpu)| Some((DeviceSlot::new(at)?, *gpu)))
    }

    fn word(&self, seat: Seat, device: DeviceSlot) -> CreditWord<'_> {
        self.regions.usage().credit(slot(seat), device)
    }

    /// Forgets what a process that has ended had outstanding: nobody waits for that any more.
    pub(crate) fn abandon_work(&self, seat: Seat) {
        self.regions.compute().clear(slot(seat));
    }

    // Coming and going

    /// Lets nobody in any more.
    pub(crate) fn end(&self) {
        self.books().life.end();
    }

    /// Lets nobody in any more if it is over, and says whether it is.
    pub(crate) fn end_if_over(&self, ephemeral: bool, now_ms: u64) -> bool {
        let mut books = self.books();
        let over = books.life.is_over(ephemeral, now_ms);
        if over {
            books.life.end();
        }
        over
    }

    // Looking

    /// Who is there.
    pub(crate) fn occupants(&self) -> Occupants {
        self.books().life.occupants().cloned().unwrap_or_default()
    }

    /// Whether nobody is there.
    pub(crate) fn is_deserted(&self) -> bool {
        self.books().life.occupants().is_none_or(Occupants::is_empty)
    }

    fn roots(&self) -> BTreeSet<ProcessId> {
        self.books().life.occupants().map(|here| here.roots.clone()).unwrap_or_default()
    }

    /// What each member says it holds, per device; no more than it was granted, or its word would be in every figure
    /// that is shown of the node.
    pub(crate) fn held(&self) -> BTreeMap<ProcessId, Held> {
        let members = self.occupants().members;
        let books = self.books();
        let held = |seat: Seat, device: DeviceSlot| {
            let said = Bytes::new(self.word(seat, device).load().used.bytes());
            said.min(books.ledgers[device.index()].granted(seat))
        };
        let of = |seat: Seat| self.devices().map(|(device, _)| held(seat, device)).collect();
        members.into_iter().map(|(seat, id)| (id, of(seat))).collect()
    }

    /// Stops listening.
    pub(crate) fn close(&self) {
        for task in self.listeners().drain(..) {
            task.abort();
        }
    }

    /// A task that listens at one of its sockets ends with it.
    pub(crate) fn add_listener(&self, task: AbortHandle) {
        self.listeners().push(task);
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<AbortHandle>> {
        self.listeners.lock().expect("nothing panics while it holds the listeners")
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        self.close();
    }
}

impl Books {
    /// A process may be root and member at once; its handle goes with the last of the two.
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
