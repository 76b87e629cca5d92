//! Admission to a slice, and the slots of its attached processes.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLockReadGuard};
use std::time::Duration;

use tranche_domain::id::{GpuUuid, HostPid};
use tranche_domain::slice::{IsEnding, ProcessId, Seat};
use tranche_domain::units::Bytes;
use tranche_shm::MAX_SLOTS;
use tranche_shm::control::ProcessIdentity;
use tranche_shm::crash::point;
use tranche_shm::credit::{Credit, Units};
use tranche_shm::message::{AttachRefusal, OwnView};

use super::{Accounting, SliceRuntime, slot};
use crate::container::Container;
use tranche_linux::clock::monotonic_ns;
use tranche_linux::process::Process;
use tranche_linux::time_namespace;

/// Socket through which a process attaches, which decides the condition for its admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The socket that every user may connect to: the process must descend from a root of the slice.
    Descent,
    /// The socket that is mounted into the slice's container: the process must be in that container.
    Container,
}

/// Proof that a process belongs to the slice; with its container if it used the container's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipProof(Option<Container>);

/// Slot of a process that attaches, and if it is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// First attachment: the caller has to watch for the end of the process.
    New(Seat),
    /// The process has had its slot since before.
    Again(Seat),
}

impl Joined {
    /// Slot of the process.
    pub const fn seat(self) -> Seat {
        match self {
            Self::New(seat) | Self::Again(seat) => seat,
        }
    }
}

/// Longest time from a hello to its reading after which the clock in it is still compared.
const HELLO_AGE: Duration = Duration::from_millis(5);

/// Returns true if a time is that of the daemon's clock within the last [`HELLO_AGE`].
fn is_now(clock_ns: u64) -> bool {
    monotonic_ns().checked_sub(clock_ns).is_some_and(|age| Duration::from_nanos(age) <= HELLO_AGE)
}

impl SliceRuntime {
    /// Makes a process a root: it and its descendants may attach. Returns false if it was one already.
    pub fn enter(&self, root: &Arc<Process>) -> Result<bool, IsEnding> {
        let mut accounting = self.accounting();
        let known = accounting.life.occupants().is_some_and(|here| here.roots.contains(&root.id));
        accounting.life.enter(root.id)?;
        accounting.handles.insert(root.id, Arc::clone(root));
        Ok(!known)
    }

    /// Checks that a process belongs to the slice, by the socket that it connected to.
    pub fn admit(&self, who: &Process, way: Way) -> Result<MembershipProof, AttachRefusal> {
        match way {
            Way::Descent if self.ancestry.descends(who, &self.roots()) => Ok(MembershipProof(None)),
            Way::Descent => Err(AttachRefusal::NotAMember),
            Way::Container => {
                Ok(MembershipProof(Some(Container::of(who.id.pid).ok_or(AttachRefusal::NotAMember)?)))
            }
        }
    }

    /// Attaches a process that belongs to the slice, and allocates its slot. Its namespaces are looked up unless `own`,
    /// its view of itself, agrees with the daemon's.
    pub fn join(
        &self,
        who: &Arc<Process>,
        MembershipProof(container): &MembershipProof,
        own: Option<OwnView>,
    ) -> Result<Joined, AttachRefusal> {
        // Checked last: a live process is the one whose ancestors or container were resolved.
        if !who.is_alive() {
            return Err(AttachRefusal::NotAMember);
        }
        let inner = match own {
            Some(own) if own.pid.get() == who.id.pid.get() => None,
            _ => who.inner_pid(),
        };
        let ahead_ns = match own {
            Some(own) if is_now(own.clock_ns) => 0,
            _ => time_namespace::ahead_ns(who.id.pid),
        };
        let mut accounting = self.accounting();
        if let Some(container) = container {
            accounting.bind_to(container.clone()).map_err(|_| AttachRefusal::NotAMember)?;
        }
        if let Some(seat) = accounting.seat_of(who.id) {
            return Ok(Joined::Again(seat));
        }
        let seat = free_seat(&accounting).ok_or(AttachRefusal::Full)?;
        if let Err(error) = self.regions.make_room(seat.0.into()) {
            tracing::warn!(slice = %self.name, pid = %who.id.pid, %error, "no room for another process");
            return Err(AttachRefusal::Full);
        }
        accounting.life.join(seat, who.id).map_err(|IsEnding| AttachRefusal::Ending)?;
        accounting.handles.insert(who.id, Arc::clone(who));
        point("join: admitted");
        self.clear(seat);
        self.set_clock_offset(seat, ahead_ns);
        point("join: cleared");
        self.regions.control().occupy(
            slot(seat),
            ProcessIdentity {
                pid: who.id.pid.get(),
                start_time: who.id.start_time,
                inner_pid: inner.map_or(who.id.pid.get(), |pid| pid.get()),
            },
        );
        point("join: seated");
        Ok(Joined::New(seat))
    }

