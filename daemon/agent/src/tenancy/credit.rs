//! Credit: asked for, granted, taken back, and checked against the books.

use tranche_domain::ledger::RECALL_STEP;
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;
use tranche_shm::crash::point;
use tranche_shm::credit::{CreditWord, Units};
use tranche_shm::message::{Refusal, Reply};

use super::account::Account;
use super::{Books, Member, Tenancy, seat_of};

impl Tenancy {
    /// Answers a process that wants to charge `want` on a device.
    pub(crate) fn credit(&self, member: Member, device: DeviceSlot, want: Units) -> Reply {
        if device.index() >= self.gpus.len() {
            return Reply::Refused(Refusal::Malformed);
        }
        let Member { seat, id } = member;
        let mut books = self.books();
        // Its last words may be read after its seat was emptied: credit then would be nobody's.
        if seat_of(&books, id) != Some(seat) {
            return Reply::Refused(Refusal::NotAMember);
        }
        self.observe(&mut books, device);
        point("credit: observed");
        match self.account(&mut books, device).credit(seat, Bytes::new(want.bytes())) {
            true => Reply::Granted,
            false => Reply::Exhausted,
        }
    }

    /// Credit for the context and the first allocations of somebody who has just come, where there is so much to be had:
    /// it would ask for that next. On the first device, which most programs use first.
    pub(crate) fn advance(&self, member: Member) {
        let Some(device) = DeviceSlot::new(0) else { return };
        let context = self.regions.control().reader().limits(device).context;
        self.credit(member, device, context.saturating_add(Units::within(RECALL_STEP.get())));
    }

    /// A device's ledger, with the words that its seats read.
    pub(super) fn account<'a>(
        &'a self,
        books: &'a mut Books,
        device: DeviceSlot,
    ) -> Account<'a, impl Fn(Seat) -> CreditWord<'a>> {
        Account { ledger: &mut books.ledgers[device.index()], words: move |seat| self.word(seat, device) }
    }

    /// Takes note of credit that processes gave back by themselves, and takes away what they claim beyond
    /// the books, as far as it is not used.
    pub(super) fn observe(&self, books: &mut Books, device: DeviceSlot) {
        let members: Vec<Seat> =
            books.life.occupants().into_iter().flat_map(|here| here.members.keys().copied()).collect();
        for seat in members {
            let claimed = self.account(books, device).observe(seat);
            if claimed > Bytes::ZERO {
                self.suspect(books, seat, claimed);
            }
        }
    }
}
