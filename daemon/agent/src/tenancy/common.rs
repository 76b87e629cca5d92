//! The daemon's half of memory that several processes hold: their shares, against the ledgers that were charged for
//! them before and the notes that the next daemon will read.
//!
//! Whoever calls this holds the books. The order of the steps is such that a daemon may end at any instruction: its
//! successor charges at least what is held, and just that as soon as everybody has been answered. `tests/model` runs
//! this file, as it is, against every interleaving and every such end.

use tranche_domain::ledger::Ledger;
use tranche_domain::sharing::{DeviceIndex, Exported, Released, Sharing};
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;
use tranche_shm::crash::point;
use tranche_shm::credit::{CreditWord, Units};

use crate::shares::{Change, Legacy};

/// The most things shared in a slice at a time; what is opened beyond that is charged in full.
const MOST_SHARES: usize = 1 << 16;
/// The most holders of all of them together: each is an entry in the daemon's memory and a line in the notes on `/run`.
const MOST_HOLDERS: usize = 1 << 18;

/// What is charged to a slice as a whole.
pub(crate) struct Common<'a, N, P> {
    /// By device.
    pub(crate) ledgers: &'a mut [Ledger],
    /// Who holds what.
    pub(crate) sharing: &'a mut Sharing,
    /// Writes a change down; says whether that worked.
    pub(crate) note: N,
    /// Says to all what is charged to all.
    pub(crate) publish: P,
}

impl<N: FnMut(Change) -> bool, P: FnMut(&[Ledger])> Common<'_, N, P> {
    /// A process lets others open what it is charged for, in `word`: from now on all of them are. Says whether that
    /// is so.
    pub(crate) fn export(
        &mut self,
        seat: Seat,
        device: DeviceIndex,
        key: u64,
        units: Units,
        word: CreditWord<'_>,
    ) -> bool {
        if self.sharing.exported_by(seat, key) == Exported::Before {
            return true;
        }
        let (at, bytes) = (usize::from(device), Bytes::new(units.bytes()));
        let before = word.load();
        let covered = self.ledgers[at].granted(seat) >= bytes && before.used >= units;
        if !covered || self.sharing.count() >= MOST_SHARES || self.is_crowded() {
            return false;
        }
        // Written down first: should we be killed in between, our successor sees by the word that it did not turn.
        let turn = Some(!before.turn);
        if !(self.note)(Change::Export { seat: seat.0, key, device, bytes, turn }) {
            return false;
        }
        point("export: noted");
        if !word.hand_over(units) {
            (self.note)(Change::Drop { seat: seat.0, key });
            return false;
        }
        point("export: handed over");
        self.ledgers[at].hand_over(seat, bytes);
        self.sharing.export(seat, key, device, bytes);
        (self.publish)(self.ledgers);
        point("export: published");
        true
    }

    /// Whether nothing more can be held together. Counted as it changes: every message asks it.
    fn is_crowded(&self) -> bool {
        self.sharing.count_holders() >= MOST_HOLDERS
    }

    /// A process opens what another exported; says whether there is any such thing.
    pub(crate) fn import(&mut self, seat: Seat, key: u64) -> bool {
        if self.sharing.exported_by(seat, key) == Exported::Before {
            return true;
        }
        if self.is_crowded()
            || !self.sharing.is_known(key)
            || !(self.note)(Change::Import { seat: seat.0, key })
        {
            return false;
        }
        point("import: noted");
        self.sharing.import(seat, key)
    }

    /// A process holds it no more; says whether it did.
    pub(crate) fn drop_one(&mut self, seat: Seat, key: u64) -> bool {
        let held = self.sharing.exported_by(seat, key) == Exported::Before;
        if held {
            let gone = self.sharing.drop_one(seat, key);
            self.release(gone);
            point("drop: released");
            (self.note)(Change::Drop { seat: seat.0, key });
        }
        held
    }

    /// A process holds nothing any more, alone or with others.
    pub(crate) fn leave(&mut self, seat: Seat) {
        let beyond = self.ledgers.iter().any(|ledger| ledger.beyond(seat) > Bytes::ZERO);
        if beyond || self.sharing.holds(seat) {
            let gone = self.sharing.leave(seat);
            self.release(gone);
            point("leave: released");
            (self.note)(Change::Leave { seat: seat.0 });
        }
    }

    /// Enters what an earlier daemon charged to all, for those who are still there. Until now the ledgers hold what
    /// the control region says. What the notes do not explain of that, since they are lost, is charged to everybody
    /// until the last of them is gone; returns how much that is. `turn` says how somebody's word on a device stands.
    pub(crate) fn take_over(
        &mut self,
        members: &[Seat],
        legacy: &Legacy,
        turn: impl Fn(Seat, DeviceIndex) -> bool,
    ) -> Bytes {
        // Before anybody is taken out: the notes of those who are gone explain what was charged for them.
        let lost = self.lost(legacy);
        let gone: Vec<Seat> = self.sharing.seats().filter(|seat| !members.contains(seat)).collect();
        gone.into_iter().for_each(|seat| drop(self.sharing.leave(seat)));
        let undone = legacy.doubtful.filter(|last| turn(last.seat, last.device) != last.turn);
        if let Some(last) = undone {
            self.sharing.drop_one(last.seat, last.key);
        }
        for (seat, device, bytes) in legacy.beyond.iter().filter(|(seat, ..)| members.contains(seat)) {
            if let Some(ledger) = self.ledgers.get_mut(usize::from(*device)) {
                ledger.take_beyond(*seat, *bytes);
            }
        }
        for ((device, ledger), lost) in (0..).zip(self.ledgers.iter_mut()).zip(&lost) {
            share_among(self.sharing, members, device, *lost);
            ledger.release_shared(ledger.shared());
            ledger.restore_shared(self.sharing.total(device));
        }
        (self.publish)(self.ledgers);
        if let Some(last) = undone {
            (self.note)(Change::Drop { seat: last.seat.0, key: last.key });
        }
        lost.into_iter().sum()
    }

    /// What is charged to all of which the notes say nothing, by device.
    fn lost(&self, legacy: &Legacy) -> Vec<Bytes> {
        let beyond = |device: DeviceIndex| {
            legacy.beyond.iter().filter(move |(_, at, _)| *at == device).map(|(.., bytes)| *bytes).sum()
        };
        let lost = |(device, ledger): (DeviceIndex, &Ledger)| {
            let known = self.sharing.total(device).saturating_add(beyond(device));
            if known == Bytes::ZERO { ledger.shared() } else { Bytes::ZERO }
        };
        (0..).zip(self.ledgers.iter()).map(lost).collect()
    }

    /// Said before it is written down: what the notes do not explain would be taken for lost.
    fn release(&mut self, gone: impl IntoIterator<Item = Released>) {
        for gone in gone {
            self.ledgers[usize::from(gone.device)].release_shared(gone.bytes);
        }
        (self.publish)(self.ledgers);
    }
}

/// What nobody knows the name of.
const NAMELESS: u64 = u64::MAX;

fn share_among(sharing: &mut Sharing, members: &[Seat], device: DeviceIndex, bytes: Bytes) {
    if let Some((first, others)) = members.split_first().filter(|_| bytes > Bytes::ZERO) {
        sharing.export(*first, NAMELESS, device, bytes);
        for seat in others {
            sharing.import(*seat, NAMELESS);
        }
    }
}
