//! Credit: asked for, granted, taken back, and checked against the books.

use tranche_domain::ledger::Answer;
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;
use tranche_shm::message::{Refusal, Reply};

use super::{Books, Tenancy};

impl Tenancy {
    /// Answers a process that wants to charge `want` on a device.
    pub(crate) fn credit(&self, seat: Seat, device: DeviceSlot, want: Units) -> Reply {
        /// How often siblings may use, under our eyes, what was to be taken back from them.
        const ATTEMPTS: usize = 64;
        if device.index() >= self.gpus.len() {
            return Reply::Refused(Refusal::Malformed);
        }
        let mut books = self.books();
        self.observe(&mut books, device);
        let ledger = &mut books.ledgers[device.index()];
        let want = Bytes::new(want.bytes());
        for _ in 0..ATTEMPTS {
            match ledger.ask(seat, want, |seat| self.unused(seat, device)) {
                Answer::Enough => return Reply::Granted,
                Answer::Grant(more) => {
                    self.word(seat, device).grant(Units::within(more.get()));
                    return Reply::Granted;
                }
                Answer::Recall(plan) => {
                    for (seat, most) in plan {
                        ledger.give_back(seat, self.recall(seat, device, most));
                    }
                }
                Answer::Exhausted => break,
            }
        }
        Reply::Exhausted
    }

    /// Whether a member has ended whose memory is not free yet: then a refusal may be hasty.
    pub(crate) fn somebody_is_leaving(&self) -> bool {
        let books = self.books();
        let members = books.life.occupants().into_iter().flat_map(|here| here.members.values());
        members.filter_map(|member| books.handles.get(member)).any(|member| !member.is_alive())
    }

    pub(super) fn unused(&self, seat: Seat, device: DeviceSlot) -> Bytes {
        Bytes::new(self.word(seat, device).load().unused().bytes())
    }

    pub(super) fn recall(&self, seat: Seat, device: DeviceSlot, most: Bytes) -> Bytes {
        Bytes::new(self.word(seat, device).recall(Units::within(most.get())).bytes())
    }

    /// Takes note of credit that processes gave back by themselves, and takes away what they claim beyond
    /// the books, as far as it is not used.
    pub(super) fn observe(&self, books: &mut Books, device: DeviceSlot) {
        let members: Vec<Seat> =
            books.life.occupants().into_iter().flat_map(|here| here.members.keys().copied()).collect();
        for seat in members {
            let word = self.word(seat, device).load();
            let claimed = books.ledgers[device.index()].observe(seat, Bytes::new(word.granted.bytes()));
            if claimed > Bytes::ZERO {
                tracing::warn!(slice = %self.name, seat = seat.0, %claimed, "a process claims credit that it was not granted");
                self.recall(seat, device, claimed);
            }
        }
    }
}
