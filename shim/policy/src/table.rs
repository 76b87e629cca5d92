//! The table of the ledger's entries: sharded, open addressing, in words of the caller.
//!
//! Linear probing with backward shift, so without tombstones and slow decay. A shard grows by itself when it is half
//! full, so that runs stay short and a look-up takes about as long among ten thousand as among ten. Space that a
//! shard leaves behind is not used again: over all growth that is at most as much as is in use.

// Explicit paths, because the model of the protocol compiles this file from another folder.
#[path = "table/shard.rs"]
mod shard;

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use crate::lock::Pause;
use shard::{Place, Shard, read, write};

const SHARDS: usize = 64;
const SHARD_WORDS: usize = 8;
const ENTRY_WORDS: usize = 5;
const FIRST_CAPACITY: usize = 32;

/// Word with the number of entries given to shards.
const NEXT_FREE: usize = 0;
const SERIAL: usize = 1;
/// Words in front of the shards' heads, which precede the entries.
const COMMON: usize = 8;

/// Kind of object that an entry describes. Keys of different kinds never collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Memory, by its device pointer.
    Memory = 1,
    /// Memory out of a pool, by its device pointer.
    Streamed,
    /// A block of addresses with small allocations in it.
    Block,
    /// An array or a mipmapped array.
    Array,
    /// Physical memory, by its handle.
    Physical,
    /// A mapping of physical memory, by its address.
    Mapping,
    /// A context, by its handle.
    Context,
    /// A memory pool on one device, by its handle.
    Pool,
    /// A memory pool in host memory, or one whose memory any device of the slice may hold.
    ForeignPool,
    /// Memory that several processes hold, by its share key.
    Shared,
    /// The share key of an exported object of this process.
    Alias,
    /// Memory of another process, by the pointer at which it is open.
    Opened,
    /// A module or library, by its handle.
    Module,
    /// Use of the code that a context's reserve covers, by device.
    Allowance,
    /// A limit of a context that the program raised.
    Limit,
    /// A graph ready to run, with the size of its memory nodes on one device.
    Graph,
    /// Charge for all graphs on a device.
    GraphMemory,
    /// A place in a multicast object, an endpoint or an array with memory bound to it.
    Binding,
    /// A device pointer that was freed in the order of a stream, which may not have reached the free.
    Leaving,
    /// A mark in a stream, by the work in front of it.
    Mark,
    /// A pool that was destroyed while a pointer of it was in use.
    GonePool,
    /// A context that exists or is being made, by its place in the list of contexts.
    Present,
    /// A library that is loaded or being loaded, by its place in the list of libraries.
    Library,
    /// The place of a library in the list, by its handle.
    Loaded,
    /// Charge for a library in one context.
    Copy,
}

impl Kind {
    const ALL: [Self; 25] = [
        Self::Memory,
        Self::Streamed,
        Self::Block,
        Self::Array,
        Self::Physical,
        Self::Mapping,
        Self::Context,
        Self::Pool,
        Self::ForeignPool,
        Self::Shared,
        Self::Alias,
        Self::Opened,
        Self::Module,
        Self::Allowance,
        Self::Limit,
        Self::Graph,
        Self::GraphMemory,
        Self::Binding,
        Self::Leaving,
        Self::Mark,
        Self::GonePool,
        Self::Present,
        Self::Library,
        Self::Loaded,
        Self::Copy,
    ];
}

/// Value of an entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Device that holds its memory.
    pub device: DeviceSlot,
    /// Number of its insertion: unique, so that it differs from a later object's with the same address.
    pub serial: u64,
    /// Charge for it, in units.
    pub units: Units,
    /// Meaning by [`Kind`], such as a size.
    pub detail: u64,
    /// Meaning by [`Kind`], such as a context.
    pub link: u64,
}

/// Error of a table without room for another entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Makes words usable that a table is about to grow into; returns true if they are.
pub type Open = fn(&[AtomicU64]) -> bool;

/// The table, over words of the caller.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    common: &'a [AtomicU64; COMMON],
    shards: &'a [[AtomicU64; SHARD_WORDS]; SHARDS],
    heap: &'a [[AtomicU64; ENTRY_WORDS]],
    pause: Pause,
    open: Option<Open>,
}

impl<'a> Table<'a> {
    /// Fewest words that a table needs.
    pub const LEAST_WORDS: usize = COMMON + SHARDS * (SHARD_WORDS + FIRST_CAPACITY * ENTRY_WORDS);

    /// The table in `words`, which were zero before their first use; `None` if they are too few.
    #[inline(always)]
    pub fn over(words: &'a [AtomicU64], pause: Pause) -> Option<Self> {
        let (common, rest) = words.split_first_chunk()?;
        let (heads, heap) = rest.split_at_checked(SHARDS * SHARD_WORDS)?;
        let shards = heads.as_chunks().0.first_chunk()?;
        let heap = heap.as_chunks().0;
        (words.len() >= Self::LEAST_WORDS).then_some(Self { common, shards, heap, pause, open: None })
    }

    /// The table over words that have to be opened before it grows into them.
    pub const fn with_growth(self, open: Open) -> Self {
        Self { open: Some(open), ..self }
    }

    /// A number greater than any given before.
    pub fn next_serial(&self) -> u64 {
        self.common[SERIAL].fetch_add(1, Relaxed) + 1
    }

    /// Greatest number given so far: entries from now on have a greater one.
    pub fn stamp(&self) -> u64 {
        self.common[SERIAL].load(Relaxed)
    }

