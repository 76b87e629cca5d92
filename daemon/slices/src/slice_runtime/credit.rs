//! Requests for credit, and the check of credit words against the ledgers.

use tranche_domain::ledger::RECALL_STEP;
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;
use tranche_shm::crash::point;
use tranche_shm::credit::{CreditWord, Units};
use tranche_shm::message::{AttachRefusal, DaemonReply};

use super::account::LedgerAccount;
use super::{Accounting, AttachedProcess, SliceRuntime};

impl SliceRuntime {
    /// Handles a process's request to charge `want` on a device.
    pub fn credit(&self, member: AttachedProcess, device: DeviceSlot, want: Units) -> DaemonReply {
        if device.index() >= self.gpus.len() {
            return DaemonReply::Refused(AttachRefusal::Malformed);
        }
        let AttachedProcess { seat, id } = member;
        let mut accounting = self.accounting();
        if self.holds_requests() {
            return DaemonReply::Later;
        }
        // The request may be read after its slot was released; a grant would then belong to no process.
        if accounting.seat_of(id) != Some(seat) {
            return DaemonReply::Refused(AttachRefusal::NotAMember);
        }
        self.observe(&mut accounting, device);
        point("credit: observed");
        match self.account(&mut accounting, device).credit(seat, Bytes::new(want.bytes())) {
            true => DaemonReply::Granted,
            false => DaemonReply::Exhausted,
        }
    }

    /// Grants a newly attached process credit for a context and its first allocations, where available.
    /// It would request that next. The credit is on the first device, which most programs use first.
    pub fn advance(&self, member: AttachedProcess) {
        let Some(device) = DeviceSlot::new(0) else { return };
        let context = self.regions.control().reader().limits(device).context;
        self.credit(member, device, context.saturating_add(Units::within(RECALL_STEP.get())));
    }

    /// Ledger of a device with the words of its slots.
    pub(super) fn account<'a>(
        &'a self,
        accounting: &'a mut Accounting,
        device: DeviceSlot,
    ) -> LedgerAccount<'a, impl Fn(Seat) -> CreditWord<'a>> {
        LedgerAccount {
            ledger: &mut accounting.ledgers[device.index()],
            words: move |seat| self.word(seat, device),
        }
    }

    /// Enters credit that processes returned, and records claims beyond the ledger as violations.
    /// The unused part of such a claim is recalled.
    pub(super) fn observe(&self, accounting: &mut Accounting, device: DeviceSlot) {
        for seat in accounting.seats() {
            let claimed = self.account(accounting, device).observe(seat);
            if claimed > Bytes::ZERO {
                self.add_credit_violation(accounting, seat, claimed);
            }
        }
    }
}
