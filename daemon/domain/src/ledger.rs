//! Memory ledger of one slice on one GPU: grants by slot, whose sum never exceeds the cap.
//!
//! The credit words that processes read are copies; the ledger is authoritative. It grants all uncommitted
//! memory at once, so that processes rarely have to request more, and recalls unused credit from other slots
//! before it rejects a request. Only a shrink below the current use puts the sum above the cap; no grant is
//! made until the sum is within the cap again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::slice::Seat;
use crate::units::Bytes;

/// Minimum size of a recall, where as much is unused. Keeps two alternating processes from requesting credit
/// for each block.
pub const RECALL_STEP: Bytes = Bytes::mib(64);

/// The grants of one slice on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantLedger {
    cap: Bytes,
    grants: BTreeMap<Seat, Bytes>,
    /// Charge for memory that several slots hold.
    shared: Bytes,
    /// Memory that the driver took for a slot beyond its context reserve.
    beyond: BTreeMap<Seat, Bytes>,
}

/// Reply to a request for credit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreditReply {
    /// The slot has enough already: another thread of the process was served first.
    Enough,
    /// The slot gets this much, already entered in the ledger.
    Grant(Bytes),
    /// Unused credit to recall first; the caller enters what was recovered and repeats the request.
    Recall(Vec<(Seat, Bytes)>),
    /// The rest of the slice is in use.
    Exhausted,
}

/// Relation of the grants to the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapRelation {
    /// The grants are within the cap.
    Within,
    /// The grants exceed the cap by this much, after a shrink.
    Over(Bytes),
}

impl GrantLedger {
    /// A ledger without charges.
    pub const fn new(cap: Bytes) -> Self {
        Self { cap, grants: BTreeMap::new(), shared: Bytes::ZERO, beyond: BTreeMap::new() }
    }

    /// Upper bound of the sum of all grants.
    pub const fn cap(&self) -> Bytes {
        self.cap
    }

    /// Grant of a slot.
    pub fn granted(&self, seat: Seat) -> Bytes {
        self.grants.get(&seat).copied().unwrap_or(Bytes::ZERO)
    }

    /// Sum of all grants and common charges.
    pub fn total(&self) -> Bytes {
        self.grants.values().copied().sum::<Bytes>().saturating_add(self.common())
    }

    /// Charge for memory that several slots hold.
    pub const fn shared(&self) -> Bytes {
        self.shared
    }

    /// Memory that the driver took for a slot beyond its context reserve.
    pub fn beyond(&self, seat: Seat) -> Bytes {
        self.beyond.get(&seat).copied().unwrap_or(Bytes::ZERO)
    }