    /// Serial number of `key`'s entry; mostly without a lock, as it is read often and changes rarely.
    #[inline(always)]
    pub fn serial(&self, kind: Kind, key: u64) -> Option<u64> {
        let shard = self.shard(kind, key);
        if let Some(glance) = shard.door().glance()
            && let Some(serial) = shard.glimpse(kind, key)
            && glance.was_undisturbed()
        {
            return Some(serial);
        }
        // Not in its home place, absent, or being written by another thread.
        self.find(kind, key).map(|entry| entry.serial)
    }

    /// The entry of `key`, if there is one.
    #[cold]
    pub fn find(&self, kind: Kind, key: u64) -> Option<Entry> {
        let shard = self.shard(kind, key);
        let _guard = shard.lock();
        shard.seek(kind, key).entry()
    }

    /// Replaces the entry of `key` by the result of `next`, in one step; returns the one before.
    ///
    /// `next` must be quick and must not call the table.
    #[inline(always)]
    pub fn change(
        &self,
        kind: Kind,
        key: u64,
        next: impl FnOnce(Option<Entry>) -> Option<Entry>,
    ) -> Result<Option<Entry>, Full> {
        let shard = self.shard(kind, key);
        let _guard = shard.lock();
        let place = shard.seek(kind, key);
        let before = place.entry();
        match (place, next(before)) {
            (Place::Taken(found), Some(entry)) => write(found.cell, kind, key, entry),
            (Place::Taken(found), None) => shard.remove(found),
            (Place::Vacant(cell), Some(entry)) => shard.insert(cell, kind, key, entry)?,
            (Place::Vacant(_), None) => {}
        }
        Ok(before)
    }

    /// Inserts an entry under a serial of its own kind; returns the entry before.
    ///
    /// That serial may be compared with [`Table::moment`] only. It costs less than [`Table::next_serial`], which all
    /// threads share.
    #[inline(always)]
    pub fn add(&self, kind: Kind, key: u64, entry: Entry) -> Result<Option<Entry>, Full> {
        let shard = self.shard(kind, key);
        let _guard = shard.lock();
        let entry = Entry { serial: shard.number(), ..entry };
        match shard.seek(kind, key) {
            Place::Taken(found) => {
                let before = read(found.cell);
                write(found.cell, kind, key, entry);
                Ok(before)
            }
            Place::Vacant(cell) => shard.insert(cell, kind, key, entry).map(|()| None),
        }
    }

    /// A serial below that of every later [`Table::add`] under `key`.
    #[inline(always)]
    pub fn moment(&self, kind: Kind, key: u64) -> u64 {
        self.shard(kind, key).newest()
    }

    /// Inserts an entry; returns the one before under the same key, whose object has therefore ended.
    pub fn put(&self, kind: Kind, key: u64, entry: Entry) -> Result<Option<Entry>, Full> {
        self.change(kind, key, |_| Some(entry))
    }

    /// Removes `key` if it was entered no later than `stamp`.
    #[inline(always)]
    pub fn take(&self, kind: Kind, key: u64, stamp: u64) -> Option<Entry> {
        let shard = self.shard(kind, key);
        let _guard = shard.lock();
        let Place::Taken(found) = shard.seek(kind, key) else { return None };
        let taken = read(found.cell).filter(|entry| entry.serial <= stamp);
        if taken.is_some() {
            shard.remove(found);
        }
        taken
    }

    /// Removes one entry after `cursor` that `wanted` accepts; call it until it returns `None`.
    pub fn take_next(
        &self,
        cursor: &mut Cursor,
        wanted: impl Fn(Kind, &Entry) -> bool,
    ) -> Option<(Kind, u64, Entry)> {
        self.walk(cursor, wanted, true)
    }

    /// The next entry after `cursor` that `wanted` accepts.
    pub fn next(
        &self,
        cursor: &mut Cursor,
        wanted: impl Fn(Kind, &Entry) -> bool,
    ) -> Option<(Kind, u64, Entry)> {
        self.walk(cursor, wanted, false)
    }

    fn walk(
        &self,
        cursor: &mut Cursor,
        wanted: impl Fn(Kind, &Entry) -> bool,
        remove: bool,
    ) -> Option<(Kind, u64, Entry)> {
        while cursor.shard < SHARDS {
            let shard = Shard::numbered(self, cursor.shard);
            // An empty shard is not worth a lock: an entry that is inserted meanwhile may as well come later.
            let guard = (shard.capacity() > 0).then(|| shard.lock());
            while guard.is_some() && cursor.at < shard.capacity() {
                let at = cursor.at;
                if let Some((found, (kind, key, entry))) =
                    shard.occupied(at).filter(|(_, (kind, _, entry))| wanted(*kind, entry))
                {
                    if remove {
                        shard.remove(found);
                    } else {
                        cursor.at += 1;
                    }
                    return Some((kind, key, entry));
                }
                cursor.at += 1;
            }
            *cursor = Cursor { shard: cursor.shard + 1, at: 0 };
        }
        None
    }

    #[inline(always)]
    fn shard(&self, kind: Kind, key: u64) -> Shard<'_> {
        Shard::of(self, kind, key)
    }

    /// Takes zeroed room for `count` entries from the part that was never used.
    fn carve(&self, count: usize) -> Result<usize, Full> {
        let claim = |used: u64| {
            let after = (used as usize).checked_add(count)?;
            (after <= self.heap.len()).then_some(after as u64)
        };
        let used = self.common[NEXT_FREE].fetch_update(Relaxed, Relaxed, claim).map_err(|_| Full)?;
        let used = used as usize;
        let is_open = self.open.is_none_or(|open| {
            self.heap.get(used..used + count).is_some_and(|room| open(room.as_flattened()))
        });
        if is_open { Ok(used) } else { Err(Full) }
    }
}

/// Position of an iteration over the table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    shard: usize,
    at: usize,
}
