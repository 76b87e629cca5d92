//! Charges of the slice as a whole. Memory that several processes hold, and what the driver took beyond the context
//! reserves.

use std::sync::atomic::Ordering;

use tranche_domain::ledger::{CapRelation, GrantLedger};
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;
use tranche_shm::message::{AttachRefusal, DaemonReply, ShareKey};
use tranche_shm::usage::Counter;

use super::common::Common;
use super::{Accounting, AttachedProcess, SliceRuntime, slot};
use crate::shares::{Beyond, Change, Shares};

/// Charges of a slice on a device beyond what its processes report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonCharges {
    /// Memory that processes of the slice share, charged once.
    pub shared: Bytes,
    /// Charges that are in no process's credit word: shared memory, and driver overhead.
    pub common: Bytes,
    /// Excess of all charges over the cap.
    pub over: Bytes,
}

/// Charges of a process at an instant; equal values show that it charged nothing in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeSample {
    charges: u64,
    /// Bytes charged to the process, contexts included.
    pub used: Bytes,
    /// Part of `used` that is for contexts.
    pub context: Bytes,
}

/// Reply to an export or import.
const fn known(is_known: bool) -> DaemonReply {
    if is_known { DaemonReply::Granted } else { DaemonReply::Unknown }
}

impl SliceRuntime {
    /// Exports memory that the process is charged for.
    pub fn export(
        &self,
        member: AttachedProcess,
        device: DeviceSlot,
        key: ShareKey,
        units: Units,
    ) -> DaemonReply {
        if device.index() >= self.gpus.len() || units == Units::ZERO {
            return DaemonReply::Refused(AttachRefusal::Malformed);
        }
        self.change_shares(member, |accounting, seat| {
            self.observe(accounting, device);
            let word = self.word(seat, device);
            let done = self.common(accounting).export(seat, device.index() as u8, key.0, units, word);
            known(done)
        })
    }

    /// Opens memory that another process exported.
    pub fn import(&self, member: AttachedProcess, key: ShareKey) -> DaemonReply {
        self.change_shares(member, |accounting, seat| known(self.common(accounting).import(seat, key.0)))
    }

    /// Drops a holder; succeeds also if the process was none.
    pub fn drop_share(&self, member: AttachedProcess, key: ShareKey) -> DaemonReply {
        let reply = self.change_shares(member, |accounting, seat| {
            self.common(accounting).drop_one(seat, key.0);
            DaemonReply::Granted
        });
        self.left.notify_waiters();
        reply
    }

    /// Changes shares on behalf of a process and publishes the result. A request may be read after its slot was
    /// released, and must not count for the slot's next process.
    fn change_shares(
        &self,
        member: AttachedProcess,
        change: impl FnOnce(&mut Accounting, Seat) -> DaemonReply,
    ) -> DaemonReply {
        let mut accounting = self.accounting();
        if accounting.seat_of(member.id) != Some(member.seat) {
            return DaemonReply::Refused(AttachRefusal::NotAMember);
        }
        let reply = change(&mut accounting, member.seat);
        self.compact(&mut accounting);
        reply
    }

    /// Removes a process from all shares and ledgers; returns what it had been granted.
    pub(super) fn leave_accounts(&self, accounting: &mut Accounting, seat: Seat) -> Bytes {
        self.common(accounting).leave(seat);
        self.compact(accounting);
        let freed = accounting.ledgers.iter_mut().map(|ledger| ledger.release(seat)).sum();
        self.settle(accounting);
        freed
    }

    /// Charges of a process on a device; equal results mean that it charged nothing in between.
    pub fn charge_sample(&self, seat: Seat, device: DeviceSlot) -> ChargeSample {
        let usage = self.regions.usage();
        let charges = usage.counter(slot(seat), Counter::Charges).load(Ordering::Acquire);
        let context = units_of(usage.context(slot(seat), device).load(Ordering::Acquire));
        let word = self.word(seat, device).load();
        let bytes = |units: Units| Bytes::new(units.bytes());
        ChargeSample { charges, used: bytes(word.used.min(word.granted)), context: bytes(context) }
    }

    /// Charges the slice for what the driver was seen to hold for an idle process beyond its charge. Returns true if
    /// the amount is new.
    pub fn charge_overhead(&self, seat: Seat, device: DeviceSlot, beyond: Bytes) -> bool {
        // Shared memory may be listed with any holder, so nothing follows for this process.
        !self.shares(seat) && self.charge_beyond(seat, device, beyond)
    }

