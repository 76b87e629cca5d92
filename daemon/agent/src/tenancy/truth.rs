//! What is compared with what the driver says, and what was found in the pages that no honest process writes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use tranche_domain::slice::{ProcessId, Seat};
use tranche_domain::truth::{Charged, Deceit, Found};
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use super::{Books, Tenancy, seat_of, slot};
use crate::clock::monotonic_ns;

/// So far a clock may be read before another and show the same.
const SAME_TIME_NS: u64 = 1_000_000_000;

/// What was found since it was last asked for: of each kind the last, by whom, so that nobody can fill it.
#[derive(Debug, Default)]
pub(super) struct Deceits(Mutex<BTreeMap<(Option<ProcessId>, u8), Deceit>>);

impl Deceits {
    pub(super) fn add(&self, who: Option<ProcessId>, what: Deceit) {
        let kind = match what {
            Deceit::Credit { .. } => 0,
            Deceit::Use { .. } => 1,
            Deceit::Header => 2,
            Deceit::Time => 3,
        };
        self.0.lock().expect("nothing panics while it holds what was found").insert((who, kind), what);
    }

    fn take(&self) -> BTreeMap<(Option<ProcessId>, u8), Deceit> {
        std::mem::take(&mut self.0.lock().expect("nothing panics while it holds what was found"))
    }
}

impl Tenancy {
    /// The seat of a member.
    pub(crate) fn seat_of(&self, id: ProcessId) -> Option<Seat> {
        seat_of(&self.books(), id)
    }

    /// Whether a member shares memory with others: the driver may list it with any of them.
    pub(crate) fn shares(&self, seat: Seat) -> bool {
        self.books().sharing.holds(seat)
    }

    /// What a process says that it uses of a device.
    pub(crate) fn claimed(&self, seat: Seat, device: DeviceSlot) -> Bytes {
        Bytes::new(self.word(seat, device).load().used.bytes())
    }

    /// What a process says that it uses of a device, and what the books say of it; nothing is said of reserves.
    pub(crate) fn charged(&self, seat: Seat, device: DeviceSlot) -> Charged {
        let books = self.books();
        let ledger = &books.ledgers[device.index()];
        Charged {
            used: self.claimed(seat, device),
            granted: ledger.granted(seat),
            shared: ledger.shared(),
            beyond: ledger.beyond(seat),
            reserve: Bytes::ZERO,
        }
    }

    /// What is in the pages now, or was since this was last asked, that no honest process writes.
    pub(crate) fn deceits(&self) -> Vec<Found> {
        self.examine();
        let slice = &self.name;
        let found = |((who, _), what)| Found { slice: slice.clone(), who, what };
        self.deceits.take().into_iter().map(found).collect()
    }

    fn examine(&self) {
        if self.regions.was_head_spoilt() {
            self.deceits.add(None, Deceit::Header);
        }
        let members = self.occupants().members;
        for (seat, id) in members {
            for (device, _) in self.devices() {
                self.examine_member(seat, id, device);
            }
        }
    }

    fn examine_member(&self, seat: Seat, id: ProcessId, device: DeviceSlot) {
        let word = self.word(seat, device).load();
        let bytes = |units: Units| Bytes::new(units.bytes());
        if word.used > word.granted {
            let (used, granted) = (bytes(word.used), bytes(word.granted));
            self.deceits.add(Some(id), Deceit::Use { used, granted });
        }
        let since = self.regions.compute().record(slot(seat)).busy_since_ns(device).load(Relaxed);
        let is_to_come =
            |ahead_ns| since > monotonic_ns().saturating_add_signed(ahead_ns).saturating_add(SAME_TIME_NS);
        let known = self.shifted().get(&seat).copied().unwrap_or_default();
        // It may have entered another time namespace since its clock was looked at.
        if is_to_come(known) && is_to_come(self.set_clock(seat, id.pid)) {
            self.deceits.add(Some(id), Deceit::Time);
        }
    }

    /// A process claims credit that it was not granted.
    pub(super) fn suspect(&self, books: &Books, seat: Seat, beyond: Bytes) {
        let who = books.life.occupants().and_then(|here| here.members.get(&seat)).copied();
        self.deceits.add(who, Deceit::Credit { beyond });
    }
}
