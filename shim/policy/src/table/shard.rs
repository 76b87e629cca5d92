//! One shard of the table: an array of entries, linearly probed, which the caller has locked.

use core::sync::atomic::Ordering::Relaxed;

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use super::{ENTRY_WORDS, Entry, FIRST_CAPACITY, Full, Kind, Table};
use crate::lock::{Guard, Lock};

/// Fibonacci hashing: pointers differ in their middle bits, a multiplication carries them to the top.
#[inline(always)]
pub(super) const fn hash(kind: Kind, key: u64) -> u64 {
    hash_word(kind as u64, key)
}

const fn hash_word(kind: u64, key: u64) -> u64 {
    (key ^ kind << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The bits above choose an entry's home; the six topmost chose its shard. Lower ones are worth nothing: device
/// pointers end in 21 zeroes.
const HOME_SHIFT: u32 = 32;

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
const NEWEST: usize = 4;
/// The part of an entry's second word that says its kind; 0 where there is none.
const KIND: u64 = 0xff;

impl<'a> Shard<'a> {
    #[inline(always)]
    pub(super) fn lock(self) -> Guard<'a> {
        self.door().acquire()
    }

    #[inline(always)]
    pub(super) fn door(self) -> Lock<'a> {
        Lock::at(&self.table.words[self.base + LOCK], self.table.pause)
    }

    /// The number of the newest entry that has one of the shard's own.
    #[inline(always)]
    pub(super) fn newest(self) -> u64 {
        self.get(self.base + NEWEST)
    }

    /// Another, greater than any before.
    #[inline(always)]
    pub(super) fn number(self) -> u64 {
        let number = self.newest() + 1;
        self.set(self.base + NEWEST, number);
        number
    }

    /// The serial of an entry at the place where it would be first, for who has not locked the shard: the answer
    /// may be anything, but nothing breaks.
    #[inline(always)]
    pub(super) fn glimpse(self, kind: Kind, key: u64) -> Option<u64> {
        let (start, capacity) = (self.get(self.base + START) as usize, self.capacity());
        let mask = capacity.checked_sub(1)?;
        let word = start.checked_add((self.home(kind, key) & mask).checked_mul(ENTRY_WORDS)?)?;
        let words = self.table.words.get(word..word.checked_add(ENTRY_WORDS)?)?;
        let (name, head) = (words[0].load(Relaxed), words[1].load(Relaxed));
        (name == key && head & KIND == kind as u64).then(|| words[2].load(Relaxed))
    }

    #[inline(always)]
    pub(super) fn capacity(self) -> usize {
        self.get(self.base + CAPACITY) as usize
    }

    #[inline(always)]
    pub(super) fn position(self, kind: Kind, key: u64) -> Option<(usize, Entry)> {
        let (start, capacity) = (self.get(self.base + START) as usize, self.capacity());
        let home = self.home(kind, key);
        for step in 0..capacity {
            let at = (home + step) & (capacity - 1);
            let word = start + at * ENTRY_WORDS;
            match self.get(word + 1) & KIND {
                0 => break,
                // Most steps end here: only what is looked for is worth being decoded.
                found if found == kind as u64 && self.get(word) == key => {
                    return self.decode(word).map(|(_, _, entry)| (at, entry));
                }
                _ => {}
            }
        }
        None
    }

    #[inline(always)]
    pub(super) fn insert(self, kind: Kind, key: u64, entry: Entry) -> Result<(), Full> {
        let count = self.get(self.base + COUNT) as usize;
        if (count + 1) * 2 > self.capacity() {
            self.grow()?;
        }
        self.place(kind, key, entry);
        self.set(self.base + COUNT, count as u64 + 1);
        Ok(())
    }

    #[inline(always)]
    fn place(self, kind: Kind, key: u64, entry: Entry) {
        let mask = self.capacity() - 1;
        let mut at = self.home(kind, key);
        while self.get(self.entry(at) + 1) & KIND != 0 {
            at = (at + 1) & mask;
        }
        self.write(at, kind, key, entry);
    }

    /// Closes the gap at `gap` with later entries of the same run.
    #[inline(always)]
    pub(super) fn remove(self, mut gap: usize) {
        let mask = self.capacity() - 1;
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let word = self.entry(at);
            let (key, head) = (self.get(word), self.get(word + 1));
            if head & KIND == 0 {
                break;
            }
            let distance = at.wrapping_sub((hash_word(head & KIND, key) >> HOME_SHIFT) as usize) & mask;
            if distance >= at.wrapping_sub(gap) & mask {
                let to = self.entry(gap);
                (0..ENTRY_WORDS).for_each(|offset| self.set(to + offset, self.get(word + offset)));
                gap = at;
            }
        }
        self.set(self.entry(gap) + 1, 0);
        self.set(self.base + COUNT, self.get(self.base + COUNT) - 1);
    }

    #[cold]
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

    #[inline(always)]
    fn home(self, kind: Kind, key: u64) -> usize {
        (hash(kind, key) >> HOME_SHIFT) as usize & self.capacity().wrapping_sub(1)
    }

    #[inline(always)]
    fn entry(self, at: usize) -> usize {
        self.get(self.base + START) as usize + at * ENTRY_WORDS
    }

    #[inline(always)]
    pub(super) fn occupied(self, at: usize) -> Option<(Kind, u64, Entry)> {
        self.decode(self.entry(at))
    }

    #[inline(always)]
    fn decode(self, word: usize) -> Option<(Kind, u64, Entry)> {
        let head = self.get(word + 1);
        let kind = *Kind::ALL.get((head & KIND).checked_sub(1)? as usize)?;
        let entry = Entry {
            device: DeviceSlot::new((head >> 8 & 0xff) as usize)?,
            serial: self.get(word + 2),
            units: Units::new((head >> 32) as u32),
            detail: self.get(word + 3),
            link: self.get(word + 4),
        };
        Some((kind, self.get(word), entry))
    }

    #[inline(always)]
    pub(super) fn write(self, at: usize, kind: Kind, key: u64, entry: Entry) {
        let word = self.entry(at);
        let head = kind as u64 | (entry.device.index() as u64) << 8 | u64::from(entry.units.get()) << 32;
        for (offset, value) in [key, head, entry.serial, entry.detail, entry.link].into_iter().enumerate() {
            self.set(word + offset, value);
        }
    }

    #[inline(always)]
    fn get(self, word: usize) -> u64 {
        self.table.words[word].load(Relaxed)
    }

    #[inline(always)]
    fn set(self, word: usize, value: u64) {
        self.table.words[word].store(value, Relaxed);
    }
}