    /// Memory beyond the context reserves, by slot.
    pub fn all_beyond(&self) -> impl Iterator<Item = (Seat, Bytes)> + '_ {
        self.beyond.iter().map(|(seat, bytes)| (*seat, *bytes))
    }

    /// Charges that are in no slot's own credit word.
    pub fn common(&self) -> Bytes {
        self.beyond.values().copied().sum::<Bytes>().saturating_add(self.shared)
    }

    /// Part of the cap that is not granted or charged.
    pub fn uncommitted(&self) -> Bytes {
        self.cap.saturating_sub(self.total())
    }

    /// Relation of the grants to the cap.
    pub fn standing(&self) -> CapRelation {
        match self.total().checked_sub(self.cap) {
            Some(excess) if excess > Bytes::ZERO => CapRelation::Over(excess),
            _ => CapRelation::Within,
        }
    }

    /// Handles a request of `seat` to charge `want`. `unused` returns the unused part of a slot's grant as
    /// read from its credit word; it counts up to the grant.
    pub fn ask(&mut self, seat: Seat, want: Bytes, unused: impl Fn(Seat) -> Bytes) -> CreditReply {
        let spare = |seat: Seat| unused(seat).min(self.granted(seat));
        if matches!(self.standing(), CapRelation::Over(_)) {
            return CreditReply::Exhausted;
        }
        let Some(missing) = want.checked_sub(spare(seat)).filter(|missing| *missing > Bytes::ZERO) else {
            return CreditReply::Enough;
        };
        let free = self.uncommitted();
        if free >= missing {
            self.enter(seat, free);
            return CreditReply::Grant(free);
        }
        let short = missing.saturating_sub(free);
        let mut siblings: Vec<(Seat, Bytes)> =
            self.grants.keys().filter(|other| **other != seat).map(|other| (*other, spare(*other))).collect();
        let available: Bytes = siblings.iter().map(|(_, spare)| *spare).sum();
        if available < short {
            return CreditReply::Exhausted;
        }
        siblings.sort_by_key(|(seat, spare)| (core::cmp::Reverse(*spare), *seat));
        CreditReply::Recall(plan(&siblings, short.max(RECALL_STEP)))
    }

    /// Recalls that bring the sum within the cap, from the slots with the most unused credit first.
    pub fn trim(&self, unused: impl Fn(Seat) -> Bytes) -> Vec<(Seat, Bytes)> {
        let CapRelation::Over(excess) = self.standing() else { return Vec::new() };
        let spare = |(seat, granted): (&Seat, &Bytes)| (*seat, unused(*seat).min(*granted));
        let mut seats: Vec<(Seat, Bytes)> = self.grants.iter().map(spare).collect();
        seats.sort_by_key(|(seat, spare)| (core::cmp::Reverse(*spare), *seat));
        plan(&seats, excess)
    }

    /// Reduces the grant of a slot.
    pub fn give_back(&mut self, seat: Seat, returned: Bytes) {
        let left = self.granted(seat).saturating_sub(returned);
        if left == Bytes::ZERO {
            self.grants.remove(&seat);
        } else {
            self.grants.insert(seat, left);
        }
    }

    /// Reduces the grant to the content of the slot's credit word.
    ///
    /// A process lowers the word by itself while the slice is over its cap. Returns the excess of a word that is higher than
    /// the grant, which is not credited.
    pub fn observe(&mut self, seat: Seat, in_word: Bytes) -> Bytes {
        let granted = self.granted(seat);
        // The common case is equality, and this runs for each slot at each sample.
        if in_word < granted {
            self.give_back(seat, granted.saturating_sub(in_word));
        }
        in_word.saturating_sub(granted)
    }

    /// Releases the grant and charges of a slot whose process ended; returns their sum.
    pub fn release(&mut self, seat: Seat) -> Bytes {
        let beyond = self.beyond.remove(&seat).unwrap_or(Bytes::ZERO);
        self.grants.remove(&seat).unwrap_or(Bytes::ZERO).saturating_add(beyond)
    }

    /// Moves part of a slot's grant to the common charge of shared memory. Returns false, without a change,
    /// if the grant is smaller.
    pub fn hand_over(&mut self, seat: Seat, bytes: Bytes) -> bool {
        let granted = self.granted(seat) >= bytes;
        if granted {
            self.give_back(seat, bytes);
            self.shared = self.shared.saturating_add(bytes);
        }
        granted
    }

    /// Restores a charge for shared memory. May put the slice over its cap.
    pub fn restore_shared(&mut self, bytes: Bytes) {
        self.shared = self.shared.saturating_add(bytes);
    }

    /// Ends a charge for shared memory.
    pub fn release_shared(&mut self, bytes: Bytes) {
        self.shared = self.shared.saturating_sub(bytes);
    }

    /// Charges memory that the driver took for a slot beyond its reserve.
    ///
    /// The charge may put the slice over its cap, since the memory is in use already. It only rises until the slot is
    /// released; returns true if it did.
    ///
    /// It is a common charge, not part of the grant, since the process's own credit word does not contain it.
    pub fn take_beyond(&mut self, seat: Seat, bytes: Bytes) -> bool {
        let news = bytes > self.beyond(seat);
        if news {
            self.beyond.insert(seat, bytes);
        }
        news
    }

    /// Sets the cap. Recalls nothing; see [`GrantLedger::trim`].
    pub fn set_cap(&mut self, cap: Bytes) {
        self.cap = cap;
    }

    /// Ends the charge beyond the reserve, once the driver has released the memory.
    pub fn forget_beyond(&mut self, seat: Seat) {
        self.beyond.remove(&seat);
    }

    /// Restores a grant of an earlier daemon as far as the cap allows.
    ///
    /// It is at least `used`, since that memory is in use. Returns the restored grant.
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

/// Takes up to `wanted` in total, from each slot in turn all that it has.
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