    /// Enters the driver's figure for a process as granted and used, where its own credit words are lost.
    pub fn restore_use(&self, seat: Seat, holds: impl Fn(GpuUuid) -> Bytes) {
        for (device, gpu) in self.devices() {
            let held = Units::within(holds(gpu).get());
            self.word(seat, device).reset(Credit { granted: held, used: held, ..Credit::default() });
        }
    }

    /// Takes over a process that an earlier daemon attached, with its grants. A process that has ended since has no
    /// handle; its slot is kept until its memory is free. `most` is the driver's upper bound of its use of a GPU.
    pub fn take_over(
        &self,
        seat: Seat,
        id: ProcessId,
        handle: Option<&Arc<Process>>,
        most: impl Fn(GpuUuid) -> Option<Bytes>,
    ) {
        let mut accounting = self.accounting();
        if accounting.life.join(seat, id).is_err() {
            return;
        }
        match handle {
            Some(handle) => drop(accounting.handles.insert(id, Arc::clone(handle))),
            None => self.enter_exiting(&mut accounting, id),
        }
        for (device, gpu) in self.devices() {
            let mut account = self.account(&mut accounting, device);
            match handle {
                Some(_) => account.take_over(seat, most(gpu)),
                None => account.take_over_ended(seat, most(gpu)),
            }
        }
        self.read_clock_offset(seat, id.pid);
    }

    /// Reads by how many nanoseconds a process's clock is ahead of the daemon's, stores and returns it.
    pub(super) fn read_clock_offset(&self, seat: Seat, pid: HostPid) -> i64 {
        let ahead_ns = time_namespace::ahead_ns(pid);
        self.set_clock_offset(seat, ahead_ns);
        ahead_ns
    }

    fn set_clock_offset(&self, seat: Seat, ahead_ns: i64) {
        let mut clock_offsets = self.clock_offsets.write().unwrap_or_else(PoisonError::into_inner);
        match ahead_ns {
            0 => clock_offsets.remove(&seat),
            ahead_ns => clock_offsets.insert(seat, ahead_ns),
        };
    }

    /// Nanoseconds by which clocks of processes are ahead of the daemon's, by slot; zero ones are absent.
    pub fn clock_offsets(&self) -> RwLockReadGuard<'_, BTreeMap<Seat, i64>> {
        self.clock_offsets.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a root that has ended.
    pub fn remove_root(&self, root: ProcessId) {
        let mut accounting = self.accounting();
        accounting.life.root_gone(root);
        accounting.drop_handle(root);
    }

    /// Empties the account of a live process that holds nothing any more; returns what it had been granted.
    pub fn reset_account(&self, seat: Seat) -> Bytes {
        let mut accounting = self.accounting();
        self.clear(seat);
        let freed = self.leave_accounts(&mut accounting, seat);
        drop(accounting);
        self.left.notify_waiters();
        freed
    }

    /// Releases the slot of a process whose memory is free; returns what it had been granted.
    pub fn release_slot(&self, seat: Seat, id: ProcessId) -> Bytes {
        let mut accounting = self.accounting();
        // In this order: a daemon killed in between leaves an emptied slot for its successor to release, rather than
        // credit in a free slot.
        self.clear(seat);
        point("vacate: cleared");
        self.regions.control().vacate(slot(seat));
        point("vacate: left");
        accounting.life.member_gone(seat);
        accounting.drop_handle(id);
        let freed = self.leave_accounts(&mut accounting, seat);
        self.remove_exiting(&mut accounting, id);
        point("vacate: settled");
        drop(accounting);
        self.left.notify_waiters();
        freed
    }
}

fn free_seat(accounting: &Accounting) -> Option<Seat> {
    // Slots are in ascending order: the first one that differs from its index follows the first gap.
    let gap = accounting.members().zip(0u16..).take_while(|((seat, _), place)| seat.0 == *place).count();
    (gap < MAX_SLOTS).then_some(Seat(gap as u16))
}
