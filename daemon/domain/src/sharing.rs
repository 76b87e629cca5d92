//! Memory shared by several processes of a slice: charged once, until the last holder is gone.
//!
//! The ledger keeps the charge apart from the grants. A holder is a slot, counted
//! once however often it opened the memory.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::slice::Seat;
use crate::units::Bytes;

/// Index of a GPU within its slice.
pub type DeviceIndex = u8;

/// Exported memory with its holders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    /// Index of the GPU in the slice.
    pub device: DeviceIndex,
    /// Charge to the slice.
    pub bytes: Bytes,
    holders: BTreeSet<Seat>,
}

/// Memory without holders, whose charge ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// Index of the GPU in the slice.
    pub device: DeviceIndex,
    /// Former charge to the slice.
    pub bytes: Bytes,
}

/// Key and serial number.
///
/// An exporter may free memory and reuse its key while other slots hold the first.
type Id = (u64, u64);

/// All shared memory of one slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    shares: BTreeMap<Id, SharedMemory>,
    held: BTreeMap<Seat, BTreeSet<Id>>,
    /// Number of holders of all shares together.
    holders: usize,
    serial: u64,
}

/// Effect of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exported {
    /// The memory is new: its charge moves from the exporter to the slice.
    New,
    /// The slot has exported or opened this memory already.
    Before,
}

impl Sharing {
    /// The effect that exporting `key` would have.
    pub fn exported_by(&self, seat: Seat, key: u64) -> Exported {
        match self.held_by(seat, key) {
            Some(_) => Exported::Before,
            None => Exported::New,
        }
    }

    /// Adds memory that `seat` exports, as its first holder.
    pub fn export(&mut self, seat: Seat, key: u64, device: DeviceIndex, bytes: Bytes) {
        self.serial += 1;
        let id = (key, self.serial);
        self.shares.insert(id, SharedMemory { device, bytes, holders: BTreeSet::new() });
        self.hold(seat, id);
    }

    /// Makes `seat` a holder of the latest export of `key`; false if there is none.
    pub fn import(&mut self, seat: Seat, key: u64) -> bool {
        let newest = self.named(key).next_back();
        if let Some(id) = newest {
            self.hold(seat, id);
        }
        newest.is_some()
    }

    /// Removes `seat` from the holders of `key`.
    pub fn drop_one(&mut self, seat: Seat, key: u64) -> Option<Released> {
        let id = self.held_by(seat, key)?;
        self.let_go(seat, id)
    }

    /// Removes `seat` from all shares, once its process has ended or executed another program.
    pub fn leave(&mut self, seat: Seat) -> Vec<Released> {
        let held: Vec<Id> = self.held.get(&seat).into_iter().flatten().copied().collect();
        held.into_iter().filter_map(|id| self.let_go(seat, id)).collect()
    }

    /// All shares with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &SharedMemory)> {
        self.shares.iter().map(|((key, _), shared)| (*key, shared))
    }

    /// Number of shared allocations.
    pub fn count(&self) -> usize {
        self.shares.len()
    }

    /// Number of holders of all shares together.
    pub const fn count_holders(&self) -> usize {
        self.holders
    }

    /// Tests if anything is shared under this key.
    pub fn is_known(&self, key: u64) -> bool {
        self.named(key).next().is_some()
    }

    /// The slots that hold a share.
    pub fn seats(&self) -> impl Iterator<Item = Seat> + '_ {
        self.held.keys().copied()
    }

    /// Tests if `seat` holds a share.
    pub fn holds(&self, seat: Seat) -> bool {
        self.held.contains_key(&seat)
    }

    /// Charge to the slice for shared memory on a device.
    pub fn total(&self, device: DeviceIndex) -> Bytes {
        self.shares.values().filter(|shared| shared.device == device).map(|shared| shared.bytes).sum()
    }

    fn named(&self, key: u64) -> impl DoubleEndedIterator<Item = Id> + '_ {
        self.shares.range((key, 0)..=(key, u64::MAX)).map(|(id, _)| *id)
    }

    /// The earliest share of this key that the slot holds.
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

impl SharedMemory {
    /// The slots that hold the memory.
    pub fn holders(&self) -> impl Iterator<Item = Seat> + '_ {
        self.holders.iter().copied()
    }
}

#[cfg(test)]
#[path = "sharing_tests.rs"]
mod tests;
