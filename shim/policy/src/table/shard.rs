//! One shard of the table: an array of entries, linearly probed, which the caller has locked.

use core::sync::atomic::Ordering::Relaxed;

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use super::{ENTRY_WORDS, Entry, FIRST_CAPACITY, Full, Kind, Table};
use crate::lock::{Guard, Lock};

/// Fibonacci hashing: pointers differ in their middle bits, a multiplication carries them to the top.
pub(super) const fn hash(kind: Kind, key: u64) -> u64 {
    (key ^ (kind as u64) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A part of the table with a lock of its own.
#[derive(Clone, Copy)]
pub(super) struct Shard<'a> {
    pub(super) table: Table<'a>,
    pub(super) base: usize,
}

/// Words of a shard's head.
const LOCK: usize = 0;
const START: usize = 1;
const CAPACITY: usize = 2;
const COUNT: usize = 3;

impl<'a> Shard<'a> {
    pub(super) fn lock(self) -> Guard<'a> {
        Lock::at(&self.table.words[self.base + LOCK], self.table.pause).acquire()
    }

    pub(super) fn capacity(self) -> usize {
        self.get(self.base + CAPACITY) as usize
    }

    pub(super) fn position(self, kind: Kind, key: u64) -> Option<(usize, Entry)> {
        let capacity = self.capacity();
        let home = self.home(kind, key);
        (0..capacity)
            .map(|step| (home + step) & (capacity - 1))
            .map_while(|at| self.occupied(at).map(|found| (at, found)))
            .find(|(_, (found, name, _))| (*found, *name) == (kind, key))
            .map(|(at, (_, _, entry))| (at, entry))
    }

    pub(super) fn insert(self, kind: Kind, key: u64, entry: Entry) -> Result<(), Full> {
        let count = self.get(self.base + COUNT) as usize;
        if (count + 1) * 4 > self.capacity() * 3 {
            self.grow()?;
        }
        self.place(kind, key, entry);
        self.set(self.base + COUNT, count as u64 + 1);
        Ok(())
    }

    fn place(self, kind: Kind, key: u64, entry: Entry) {
        let mask = self.capacity() - 1;
        let mut at = self.home(kind, key);
        while self.occupied(at).is_some() {
            at = (at + 1) & mask;
        }
        self.write(at, kind, key, entry);
    }

    /// Closes the gap at `gap` with later entries of the same run.
    pub(super) fn remove(self, mut gap: usize) {
        let mask = self.capacity() - 1;
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let Some((kind, key, entry)) = self.occupied(at) else { break };
            let distance = at.wrapping_sub(self.home(kind, key)) & mask;
            if distance >= at.wrapping_sub(gap) & mask {
                self.write(gap, kind, key, entry);
                gap = at;
            }
        }
        self.set(self.entry(gap) + 1, 0);
        self.set(self.base + COUNT, self.get(self.base + COUNT) - 1);
    }

    fn grow(self) -> Result<(), Full> {
        let (old_start, old_capacity) = (self.get(self.base + START) as usize, self.capacity());
        let capacity = (old_capacity * 2).max(FIRST_CAPACITY);
        let start = self.table.carve(capacity * ENTRY_WORDS)?;
        self.set(self.base + START, start as u64);
        self.set(self.base + CAPACITY, capacity as u64);
        for at in 0..old_capacity {
            if let Some((kind, key, entry)) = self.decode(old_start + at * ENTRY_WORDS) {
                self.place(kind, key, entry);
            }
        }
        Ok(())
    }

    fn home(self, kind: Kind, key: u64) -> usize {
        (hash(kind, key) >> 20) as usize & self.capacity().wrapping_sub(1)
    }

    fn entry(self, at: usize) -> usize {
        self.get(self.base + START) as usize + at * ENTRY_WORDS
    }

    pub(super) fn occupied(self, at: usize) -> Option<(Kind, u64, Entry)> {
        self.decode(self.entry(at))
    }

    fn decode(self, word: usize) -> Option<(Kind, u64, Entry)> {
        let head = self.get(word + 1);
        let kind = *Kind::ALL.get((head & 0xff).checked_sub(1)? as usize)?;
        let entry = Entry {
            device: DeviceSlot::new((head >> 8 & 0xff) as usize)?,
            serial: self.get(word + 2),
            units: Units::new((head >> 32) as u32),
            detail: self.get(word + 3),
            link: self.get(word + 4),
        };
        Some((kind, self.get(word), entry))
    }

    pub(super) fn write(self, at: usize, kind: Kind, key: u64, entry: Entry) {
        let word = self.entry(at);
        let head = kind as u64 | (entry.device.index() as u64) << 8 | u64::from(entry.units.get()) << 32;
        for (offset, value) in [key, head, entry.serial, entry.detail, entry.link].into_iter().enumerate() {
            self.set(word + offset, value);
        }
    }

    fn get(self, word: usize) -> u64 {
        self.table.words[word].load(Relaxed)
    }

    fn set(self, word: usize, value: u64) {
        self.table.words[word].store(value, Relaxed);
    }
}
