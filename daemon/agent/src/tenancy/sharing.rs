//! What is charged to the slice as a whole: memory that several of its processes hold, and what the driver took
//! beyond the reserves for contexts.

use std::sync::atomic::Ordering;

use tranche_domain::ledger::{Ledger, Standing};
use tranche_domain::sharing::{Exported, Released};
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;
use tranche_shm::credit::{UNIT_BYTES, Units};
use tranche_shm::message::{Refusal, Reply, ShareKey};
use tranche_shm::usage::Counter;

use super::{Books, Tenancy, slot};
use crate::shares::{Beyond, Change};

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

/// The most things shared in a slice at a time; what is opened beyond that is charged in full.
const MOST_SHARES: usize = 1 << 16;

impl Tenancy {
    /// A process lets others open what it is charged for.
    pub(crate) fn export(&self, seat: Seat, device: DeviceSlot, key: ShareKey, units: Units) -> Reply {
        if device.index() >= self.gpus.len() || units == Units::ZERO {
            return Reply::Refused(Refusal::Malformed);
        }
        let mut books = self.books();
        if books.sharing.exported_by(seat, key.0) == Exported::Before {
            return Reply::Granted;
        }
        self.observe(&mut books, device);
        let bytes = Bytes::new(units.bytes());
        let covered = books.ledgers[device.index()].granted(seat) >= bytes
            && self.word(seat, device).load().used >= units;
        if !covered || books.sharing.iter().take(MOST_SHARES).count() == MOST_SHARES {
            return Reply::Unknown;
        }
        let index = device.index() as u8;
        // Written down first: should we be killed in between, it is charged twice and not never.
        let change = Change::Export { seat: seat.0, key: key.0, device: index, bytes };
        if !self.noted(&mut books, change) {
            return Reply::Unknown;
        }
        if !self.word(seat, device).hand_over(units) {
            self.noted(&mut books, Change::Drop { seat: seat.0, key: key.0 });
            return Reply::Unknown;
        }
        books.ledgers[device.index()].hand_over(seat, bytes);
        books.sharing.export(seat, key.0, index, bytes);
        self.publish(&books);
        Reply::Granted
    }

    /// A process opens what another exported.
    pub(crate) fn import(&self, seat: Seat, key: ShareKey) -> Reply {
        let mut books = self.books();
        let (seat_number, key) = (seat.0, key.0);
        if books.sharing.exported_by(seat, key) == Exported::Before {
            return Reply::Granted;
        }
        if !books.sharing.is_known(key)
            || !self.noted(&mut books, Change::Import { seat: seat_number, key })
            || !books.sharing.import(seat, key)
        {
            return Reply::Unknown;
        }
        Reply::Granted
    }

    /// A process holds it no more. What was not its to hold is no matter.
    pub(crate) fn drop_share(&self, seat: Seat, key: ShareKey) -> Reply {
        let mut books = self.books();
        if books.sharing.exported_by(seat, key.0) == Exported::Before {
            let gone = books.sharing.drop_one(seat, key.0);
            self.release_shared(&mut books, gone);
            self.noted(&mut books, Change::Drop { seat: seat.0, key: key.0 });
            drop(books);
            self.left.notify_waiters();
        }
        Reply::Granted
    }

    /// What a process held together with others, it holds no more.
    pub(super) fn leave_shares(&self, books: &mut Books, seat: Seat) {
        let beyond = books.ledgers.iter().any(|ledger| ledger.beyond(seat) > Bytes::ZERO);
        if !beyond && !books.sharing.holds(seat) {
            return;
        }
        let gone = books.sharing.leave(seat);
        self.release_shared(books, gone);
        self.noted(books, Change::Leave { seat: seat.0 });
    }

    /// What a process is charged for on a device now; the same twice, and it stood still in between.
    pub(crate) fn still(&self, seat: Seat, device: DeviceSlot) -> Still {
        let usage = self.regions.usage();
        let charges = usage.counter(slot(seat), Counter::Charges).load(Ordering::Acquire);
        let context = Units::within(usage.context(slot(seat), device).load(Ordering::Acquire) * UNIT_BYTES);
        let word = self.word(seat, device).load();
        let bytes = |units: Units| Bytes::new(units.bytes());
        Still { charges, used: bytes(word.used.min(word.granted)), context: bytes(context) }
    }

    /// The driver was seen to hold more for a process, which stood still, than that was charged: charges it to
    /// the slice. Says whether that is news.
    pub(crate) fn true_up(&self, seat: Seat, device: DeviceSlot, beyond: Bytes) -> bool {
        let mut books = self.books();
        let seated = books.life.occupants().is_some_and(|here| here.members.contains_key(&seat));
        // What it shares may be listed with it or with another: nothing follows for either.
        if !seated || books.sharing.holds(seat) || !books.ledgers[device.index()].take_beyond(seat, beyond) {
            return false;
        }
        self.noted(&mut books, Change::Beyond { seat: seat.0, device: device.index() as u8, bytes: beyond });
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
        self.noted(&mut books, change);
        self.settle(&mut books);
    }

    /// Takes over what an earlier daemon charged to the slice as a whole. Where its notes are lost, what the
    /// control region says is charged to everybody who is there, until the last of them is gone.
    pub(crate) fn restore_common(&self) {
        let mut books = self.books();
        let books = &mut *books;
        let beyond = std::mem::take(&mut books.known_beyond);
        let members: Vec<Seat> =
            books.life.occupants().into_iter().flat_map(|here| here.members.keys().copied()).collect();
        let gone: Vec<Seat> = books.sharing.seats().filter(|seat| !members.contains(seat)).collect();
        gone.into_iter().for_each(|seat| drop(books.sharing.leave(seat)));
        for (seat, device, bytes) in beyond.iter().filter(|(seat, ..)| members.contains(seat)) {
            if let Some(ledger) = books.ledgers.get_mut(usize::from(*device)) {
                ledger.take_beyond(*seat, *bytes);
            }
        }
        for (device, _) in self.devices() {
            let index = device.index() as u8;
            let charged = books.ledgers[device.index()].shared();
            books.ledgers[device.index()].release_shared(charged);
            let known = books.sharing.total(index).saturating_add(books.ledgers[device.index()].common());
            let lost = charged.saturating_sub(known);
            if lost > Bytes::ZERO && known == Bytes::ZERO && !members.is_empty() {
                tracing::warn!(slice = %self.name, %lost, "what was shared is not known any more; it stays charged");
                books.sharing.export(members[0], u64::MAX, index, lost);
                for seat in &members[1..] {
                    books.sharing.import(*seat, u64::MAX);
                }
            }
            books.ledgers[device.index()].restore_shared(books.sharing.total(index));
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

    pub(super) fn publish(&self, books: &Books) {
        for (device, _) in self.devices() {
            let common = Units::covering(books.ledgers[device.index()].common().get()).unwrap_or(Units::MAX);
            if self.regions.control().reader().common(device) != common {
                self.regions.control().set_common(device, common);
            }
        }
    }

    fn release_shared(&self, books: &mut Books, gone: impl IntoIterator<Item = Released>) {
        for gone in gone {
            books.ledgers[usize::from(gone.device)].release_shared(gone.bytes);
        }
        self.publish(books);
    }

    /// Writes a change down; says whether that worked.
    fn noted(&self, books: &mut Books, change: Change) -> bool {
        if let Err(error) = books.shares.note(change) {
            tracing::warn!(slice = %self.name, %error, "cannot write down what is shared");
            return false;
        }
        if books.shares.is_long(&books.sharing) {
            self.rewrite(books);
        }
        true
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
