//! The daemon's half of memory that several processes hold. Shares, against the ledgers charged before and the
//! journal for the next daemon.
//!
//! The caller holds the accounting lock. The order of the steps allows the daemon to be killed at any instruction:
//! its successor charges at least what is held, and exactly that once every request has been answered. `tests/model`
//! runs this file unchanged against every interleaving and every such end.

use tranche_domain::ledger::GrantLedger;
use tranche_domain::sharing::{DeviceIndex, Exported, Released, Sharing};
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;
use tranche_shm::crash::point;
use tranche_shm::credit::{CreditWord, Units};

use crate::shares::{Change, Legacy};

/// Largest number of shares of a slice; further exports fail, and each opener is charged in full.
const MOST_SHARES: usize = 1 << 16;
/// Largest number of holders of all shares. Each takes memory of the daemon and a line of the journal in `/run`.
const MOST_HOLDERS: usize = 1 << 18;

/// Charges of a slice as a whole.
pub(crate) struct Common<'a, N, P> {
    /// Memory ledger of each device, in the order of devices.
    pub(crate) ledgers: &'a mut [GrantLedger],
    /// Holders of each share.
    pub(crate) sharing: &'a mut Sharing,
    /// Appends a change to the journal; returns true on success.
    pub(crate) note: N,
    /// Publishes the common charge to all processes of the slice.
    pub(crate) publish: P,
}

impl<N: FnMut(Change) -> bool, P: FnMut(&[GrantLedger])> Common<'_, N, P> {
    /// Turns memory charged in `word` into a share, charged to the slice as a whole. Returns true if it is one now.
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
        // Journaled first: if the daemon is killed in between, its successor sees by the word's turn bit that nothing
        // was handed over.
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

    /// Returns true if no holder can be added. The count is maintained, because every message needs it.
    fn is_crowded(&self) -> bool {
        self.sharing.count_holders() >= MOST_HOLDERS
    }

    /// Adds a holder to an exported share; returns false if there is no such share.
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

    /// Removes a holder; returns true if it was one.
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

    /// Removes a process from all shares, along with what the driver took beyond its charge.
    pub(crate) fn leave(&mut self, seat: Seat) {
        let beyond = self.ledgers.iter().any(|ledger| ledger.beyond(seat) > Bytes::ZERO);
        if beyond || self.sharing.holds(seat) {
            let gone = self.sharing.leave(seat);
            self.release(gone);
            point("leave: released");
            (self.note)(Change::Leave { seat: seat.0 });
        }
    }

    /// Restores the common charges of an earlier daemon for the processes that remain. Until now the ledgers hold
    /// what the control region states. Any part that the journal does not explain is lost and charged to all
    /// processes until the last of them ends; returns that amount. `turn` reads the turn bit of a slot's word.
    pub(crate) fn take_over(
        &mut self,
        members: &[Seat],
        legacy: &Legacy,
        turn: impl Fn(Seat, DeviceIndex) -> bool,
    ) -> Bytes {
        // Before any process is removed: the shares of ended processes explain what was charged for them.
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

    /// Common charge of each device that the journal does not explain.
    fn lost(&self, legacy: &Legacy) -> Vec<Bytes> {
        let beyond = |device: DeviceIndex| {
            legacy.beyond.iter().filter(move |(_, at, _)| *at == device).map(|(.., bytes)| *bytes).sum()
        };
        let lost = |(device, ledger): (DeviceIndex, &GrantLedger)| {
            let known = self.sharing.total(device).saturating_add(beyond(device));
            if known == Bytes::ZERO { ledger.shared() } else { Bytes::ZERO }
        };
        (0..).zip(self.ledgers.iter()).map(lost).collect()
    }

    /// Published before it is journaled. A charge that the journal does not explain would be taken for lost.
    fn release(&mut self, gone: impl IntoIterator<Item = Released>) {
        for gone in gone {
            self.ledgers[usize::from(gone.device)].release_shared(gone.bytes);
        }
        (self.publish)(self.ledgers);
    }
}

/// Key of restored shares whose keys are unknown.
const NAMELESS: u64 = u64::MAX;

fn share_among(sharing: &mut Sharing, members: &[Seat], device: DeviceIndex, bytes: Bytes) {
    if let Some((first, others)) = members.split_first().filter(|_| bytes > Bytes::ZERO) {
        sharing.export(*first, NAMELESS, device, bytes);
        for seat in others {
            sharing.import(*seat, NAMELESS);
        }
    }
}
