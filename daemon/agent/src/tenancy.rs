//! One slice as it is lived in: who is there, what each may hold, and the regions that say so.
//!
//! The books here are what is true. The control region is their copy for tenants to read; what tenants write
//! in the usage region is believed only as far as the books allow.

mod account;
mod common;
mod container;
mod credit;
mod departures;
mod refusals;
mod sharing;
mod truth;

use container::Bond;
pub(crate) use sharing::Still;
use truth::Deceits;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tranche_domain::id::{GpuUuid, HostPid, SliceName};
use tranche_domain::ledger::Ledger;
use tranche_domain::sharing::Sharing;
use tranche_domain::slice::{IsEnding, Life, Occupants, Part, ProcessId, Seat};
use tranche_domain::units::Bytes;
use tranche_shm::control::{DeviceLimits, Identity};
use tranche_shm::crash::point;
use tranche_shm::credit::{CreditWord, Units};
use tranche_shm::message::Refusal;
use tranche_shm::{DeviceSlot, MAX_SLOTS, Slot};

use crate::attach::Way;
use crate::containers::identity::Container;
use crate::kin::Kin;
use crate::process::Process;
use crate::regions::Regions;
use crate::shares::{Legacy, Shares};

/// A slice in being.
#[derive(Debug)]
pub(crate) struct Tenancy {
    pub(crate) name: SliceName,
    pub(crate) generation: u64,
    /// Its GPUs, in the order of its devices.
    pub(crate) gpus: Vec<GpuUuid>,
    pub(crate) regions: Regions,
    /// Told whenever somebody left and memory came free.
    pub(crate) left: Notify,
    /// Per device: GPU utilisation in percent, or [`UNKNOWN`].
    utilization: Vec<AtomicU64>,
    books: Mutex<Books>,
    listeners: Mutex<Vec<AbortHandle>>,
    over_since: Mutex<Option<Instant>>,
    /// What processes had been refused that have left.
    refusals: AtomicU64,
    kin: Kin,
    /// Whom we killed last for holding too much.
    condemned: Mutex<Option<ProcessId>>,
    deceits: Deceits,
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

/// That a process belongs to the slice, and the container that it is in, where it came that way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pass(Option<Container>);

/// Somebody who was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// For the first time: somebody has to watch for its end.
    New(Seat),
    /// It has had its seat since before.
    Again(Seat),
}

