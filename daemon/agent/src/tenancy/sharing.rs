//! What is charged to the slice as a whole: memory that several of its processes hold, and what the driver took
//! beyond the reserves for contexts.

use std::sync::atomic::Ordering;

use tranche_domain::ledger::{Ledger, Standing};
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;
use tranche_shm::message::{Refusal, Reply, ShareKey};
use tranche_shm::usage::Counter;

use super::common::Common;
use super::{Books, Member, Tenancy, seat_of, slot};
use crate::shares::{Beyond, Change, Shares};

/// What a slice is charged on a device beside what its processes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    /// For what several of them hold.
    pub(crate) shared: Bytes,
    /// In all.
    pub(crate) common: Bytes,
    /// By how much everything together is over the cap.
    pub(crate) over: Bytes,
}

/// A process at an instant: whether it charged anything since, and what it is charged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Still {
    charges: u64,
    pub(crate) used: Bytes,
    /// What of that is for contexts.
    pub(crate) context: Bytes,
}

/// What is told to a process of something that it wants to be known, or to hold.
const fn known(is_known: bool) -> Reply {
    if is_known { Reply::Granted } else { Reply::Unknown }
}

impl Tenancy {
    /// A process lets others open what it is charged for.
    pub(crate) fn export(&self, member: Member, device: DeviceSlot, key: ShareKey, units: Units) -> Reply {
        if device.index() >= self.gpus.len() || units == Units::ZERO {
            return Reply::Refused(Refusal::Malformed);
        }
        self.with_shares(member, |books, seat| {
            self.observe(books, device);
            let word = self.word(seat, device);
            let done = self.common(books).export(seat, device.index() as u8, key.0, units, word);
            known(done)
        })
    }

    /// A process opens what another exported.
    pub(crate) fn import(&self, member: Member, key: ShareKey) -> Reply {
        self.with_shares(member, |books, seat| known(self.common(books).import(seat, key.0)))
    }

    /// A process holds it no more. What was not its to hold is no matter.
    pub(crate) fn drop_share(&self, member: Member, key: ShareKey) -> Reply {
        let reply = self.with_shares(member, |books, seat| {
            self.common(books).drop_one(seat, key.0);
            Reply::Granted
        });
        self.left.notify_waiters();
        reply
    }

    /// Changes what is shared on behalf of a member, and says so to all. Its last words may be read after its seat
    /// was emptied, and must not be taken for those of who sits there now.
    fn with_shares(&self, member: Member, change: impl FnOnce(&mut Books, Seat) -> Reply) -> Reply {
        let mut books = self.books();
        if seat_of(&books, member.id) != Some(member.seat) {
            return Reply::Refused(Refusal::NotAMember);
        }
        let reply = change(&mut books, member.seat);
        self.tidy(&mut books);
        reply
    }

    /// What a process held together with others, it holds no more.
    pub(super) fn leave_shares(&self, books: &mut Books, seat: Seat) {
        self.common(books).leave(seat);
        self.tidy(books);
    }

    /// What a process is charged for on a device now; the same twice, and it stood still in between.
    pub(crate) fn still(&self, seat: Seat, device: DeviceSlot) -> Still {
        let usage = self.regions.usage();
        let charges = usage.counter(slot(seat), Counter::Charges).load(Ordering::Acquire);
        let context = units_of(usage.context(slot(seat), device).load(Ordering::Acquire));
        let word = self.word(seat, device).load();
        let bytes = |units: Units| Bytes::new(units.bytes());
        Still { charges, used: bytes(word.used.min(word.granted)), context: bytes(context) }
    }

    /// The driver was seen to hold more for a process, which stood still, than that was charged: charges it to
    /// the slice. Says whether that is news.
    pub(crate) fn true_up(&self, seat: Seat, device: DeviceSlot, beyond: Bytes) -> bool {
        // What it shares may be listed with it or with another: nothing follows for either.
        !self.shares(seat) && self.charge_beyond(seat, device, beyond)
    }

    /// A process holds so much that it does not tell, whatever it shares: charges it to the slice. Says whether that is
    /// news.
    pub(crate) fn charge_beyond(&self, seat: Seat, device: DeviceSlot, beyond: Bytes) -> bool {
        let mut books = self.books();
        let seated = books.life.occupants().is_some_and(|here| here.members.contains_key(&seat));
        if !seated || !books.ledgers[device.index()].take_beyond(seat, beyond) {
            return false;
        }
        let change = Change::Beyond { seat: seat.0, device: device.index() as u8, bytes: beyond };
        self.noted(&mut books.shares, change);
        self.settle(&mut books);
        true
    }

