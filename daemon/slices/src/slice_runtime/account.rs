//! The daemon's half of the credit protocol. The ledger of one device against the credit words of its slots.
//!
//! The caller holds the accounting lock. The words belong to processes that change them concurrently, may end at any
//! instruction and may write any value; the ledger is authoritative, and every step leaves it valid whichever
//! instruction is the daemon's last. `tests/model` runs this file unchanged against every interleaving.

use tranche_domain::ledger::{CapRelation, CreditReply, GrantLedger};
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;
use tranche_shm::crash::point;
use tranche_shm::credit::{CreditWord, Units};

/// Attempts to recall credit that other processes of the slice keep using meanwhile.
const ATTEMPTS: usize = 64;

/// Ledger of one device and access to the words of its slots.
pub(crate) struct LedgerAccount<'a, W> {
    /// Grants of each slot, which the words cannot change.
    pub(crate) ledger: &'a mut GrantLedger,
    /// Credit word of each slot, shared with its process.
    pub(crate) words: W,
}

impl<'w, W: Fn(Seat) -> CreditWord<'w>> LedgerAccount<'_, W> {
    /// Handles a request to charge `want`; returns true once the process's word covers it, or did.
    pub(crate) fn credit(&mut self, seat: Seat, want: Bytes) -> bool {
        for _ in 0..ATTEMPTS {
            let words = &self.words;
            match self.ledger.ask(seat, want, |seat| unused(words(seat))) {
                CreditReply::Enough => return true,
                CreditReply::Grant(more) => {
                    // Entered in the ledger first: a daemon killed here has granted nothing that the ledger lacks.
                    point("credit: entered");
                    let given = bytes((self.words)(seat).grant(Units::within(more.get())));
                    point("credit: granted");
                    self.ledger.give_back(seat, more.saturating_sub(given));
                    return given > Bytes::ZERO;
                }
                CreditReply::Recall(plan) => self.recall_all(plan),
                CreditReply::Exhausted => break,
            }
        }
        point("credit: exhausted");
        false
    }

    /// Enters credit that a process returned by itself; returns what its word claims beyond the ledger.
    /// The unused part of that excess is recalled.
    pub(crate) fn observe(&mut self, seat: Seat) -> Bytes {
        let word = (self.words)(seat);
        let claimed = self.ledger.observe(seat, bytes(word.load().granted));
        if claimed > Bytes::ZERO {
            word.recall(Units::within(claimed.get()));
        }
        claimed
    }

    /// Recalls unused grants until they are within the cap; returns the remaining excess.
    pub(crate) fn trim(&mut self) -> Bytes {
        let words = &self.words;
        let plan = self.ledger.trim(|seat| unused(words(seat)));
        self.recall_all(plan);
        match self.ledger.standing() {
            CapRelation::Within => Bytes::ZERO,
            CapRelation::Over(excess) => excess,
        }
    }

    /// Enters in the ledger what an earlier daemon granted. Recalls what the word holds beyond the ledger's limits;
    /// if the process has used it meanwhile, it is entered as well and the slice is over its cap. Beyond the cap at
    /// most `most` counts as used, where the driver provides it, so that a false claim cannot take other slices'
    /// memory.
    pub(crate) fn take_over(&mut self, seat: Seat, most: Option<Bytes>) {
        let word = (self.words)(seat);
        let believed = believed(most);
        word.may_have_changed();
        for _ in 0..ATTEMPTS {
            let credit = word.load();
            let (granted, used) = (bytes(credit.granted), believed(bytes(credit.used.min(credit.granted))));
            let kept = self.ledger.restore(seat, granted, used);
            let excess = granted.saturating_sub(kept);
            if bytes(word.recall(Units::within(excess.get()))) == excess {
                point("recovery: restored");
                return;
            }
        }
        // The process kept using credit that was being recalled, so all of it counts as used.
        let granted = bytes(word.load().granted);
        self.ledger.restore(seat, granted, believed(granted));
    }

    /// Enters in the ledger what an ended process still holds, and lowers its word to that. Otherwise the memory that the
    /// word claims beyond it could be granted to others, and the words would exceed the cap until the slot is released.
    pub(crate) fn take_over_ended(&mut self, seat: Seat, most: Option<Bytes>) {
        let word = (self.words)(seat);
        word.may_have_changed();
        let credit = word.load();
        let used = believed(most)(bytes(credit.used.min(credit.granted)));
        let kept = self.ledger.restore(seat, bytes(credit.granted), used);
        word.lower(Units::within(kept.get()));
        point("recovery: restored");
    }

    /// Recalls all unused credit of these processes.
    pub(crate) fn recall_unused(&mut self, seats: impl IntoIterator<Item = Seat>) {
        let plan = seats.into_iter().map(|seat| (seat, self.ledger.granted(seat))).collect();
        self.recall_all(plan);
    }

    fn recall_all(&mut self, plan: Vec<(Seat, Bytes)>) {
        for (seat, most) in plan {
            let got = (self.words)(seat).recall(Units::within(most.get()));
            point("credit: recalled");
            self.ledger.give_back(seat, bytes(got));
        }
    }
}

/// Reported use as far as the driver's upper bound allows.
fn believed(most: Option<Bytes>) -> impl Fn(Bytes) -> Bytes {
    move |used| most.map_or(used, |most| used.min(most))
}

fn unused(word: CreditWord<'_>) -> Bytes {
    bytes(word.load().unused())
}

const fn bytes(units: Units) -> Bytes {
    Bytes::new(units.bytes())
}
