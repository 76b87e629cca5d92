//! The daemon's half of the credit protocol: one device's ledger against the words of its seats.
//!
//! Whoever calls this holds the books. The words belong to processes that change them all the while, may end at
//! any instruction and may lie; the ledger is what is true, and every step here leaves it so whichever instruction
//! is the daemon's last. `tests/model` runs this file, as it is, against every interleaving.

use tranche_domain::ledger::{Answer, Ledger, Standing};
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;
use tranche_shm::crash::point;
use tranche_shm::credit::{CreditWord, Units};

/// How often siblings may use, under our eyes, what was to be taken back from them.
const ATTEMPTS: usize = 64;

/// One device's ledger and where its seats' words lie.
pub(crate) struct Account<'a, W> {
    /// What is true.
    pub(crate) ledger: &'a mut Ledger,
    /// What the processes see of it.
    pub(crate) words: W,
}

impl<'w, W: Fn(Seat) -> CreditWord<'w>> Account<'_, W> {
    /// Answers a process that wants to charge `want`; `true` when its word covers that, or did.
    pub(crate) fn credit(&mut self, seat: Seat, want: Bytes) -> bool {
        for _ in 0..ATTEMPTS {
            let words = &self.words;
            match self.ledger.ask(seat, want, |seat| unused(words(seat))) {
                Answer::Enough => return true,
                Answer::Grant(more) => {
                    // Entered first: a daemon that ends here has promised nothing that its word does not show.
                    point("credit: entered");
                    let given = bytes((self.words)(seat).grant(Units::within(more.get())));
                    point("credit: granted");
                    self.ledger.give_back(seat, more.saturating_sub(given));
                    return given > Bytes::ZERO;
                }
                Answer::Recall(plan) => self.recall_all(plan),
                Answer::Exhausted => break,
            }
        }
        point("credit: exhausted");
        false
    }

    /// Takes note of credit that a process gave back by itself, and takes away what it claims beyond the books,
    /// as far as it is not used. Returns what it claimed.
    pub(crate) fn observe(&mut self, seat: Seat) -> Bytes {
        let word = (self.words)(seat);
        let claimed = self.ledger.observe(seat, bytes(word.load().granted));
        if claimed > Bytes::ZERO {
            word.recall(Units::within(claimed.get()));
        }
        claimed
    }

    /// Brings grants back within the cap as far as use allows; says by how much they are over.
    pub(crate) fn trim(&mut self) -> Bytes {
        let words = &self.words;
        let plan = self.ledger.trim(|seat| unused(words(seat)));
        self.recall_all(plan);
        match self.ledger.standing() {
            Standing::Within => Bytes::ZERO,
            Standing::Over(excess) => excess,
        }
    }

    /// Enters what an earlier daemon granted into the books. What the word holds beyond what they allow is taken
    /// back; where the process was quicker and used it, that is entered too, and the slice is over its cap. Beyond the cap
    /// no more is believed to be in use than `most`, where somebody else knows: nobody is to claim what others could have.
    pub(crate) fn take_over(&mut self, seat: Seat, most: Option<Bytes>) {
        let word = (self.words)(seat);
        let believed = |used: Bytes| most.map_or(used, |most| used.min(most));
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
        // It fights for what it may not have, so it counts as using all of it.
        let granted = bytes(word.load().granted);
        self.ledger.restore(seat, granted, believed(granted));
    }

    fn recall_all(&mut self, plan: Vec<(Seat, Bytes)>) {
        for (seat, most) in plan {
            let got = (self.words)(seat).recall(Units::within(most.get()));
            point("credit: recalled");
            self.ledger.give_back(seat, bytes(got));
        }
    }
}

fn unused(word: CreditWord<'_>) -> Bytes {
    bytes(word.load().unused())
}

const fn bytes(units: Units) -> Bytes {
    Bytes::new(units.bytes())
}
