//! Memory that several processes of a slice hold: who holds what, so that it is charged once and until the last
//! holder is gone.
//!
//! Being charged for something shared is nobody's grant: the [`Ledger`](crate::ledger::Ledger) keeps it beside
//! the seats. A holder is a seat, counted once however often it opened the memory.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::slice::Seat;
use crate::units::Bytes;

/// Index of a GPU within its slice.
pub type DeviceIndex = u8;

/// What was exported, where it is and who holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The GPU, as the slice counts.
    pub device: DeviceIndex,
    /// What the slice is charged for it.
    pub bytes: Bytes,
    holders: BTreeSet<Seat>,
}

/// Memory that nobody holds any more: its charge ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// The GPU, as the slice counts.
    pub device: DeviceIndex,
    /// What the slice was charged for it.
    pub bytes: Bytes,
}

/// A name and which of those that had it: an exporter may let go of memory and give its name to another while
/// somebody still holds the first.
type Id = (u64, u64);

/// All that is shared in one slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    shares: BTreeMap<Id, Shared>,
    held: BTreeMap<Seat, BTreeSet<Id>>,
    /// Holders of all shares together.
    holders: usize,
    serial: u64,
}

/// What an export comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exported {
    /// It is new: its charge moves from the exporter to the slice.
    New,
    /// The exporter said so before; nothing moves.
    Before,
}

impl Sharing {
    /// What exporting `key` would come to.
    pub fn exported_by(&self, seat: Seat, key: u64) -> Exported {
        match self.held_by(seat, key) {
            Some(_) => Exported::Before,
            None => Exported::New,
        }
    }

    /// Enters what `seat` exports and is the first to hold.
    pub fn export(&mut self, seat: Seat, key: u64, device: DeviceIndex, bytes: Bytes) {
        self.serial += 1;
        let id = (key, self.serial);
        self.shares.insert(id, Shared { device, bytes, holders: BTreeSet::new() });
        self.hold(seat, id);
    }

    /// `seat` opens what was exported as `key`, the last one of that name; says whether there is any.
    pub fn import(&mut self, seat: Seat, key: u64) -> bool {
        let newest = self.named(key).next_back();
        if let Some(id) = newest {
            self.hold(seat, id);
        }
        newest.is_some()
    }

    /// `seat` holds `key` no more.
    pub fn drop_one(&mut self, seat: Seat, key: u64) -> Option<Released> {
        let id = self.held_by(seat, key)?;
        self.let_go(seat, id)
    }

    /// `seat` holds nothing any more: its process has ended, or become another program.
    pub fn leave(&mut self, seat: Seat) -> Vec<Released> {
        let held: Vec<Id> = self.held.get(&seat).into_iter().flatten().copied().collect();
        held.into_iter().filter_map(|id| self.let_go(seat, id)).collect()
    }

    /// What is shared, with its name and its holders.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Shared)> {
        self.shares.iter().map(|((key, _), shared)| (*key, shared))
    }

    /// Number of shares.
    pub fn count(&self) -> usize {
        self.shares.len()
    }

    /// Number of holders of all shares together.
    pub const fn count_holders(&self) -> usize {
        self.holders
    }

    /// Whether anything of that name is shared.
    pub fn is_known(&self, key: u64) -> bool {
        self.named(key).next().is_some()
    }

    /// Everybody who holds anything that is shared.
    pub fn seats(&self) -> impl Iterator<Item = Seat> + '_ {
        self.held.keys().copied()
    }

    /// Whether `seat` holds anything that is shared.
    pub fn holds(&self, seat: Seat) -> bool {
        self.held.contains_key(&seat)
    }

    /// What the slice is charged on a device for what is shared.
    pub fn total(&self, device: DeviceIndex) -> Bytes {
        self.shares.values().filter(|shared| shared.device == device).map(|shared| shared.bytes).sum()
    }

    fn named(&self, key: u64) -> impl DoubleEndedIterator<Item = Id> + '_ {
        self.shares.range((key, 0)..=(key, u64::MAX)).map(|(id, _)| *id)
    }

    /// The first of that name that the seat holds.
    fn held_by(&self, seat: Seat, key: u64) -> Option<Id> {
        self.held.get(&seat)?.range((key, 0)..=(key, u64::MAX)).next().copied()
    }

    fn hold(&mut self, seat: Seat, id: Id) {
        if let Some(shared) = self.shares.get_mut(&id) {
            self.holders += usize::from(shared.holders.insert(seat));
            self.held.entry(seat).or_default().insert(id);
        }
    }

    fn let_go(&mut self, seat: Seat, id: Id) -> Option<Released> {
        if let Some(held) = self.held.get_mut(&seat) {
            held.remove(&id);
            if held.is_empty() {
                self.held.remove(&seat);
            }
        }
        let shared = self.shares.get_mut(&id)?;
        self.holders -= usize::from(shared.holders.remove(&seat));
        if !shared.holders.is_empty() {
            return None;
        }
        let shared = self.shares.remove(&id)?;
        Some(Released { device: shared.device, bytes: shared.bytes })
    }
}

impl Shared {
    /// Who holds it.
    pub fn holders(&self) -> impl Iterator<Item = Seat> + '_ {
        self.holders.iter().copied()
    }
}

#[cfg(test)]
#[path = "sharing_tests.rs"]
mod tests;