    /// The driver does not list a process that is charged nothing: what it took beyond is given back.
    pub(crate) fn forgive(&self, seat: Seat, device: DeviceSlot) {
        let mut books = self.books();
        if books.ledgers[device.index()].beyond(seat) == Bytes::ZERO {
            return;
        }
        books.ledgers[device.index()].forget_beyond(seat);
        let change = Change::Beyond { seat: seat.0, device: device.index() as u8, bytes: Bytes::ZERO };
        self.noted(&mut books.shares, change);
        self.settle(&mut books);
    }

    /// Takes over what an earlier daemon charged to the slice as a whole. Where its notes are lost, what the
    /// control region says is charged to everybody who is there, until the last of them is gone.
    pub(crate) fn restore_common(&self) {
        let mut books = self.books();
        let books = &mut *books;
        let legacy = std::mem::take(&mut books.legacy);
        let members: Vec<Seat> =
            books.life.occupants().into_iter().flat_map(|here| here.members.keys().copied()).collect();
        let turn = |seat: Seat, device: u8| {
            DeviceSlot::new(device.into()).is_some_and(|device| self.word(seat, device).load().turn)
        };
        let lost = self.common(books).take_over(&members, &legacy, turn);
        if lost > Bytes::ZERO && !members.is_empty() {
            tracing::warn!(slice = %self.name, %lost, "what was shared is not known any more; it stays charged");
        }
        self.rewrite(books);
        self.settle(books);
    }

    /// What the slice is charged on a device for what several processes hold, and for what the driver took
    /// beyond reserves; and by how much the slice is over its cap there.
    pub(crate) fn beside(&self, device: DeviceSlot) -> Beside {
        let books = self.books();
        let ledger = &books.ledgers[device.index()];
        let over = match ledger.standing() {
            Standing::Within => Bytes::ZERO,
            Standing::Over(excess) => excess,
        };
        Beside { shared: ledger.shared(), common: ledger.common(), over }
    }

    pub(super) fn publish(&self, ledgers: &[Ledger]) {
        for (device, _) in self.devices() {
            let common = Units::covering(ledgers[device.index()].common().get()).unwrap_or(Units::MAX);
            if self.regions.control().reader().common(device) != common {
                self.regions.control().set_common(device, common);
            }
        }
    }

    fn common<'a>(
        &'a self,
        books: &'a mut Books,
    ) -> Common<'a, impl FnMut(Change) -> bool, impl FnMut(&[Ledger])> {
        let Books { ledgers, sharing, shares, .. } = books;
        let note = move |change| self.noted(shares, change);
        Common { ledgers, sharing, note, publish: |ledgers: &[Ledger]| self.publish(ledgers) }
    }

    /// Writes a change down; says whether that worked.
    fn noted(&self, shares: &mut Shares, change: Change) -> bool {
        let noted = shares.note(change);
        if let Err(error) = &noted {
            tracing::warn!(slice = %self.name, %error, "cannot write down what is shared");
        }
        noted.is_ok()
    }

    /// Writes the notes anew where most of them are history, or their end is spoilt.
    fn tidy(&self, books: &mut Books) {
        if books.shares.is_stale(&books.sharing) {
            self.rewrite(books);
        }
    }

    fn rewrite(&self, books: &mut Books) {
        let beyond = beyond(&books.ledgers);
        if let Err(error) = books.shares.rewrite(&books.sharing, &beyond) {
            tracing::warn!(slice = %self.name, %error, "cannot write down what is shared");
        }
    }
}

fn beyond(ledgers: &[Ledger]) -> Beyond {
    let of = |(index, ledger): (usize, &Ledger)| -> Beyond {
        ledger.all_beyond().map(|(seat, bytes)| (seat, index as u8, bytes)).collect()
    };
    ledgers.iter().enumerate().flat_map(of).collect()
}
/// A number of units as a tenant wrote it: what is more than can be is the most that can be.
fn units_of(word: u64) -> Units {
    Units::new(u32::try_from(word).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_beyond_all_memory_are_the_most_there_can_be() {
        for word in [u64::MAX, 1 << 63, 1 << 43, 1 << 32] {
            assert_eq!(units_of(word), Units::MAX, "{word:#x}");
        }
        assert_eq!(units_of(310).get(), 310);
    }
}
