//! Input of the audit. Charges of attached processes, and values in the pages that no correct process writes.

use std::sync::atomic::Ordering::Relaxed;

use tranche_domain::slice::{ProcessId, Seat};
use tranche_domain::truth::{Charged, Deceit, InvalidValue};
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use super::{Accounting, SliceRuntime, slot};
use tranche_linux::clock::monotonic_ns;

/// Nanoseconds by which a time that a process reports may be ahead of its clock.
const CLOCK_SKEW_NS: u64 = 1_000_000_000;

impl SliceRuntime {
    /// Slot of an attached process.
    pub fn seat_of(&self, id: ProcessId) -> Option<Seat> {
        self.accounting().seat_of(id)
    }

    /// Returns true if a process holds shared memory: the driver may list that with any holder.
    pub fn shares(&self, seat: Seat) -> bool {
        self.accounting().sharing.holds(seat)
    }

    /// Use of a device that a process reports.
    pub fn claimed(&self, seat: Seat, device: DeviceSlot) -> Bytes {
        Bytes::new(self.word(seat, device).load().used.bytes())
    }

    /// Reported use of a device and the ledger's charges; the reserve is left at zero.
    pub fn charged(&self, seat: Seat, device: DeviceSlot) -> Charged {
        let accounting = self.accounting();
        let ledger = &accounting.ledgers[device.index()];
        Charged {
            used: self.claimed(seat, device),
            granted: ledger.granted(seat),
            shared: ledger.shared(),
            beyond: ledger.beyond(seat),
            reserve: Bytes::ZERO,
        }
    }

    /// Values in the pages, now or since the last call, that no correct process writes.
    pub fn violations(&self) -> Vec<InvalidValue> {
        self.examine();
        let slice = &self.name;
        let found = |((who, _), what)| InvalidValue { slice: slice.clone(), who, what };
        self.violations.take().into_iter().map(found).collect()
    }

    fn examine(&self) {
        if self.regions.was_header_damaged() {
            self.violations.add(None, Deceit::Header);
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
            self.violations.add(Some(id), Deceit::Use { used, granted });
        }
        let since = self.regions.compute().record(slot(seat)).busy_since_ns(device).load(Relaxed);
        let is_to_come =
            |ahead_ns| since > monotonic_ns().saturating_add_signed(ahead_ns).saturating_add(CLOCK_SKEW_NS);
        let known = self.clock_offsets().get(&seat).copied().unwrap_or_default();
        // The process may have entered another time namespace since its clock was read.
        if is_to_come(known) && is_to_come(self.read_clock_offset(seat, id.pid)) {
            self.violations.add(Some(id), Deceit::Time);
        }
    }

    /// Records that a process claims credit that it was not granted.
    pub(super) fn add_credit_violation(&self, accounting: &Accounting, seat: Seat, beyond: Bytes) {
        let who = accounting.life.occupants().and_then(|here| here.members.get(&seat)).copied();
        self.violations.add(who, Deceit::Credit { beyond });
    }
}
