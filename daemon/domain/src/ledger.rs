//! Who of a slice may hold how much of one GPU's memory: grants by seat, never more than the cap together.
//!
//! The credit words that processes read are copies; this ledger is what is true. It grants greedily, all that
//! is uncommitted, so that a process asks seldom, and takes unused credit back from its siblings before it
//! refuses anybody. Only a shrink below what is in use puts the sum above the cap; until it has fallen again
//! nothing new is granted.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::slice::Seat;
use crate::units::Bytes;

/// The least that is taken back at a time where there is as much, so that two siblings that take turns do
/// not ask for every block.
pub const RECALL_STEP: Bytes = Bytes::mib(64);

/// The grants of one slice on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    cap: Bytes,
    grants: BTreeMap<Seat, Bytes>,
    /// Charged for what several seats hold.
    shared: Bytes,
    /// What the driver took for a seat beyond the reserve for its context.
    beyond: BTreeMap<Seat, Bytes>,
}

/// What to do about a process that asks for credit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has enough already: a sibling thread asked first.
    Enough,
    /// It gets this much, already entered here.
    Grant(Bytes),
    /// First take unused credit back from these, tell the ledger what was got, and ask again.
    Recall(Vec<(Seat, Bytes)>),
    /// The rest of the slice is in use.
    Exhausted,
}

/// Whether the slice keeps to its cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// All grants are within it.
    Within,
    /// After a shrink, this much is granted beyond it.
    Over(Bytes),
}

impl Ledger {
    /// An empty ledger with that cap.
    pub const fn new(cap: Bytes) -> Self {
        Self { cap, grants: BTreeMap::new(), shared: Bytes::ZERO, beyond: BTreeMap::new() }
    }

    /// The cap.
    pub const fn cap(&self) -> Bytes {
        self.cap
    }

    /// What a seat may hold.
    pub fn granted(&self, seat: Seat) -> Bytes {
        self.grants.get(&seat).copied().unwrap_or(Bytes::ZERO)
    }

    /// What all seats may hold, alone and together.
    pub fn total(&self) -> Bytes {
        self.grants.values().copied().sum::<Bytes>().saturating_add(self.common())
    }

    /// What is charged for memory that several seats hold.
    pub const fn shared(&self) -> Bytes {
        self.shared
    }

    /// What the driver took for a seat beyond the reserve for its context.
    pub fn beyond(&self, seat: Seat) -> Bytes {
        self.beyond.get(&seat).copied().unwrap_or(Bytes::ZERO)
    }