impl Joined {
    pub(crate) const fn seat(self) -> Seat {
        match self {
            Self::New(seat) | Self::Again(seat) => seat,
        }
    }
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
        directory: &Path,
        regions: Regions,
        parts: &[(Part, Bytes)],
        deadline_unix_ms: u64,
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
        let tenancy = Self {
            name,
            generation: regions.control().reader().generation(),
            gpus: parts.iter().map(|(part, _)| part.gpu).collect(),
            regions,
            left: Notify::new(),
            utilization: parts.iter().map(|_| AtomicU64::new(UNKNOWN)).collect(),
            books: Mutex::new(Books {
                life: Life::awaiting(deadline_unix_ms),
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
            kin: Kin::default(),
            condemned: Mutex::new(None),
            deceits: Deceits::default(),
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

    // Time and limits

    /// Says to the tenants that the daemon is alive.
    pub(crate) fn beat(&self, now_ns: u64) {
        self.regions.control().beat(now_ns);
    }

    /// Publishes caps and context reserves, then takes back what is granted beyond them and not in use.
    pub(crate) fn set_limits(&self, parts: &[(Part, Bytes)]) {
        let mut books = self.books();
        self.publish_limits(&mut books, parts);
        self.settle(&mut books);
    }

    /// Publishes them and takes nothing back: before everybody has been seated again, nobody knows whether the slice
    /// is over its cap.
    fn publish_limits(&self, books: &mut Books, parts: &[(Part, Bytes)]) {
        for ((device, _), (part, context)) in self.devices().zip(parts) {
            let context = Units::covering(context.get()).unwrap_or(Units::MAX);
            let limits = DeviceLimits { uuid: part.gpu.bytes(), cap_bytes: part.cap.get(), context };
            if self.regions.control().reader().limits(device) != limits {
                self.regions.control().set_limits(device, limits);
            }
            books.ledgers[device.index()].set_cap(ledger_cap(part.cap));
        }
        point("limits: written");
    }

    /// Brings grants back within the caps as far as use allows; says by how much each device is over.
    pub(crate) fn trim(&self) -> Vec<(GpuUuid, Bytes)> {
        self.settle(&mut self.books())
    }

    fn settle(&self, books: &mut Books) -> Vec<(GpuUuid, Bytes)> {
        let settled = self.devices().map(|(device, gpu)| {
            self.observe(books, device);
            let excess = self.account(books, device).trim();
            let over = excess > Bytes::ZERO;
            if self.regions.control().reader().over_cap(device) != over {
                self.regions.control().set_over_cap(device, over);
            }
            (gpu, excess)
        });
        let settled = settled.collect();
        self.publish(&books.ledgers);
        settled
    }

    /// Sets what NVML says the slice's processes use of a device, in percent. Its programs see the memory part of
    /// it; the other is known better here.
    pub(crate) fn set_utilization(&self, device: DeviceSlot, gpu: u32, memory: u32) {
        let control = self.regions.control();
        control.set_utilization(device, control.reader().utilization(device).0, memory);
        self.utilization[device.index()].store(gpu.into(), Ordering::Relaxed);
    }

    /// Sets the part of a device's time that the slice used itself, in percent, for its programs to see.
    pub(crate) fn set_own_use(&self, device: DeviceSlot, gpu: u32) {
        let control = self.regions.control();
        control.set_utilization(device, gpu, control.reader().utilization(device).1);
    }

    /// Forgets what a process that has ended had outstanding: nobody waits for that any more.
    pub(crate) fn abandon_work(&self, seat: Seat) {
        self.regions.compute().clear(slot(seat));
    }

    /// What the slice uses of a device in percent, once it has been measured.
    pub(crate) fn utilization(&self, device: DeviceSlot) -> Option<u32> {
        u32::try_from(self.utilization[device.index()].load(Ordering::Relaxed)).ok()
    }

    // Coming and going

    /// Makes a process a root: it and its descendants may join. `false` if it was one already.
    pub(crate) fn enter(&self, root: &Arc<Process>) -> Result<bool, IsEnding> {
        let mut books = self.books();
        let known = books.life.occupants().is_some_and(|here| here.roots.contains(&root.id));
        books.life.enter(root.id)?;
        books.handles.insert(root.id, Arc::clone(root));
        Ok(!known)
    }

    /// Whether a process belongs here, by the way it came.
    pub(crate) fn admit(&self, who: &Process, way: Way) -> Result<Pass, Refusal> {
        match way {
            Way::Descent if self.kin.descends(who, &self.roots()) => Ok(Pass(None)),
            Way::Descent => Err(Refusal::NotAMember),
            Way::Container => Ok(Pass(Some(Container::of(who.id.pid).ok_or(Refusal::NotAMember)?))),
        }
    }

    /// Lets a process in that belongs here, and gives it a seat.
    pub(crate) fn join(&self, who: &Arc<Process>, Pass(container): &Pass) -> Result<Joined, Refusal> {
        // Looked at last, the process that is alive is the one whose parents were followed, or whose container was seen.
        if !who.is_alive() {
            return Err(Refusal::NotAMember);
        }
        let inner = who.inner_pid();
        let mut books = self.books();
        if let Some(container) = container {
            books.belong_to(container.clone()).map_err(|_| Refusal::NotAMember)?;
        }
        if let Some(seat) = seat_of(&books, who.id) {
            return Ok(Joined::Again(seat));
        }
        let seat = free_seat(&books).ok_or(Refusal::Full)?;
        books.life.join(seat, who.id).map_err(|IsEnding| Refusal::Ending)?;
        books.handles.insert(who.id, Arc::clone(who));
        point("join: admitted");
        self.clear(seat);
        point("join: cleared");
        self.regions.control().occupy(
            slot(seat),
            Identity {
                pid: who.id.pid.get(),
                start_time: who.id.start_time,
                inner_pid: inner.map_or(who.id.pid.get(), |pid| pid.get()),
            },
        );
        point("join: seated");
        Ok(Joined::New(seat))
    }

    /// Takes over a process that an earlier daemon seated, with what it was granted. A process that has
    /// ended since has no handle; its seat is kept until its memory is free. `most` says what it can hold of a GPU, where
    /// the driver tells.
    pub(crate) fn reseat(
        &self,
        seat: Seat,
        id: ProcessId,
        handle: Option<&Arc<Process>>,
        most: impl Fn(GpuUuid) -> Option<Bytes>,
    ) {
        let mut books = self.books();
        if books.life.join(seat, id).is_err() {
            return;
        }
        match handle {
            Some(handle) => drop(books.handles.insert(id, Arc::clone(handle))),
            None => self.enter_departure(&mut books, id),
        }
        for (device, gpu) in self.devices() {
            self.account(&mut books, device).take_over(seat, most(gpu));
        }
    }

    /// Forgets a root that has ended.
    pub(crate) fn root_gone(&self, root: ProcessId) {
        let mut books = self.books();
        books.life.root_gone(root);
        books.drop_handle(root);
    }

    /// Empties the account of a process that holds nothing any more and goes on; returns what it had been
    /// granted.
    pub(crate) fn renew(&self, seat: Seat) -> Bytes {
        let mut books = self.books();
        self.clear(seat);
        self.leave_shares(&mut books, seat);
        let freed = books.ledgers.iter_mut().map(|ledger| ledger.release(seat)).sum();
        self.settle(&mut books);
        drop(books);
        self.left.notify_waiters();
        freed
    }

    /// Empties the seat of a process whose memory is free; returns what it had been granted.
    pub(crate) fn vacate(&self, seat: Seat, id: ProcessId) -> Bytes {
        let mut books = self.books();
        // In this order: a daemon that dies in between leaves a seat that its successor empties again, and not
        // credit in a seat that nobody has.
        self.clear(seat);
        point("vacate: cleared");
        self.regions.control().vacate(slot(seat));
        point("vacate: left");
        books.life.member_gone(seat);
        books.drop_handle(id);
        self.leave_shares(&mut books, seat);
        let freed = books.ledgers.iter_mut().map(|ledger| ledger.release(seat)).sum();
        self.settle(&mut books);
        self.end_departure(&mut books, id);
        point("vacate: settled");
        drop(books);
        self.left.notify_waiters();
        freed
    }

    /// Lets nobody in any more.
    pub(crate) fn end(&self) {
        self.books().life.end();
    }

    /// Lets nobody in any more if it is over, and says whether it is.
    pub(crate) fn end_if_over(&self, ephemeral: bool, now_unix_ms: u64) -> bool {
        let mut books = self.books();
        let over = books.life.is_over(ephemeral, now_unix_ms);
        if over {
            books.life.end();
        }
        over
    }

    /// Takes note of whether the slice is over its cap; says for how long it has been without a break.
    pub(crate) fn over_for(&self, over: bool) -> Option<Duration> {
        let mut since = self.over_since.lock().expect("nothing panics while it holds the time");
        *since = over.then(|| since.unwrap_or_else(Instant::now));
        since.map(|since| since.elapsed())
    }

    /// Kills the process that holds the most where the slice is over its cap, unless one is dying already;
    /// returns whom.
    pub(crate) fn kill_largest(&self) -> Option<HostPid> {
        let mut condemned = self.condemned.lock().expect("nothing panics while it holds the condemned");
        let still_here = |id: ProcessId| self.occupants().members.values().any(|member| *member == id);
        if condemned.is_some_and(still_here) || !self.leaving().is_empty() {
            return None;
        }
        let over = |device: &DeviceSlot| self.beside(*device).over > Bytes::ZERO;
        let device = self.devices().map(|(device, _)| device).find(over)?;
        let books = self.books();
        let members = books.life.occupants().into_iter().flat_map(|here| &here.members);
        let ledger = &books.ledgers[device.index()];
        let holds =
            |(seat, _): &(&Seat, &ProcessId)| ledger.granted(**seat).saturating_add(ledger.beyond(**seat));
        let process = books.handles.get(members.max_by_key(holds)?.1)?;
        process.kill().ok()?;
        *condemned = Some(process.id);
        Some(process.id.pid)
    }

    /// Kills everybody who is there, by handles that cannot name anybody else; returns whom.
    pub(crate) fn kill_all(&self) -> Vec<HostPid> {
        let books = self.books();
        let killed = books.handles.values().filter(|process| match process.kill() {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(slice = %self.name, pid = %process.id.pid, %error, "cannot kill");
                false
            }
        });
        killed.map(|process| process.id.pid).collect()
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

    /// Whether it was over its cap somewhere when its books were last settled.
    pub(crate) fn is_over(&self) -> bool {
        self.devices().any(|(device, _)| self.regions.control().reader().over_cap(device))
    }

    fn roots(&self) -> BTreeSet<ProcessId> {
        self.books().life.occupants().map(|here| here.roots.clone()).unwrap_or_default()
    }

    /// What each member says it holds, per device.
    pub(crate) fn held(&self) -> BTreeMap<ProcessId, Held> {
        let held = |seat: Seat| {
            self.devices()
                .map(|(device, _)| Bytes::new(self.word(seat, device).load().used.bytes()))
                .collect()
        };
        self.occupants().members.into_iter().map(|(seat, id)| (id, held(seat))).collect()
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

fn seat_of(books: &Books, id: ProcessId) -> Option<Seat> {
    let members = &books.life.occupants()?.members;
    members.iter().find(|(_, member)| **member == id).map(|(seat, _)| *seat)
}

fn free_seat(books: &Books) -> Option<Seat> {
    let taken = books.life.occupants().into_iter().flat_map(|here| here.members.keys());
    // The seats are in order: the first that is not where it would be, were there no gap, shows the gap.
    let gap = taken.zip(0u16..).take_while(|(seat, place)| seat.0 == *place).count();
    (gap < MAX_SLOTS).then_some(Seat(gap as u16))
}

fn slot(seat: Seat) -> Slot {
    Slot::new(seat.0.into()).expect("seats are only made from the indices of slots")
}

/// Credit moves in units of 4 KiB; what is left of the cap below one is nobody's.
fn ledger_cap(cap: Bytes) -> Bytes {
    Bytes::new(Units::within(cap.get()).bytes())
}

pub(crate) fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map(Duration::from);
    now.ok().and_then(|now| u64::try_from(now.as_nanos()).ok()).unwrap_or_default()
}