    /// Charges the slice for what a process holds beyond its reports, even if it shares memory. Returns true if the
    /// amount is new.
    pub fn charge_beyond(&self, seat: Seat, device: DeviceSlot, beyond: Bytes) -> bool {
        let mut accounting = self.accounting();
        let seated = accounting.life.occupants().is_some_and(|here| here.members.contains_key(&seat));
        if !seated || !accounting.ledgers[device.index()].take_beyond(seat, beyond) {
            return false;
        }
        self.settle_beyond(&mut accounting, seat, device, beyond);
        true
    }

    /// Drops the excess of a process that is charged nothing and that the driver does not list.
    pub fn drop_excess(&self, seat: Seat, device: DeviceSlot) {
        let mut accounting = self.accounting();
        if accounting.ledgers[device.index()].beyond(seat) == Bytes::ZERO {
            return;
        }
        accounting.ledgers[device.index()].forget_beyond(seat);
        self.settle_beyond(&mut accounting, seat, device, Bytes::ZERO);
    }

    fn settle_beyond(&self, accounting: &mut Accounting, seat: Seat, device: DeviceSlot, bytes: Bytes) {
        let change = Change::Beyond { seat: seat.0, device: device.index() as u8, bytes };
        self.append_change(&mut accounting.shares, change);
        self.settle(accounting);
    }

    /// Restores the common charges of an earlier daemon. If the journal is lost, what the control region states is
    /// charged to all attached processes until the last of them ends.
    pub fn restore_common(&self) {
        let mut accounting = self.accounting();
        let accounting = &mut *accounting;
        let legacy = std::mem::take(&mut accounting.legacy);
        let members = accounting.seats();
        let turn = |seat: Seat, device: u8| {
            DeviceSlot::new(device.into()).is_some_and(|device| self.word(seat, device).load().turn)
        };
        let lost = self.common(accounting).take_over(&members, &legacy, turn);
        if lost > Bytes::ZERO && !members.is_empty() {
            tracing::warn!(slice = %self.name, %lost, "what was shared is not known any more; it stays charged");
        }
        self.rewrite(accounting);
        self.settle(accounting);
    }

    /// Common charges of the slice on a device, and its excess over the cap there.
    pub fn common_charges(&self, device: DeviceSlot) -> CommonCharges {
        let accounting = self.accounting();
        let ledger = &accounting.ledgers[device.index()];
        let over = match ledger.standing() {
            CapRelation::Within => Bytes::ZERO,
            CapRelation::Over(excess) => excess,
        };
        CommonCharges { shared: ledger.shared(), common: ledger.common(), over }
    }

    pub(super) fn publish(&self, ledgers: &[GrantLedger]) {
        for (device, _) in self.devices() {
            let common = Units::covering(ledgers[device.index()].common().get()).unwrap_or(Units::MAX);
            if self.regions.control().reader().common(device) != common {
                self.regions.control().set_common(device, common);
            }
        }
    }

    fn common<'a>(
        &'a self,
        accounting: &'a mut Accounting,
    ) -> Common<'a, impl FnMut(Change) -> bool, impl FnMut(&[GrantLedger])> {
        let Accounting { ledgers, sharing, shares, .. } = accounting;
        let note = move |change| self.append_change(shares, change);
        Common { ledgers, sharing, note, publish: |ledgers: &[GrantLedger]| self.publish(ledgers) }
    }

    /// Appends a change to the journal; returns true on success.
    fn append_change(&self, shares: &mut Shares, change: Change) -> bool {
        let append_change = shares.note(change);
        if let Err(error) = &append_change {
            tracing::warn!(slice = %self.name, %error, "cannot write down what is shared");
        }
        append_change.is_ok()
    }

    /// Rewrites the journal if most of it is obsolete or its end is damaged.
    fn compact(&self, accounting: &mut Accounting) {
        if accounting.shares.is_stale(&accounting.sharing) {
            self.rewrite(accounting);
        }
    }

    fn rewrite(&self, accounting: &mut Accounting) {
        let beyond = beyond(&accounting.ledgers);
        if let Err(error) = accounting.shares.rewrite(&accounting.sharing, &beyond) {
            tracing::warn!(slice = %self.name, %error, "cannot write down what is shared");
        }
    }
}

fn beyond(ledgers: &[GrantLedger]) -> Beyond {
    let of = |(index, ledger): (usize, &GrantLedger)| -> Beyond {
        ledger.all_beyond().map(|(seat, bytes)| (seat, index as u8, bytes)).collect()
    };
    ledgers.iter().enumerate().flat_map(of).collect()
}
/// Units as a tenant wrote them, saturating at the maximum.
fn units_of(word: u64) -> Units {
    Units::new(u32::try_from(word).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_beyond_the_maximum_saturate() {
        for word in [u64::MAX, 1 << 63, 1 << 43, 1 << 32] {
            assert_eq!(units_of(word), Units::MAX, "{word:#x}");
        }
        assert_eq!(units_of(310).get(), 310);
    }
}