    /// What the driver took beyond the reserves, by seat.
    pub fn all_beyond(&self) -> impl Iterator<Item = (Seat, Bytes)> + '_ {
        self.beyond.iter().map(|(seat, bytes)| (*seat, *bytes))
    }

    /// All that is charged beside the seats' own words.
    pub fn common(&self) -> Bytes {
        self.beyond.values().copied().sum::<Bytes>().saturating_add(self.shared)
    }

    /// What is granted to nobody.
    pub fn uncommitted(&self) -> Bytes {
        self.cap.saturating_sub(self.total())
    }

    /// Whether the grants are within the cap.
    pub fn standing(&self) -> Standing {
        match self.total().checked_sub(self.cap) {
            Some(excess) if excess > Bytes::ZERO => Standing::Over(excess),
            _ => Standing::Within,
        }
    }

    /// Answers `seat`, which wants to charge `want`. `unused` says how much of its grant a seat does not use
    /// now, as read from its word; it is believed up to the grant and no further.
    pub fn ask(&mut self, seat: Seat, want: Bytes, unused: impl Fn(Seat) -> Bytes) -> Answer {
        let spare = |seat: Seat| unused(seat).min(self.granted(seat));
        if matches!(self.standing(), Standing::Over(_)) {
            return Answer::Exhausted;
        }
        let Some(missing) = want.checked_sub(spare(seat)).filter(|missing| *missing > Bytes::ZERO) else {
            return Answer::Enough;
        };
        let free = self.uncommitted();
        if free >= missing {
            self.enter(seat, free);
            return Answer::Grant(free);
        }
        let short = missing.saturating_sub(free);
        let mut siblings: Vec<(Seat, Bytes)> =
            self.grants.keys().filter(|other| **other != seat).map(|other| (*other, spare(*other))).collect();
        let available: Bytes = siblings.iter().map(|(_, spare)| *spare).sum();
        if available < short {
            return Answer::Exhausted;
        }
        siblings.sort_by_key(|(seat, spare)| (core::cmp::Reverse(*spare), *seat));
        Answer::Recall(plan(&siblings, short.max(RECALL_STEP)))
    }

    /// What to take back so that the grants come within the cap again, from whoever uses it least.
    pub fn trim(&self, unused: impl Fn(Seat) -> Bytes) -> Vec<(Seat, Bytes)> {
        let Standing::Over(excess) = self.standing() else { return Vec::new() };
        let spare = |(seat, granted): (&Seat, &Bytes)| (*seat, unused(*seat).min(*granted));
        let mut seats: Vec<(Seat, Bytes)> = self.grants.iter().map(spare).collect();
        seats.sort_by_key(|(seat, spare)| (core::cmp::Reverse(*spare), *seat));
        plan(&seats, excess)
    }

    /// A seat gave back so much of its grant.
    pub fn give_back(&mut self, seat: Seat, returned: Bytes) {
        let left = self.granted(seat).saturating_sub(returned);
        if left == Bytes::ZERO {
            self.grants.remove(&seat);
        } else {
            self.grants.insert(seat, left);
        }
    }

    /// A seat's word holds less than was granted: it gave the rest back by itself, as it does while the slice
    /// is over its cap. A word that holds *more* is not believed; the difference is returned.
    pub fn observe(&mut self, seat: Seat, in_word: Bytes) -> Bytes {
        let granted = self.granted(seat);
        // Mostly it does not, and everybody's word is looked at each time.
        if in_word < granted {
            self.give_back(seat, granted.saturating_sub(in_word));
        }
        in_word.saturating_sub(granted)
    }

    /// A process ended: all that it was granted is free again. Returns how much that was.
    pub fn release(&mut self, seat: Seat) -> Bytes {
        let beyond = self.beyond.remove(&seat).unwrap_or(Bytes::ZERO);
        self.grants.remove(&seat).unwrap_or(Bytes::ZERO).saturating_add(beyond)
    }

    /// A seat shares what it is charged for with others: from now on that is charged to all of them together.
    /// Says whether the seat was granted as much.
    pub fn hand_over(&mut self, seat: Seat, bytes: Bytes) -> bool {
        let granted = self.granted(seat) >= bytes;
        if granted {
            self.give_back(seat, bytes);
            self.shared = self.shared.saturating_add(bytes);
        }
        granted
    }

    /// Enters what an earlier daemon charged for what is shared. That may put the slice over its cap.
    pub fn restore_shared(&mut self, bytes: Bytes) {
        self.shared = self.shared.saturating_add(bytes);
    }

    /// Nobody holds it any more.
    pub fn release_shared(&mut self, bytes: Bytes) {
        self.shared = self.shared.saturating_sub(bytes);
    }

    /// The driver was seen to have taken so much for a seat beyond what it was charged. It is charged even where
    /// that puts the slice over its cap, for the memory is gone already. Only ever rises, until the seat is
    /// released; says whether it did.
    ///
    /// It is charged to the slice, not added to the seat's grant: the process's own word does not know of it.
    pub fn take_beyond(&mut self, seat: Seat, bytes: Bytes) -> bool {
        let news = bytes > self.beyond(seat);
        if news {
            self.beyond.insert(seat, bytes);
        }
        news
    }

    /// Sets another cap. Nothing is taken from anybody by this alone: see [`Ledger::trim`].
    pub fn set_cap(&mut self, cap: Bytes) {
        self.cap = cap;
    }

    /// The driver was seen to have let go of everything that it took for a seat.
    pub fn forget_beyond(&mut self, seat: Seat) {
        self.beyond.remove(&seat);
    }

    /// Takes over what an earlier daemon granted: the word's grant, as far as the cap allows; a seat keeps
    /// at least what it says it uses, or it would hold memory that belongs to nobody. Returns what it has now.
    pub fn restore(&mut self, seat: Seat, granted: Bytes, used: Bytes) -> Bytes {
        self.grants.remove(&seat);
        let kept = granted.min(self.uncommitted()).max(used);
        self.enter(seat, kept);
        kept
    }

    fn enter(&mut self, seat: Seat, more: Bytes) {
        if more > Bytes::ZERO {
            self.grants.insert(seat, self.granted(seat).saturating_add(more));
        }
    }
}

/// Takes up to `wanted` in all, from the first as much as it has, then from the next.
fn plan(seats: &[(Seat, Bytes)], wanted: Bytes) -> Vec<(Seat, Bytes)> {
    let mut left = wanted;
    let take = |(seat, spare): &(Seat, Bytes)| {
        let part = (*spare).min(left);
        left = left.saturating_sub(part);
        (part > Bytes::ZERO).then_some((*seat, part))
    };
    seats.iter().filter_map(take).collect()
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
