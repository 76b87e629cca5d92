//! A table of what the process holds: sharded, open addressing, in words that somebody else provides.
//!
//! Linear probing with backward shift, so no tombstones and no slow decay; a shard grows by itself when it is
//! half full, so that runs stay short and a look-up takes about as long among ten thousand as among ten. Space
//! that a shard leaves behind is not used again: over all growth that is at most as much as is in use.

// Named, because the model of the protocol borrows this file and looks for it from elsewhere.
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

/// How many entries have been given to shards.
const NEXT_FREE: usize = 0;
const SERIAL: usize = 1;
/// Words in front of the shards' heads, which are in front of the entries.
const COMMON: usize = 8;

/// What an entry is about. Keys of different kinds never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A device pointer.
    Memory = 1,
    /// A device pointer that came out of a pool.
    Streamed,
    /// A block of addresses with small allocations in it.
    Block,
    /// An array or a mipmapped array.
    Array,
    /// A handle of physical memory.
    Physical,
    /// An address where physical memory is mapped.
    Mapping,
    /// A context.
    Context,
    /// A memory pool.
    Pool,
    /// A memory pool in host memory, or one whose memory any device of the slice may hold.
    ForeignPool,
    /// Memory that several processes hold, by the key it is known by among them.
    Shared,
    /// The key by which others know something of ours.
    Alias,
    /// A pointer at which memory of others is open.
    Opened,
    /// A module or library.
    Module,
    /// What is in use of the code that a context's reserve covers, by device.
    Allowance,
    /// A limit of a context that the program raised.
    Limit,
    /// A graph ready to run, with what its memory nodes take on one device.
    Graph,
    /// What all graphs are charged on a device.
    GraphMemory,
    /// A place in a multicast object, an endpoint or an array with memory bound to it.
    Binding,
    /// A device pointer that was freed in the order of a stream, which may not have come to it.
    Leaving,
    /// A mark in a stream, by what is over when it is passed.
    Mark,
    /// A pool that was destroyed while something of it was in use.
    GonePool,
    /// A context that is there or being made, by its place in the list of contexts.
    Present,
    /// A library that is loaded or being loaded, by its place in the list of libraries.
    Library,
    /// The handle of a library, by which its place in the list is found.
    Loaded,
    /// What a library takes in one context.
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

/// What is known of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where its memory is.
    pub device: DeviceSlot,
    /// When it was entered: unique, so that a thing is told from a later one with the same address.
    pub serial: u64,
    /// What is charged for it.
    pub units: Units,
    /// Meaning by kind.
    pub detail: u64,
    /// Meaning by kind.
    pub link: u64,
}

/// No room for another entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Makes words usable that a table is about to grow into; says whether they are.
pub type Open = fn(&[AtomicU64]) -> bool;

/// The table.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    common: &'a [AtomicU64; COMMON],
    shards: &'a [[AtomicU64; SHARD_WORDS]; SHARDS],
    heap: &'a [[AtomicU64; ENTRY_WORDS]],
    pause: Pause,
    open: Option<Open>,
}

impl<'a> Table<'a> {
    /// The fewest words a table can live in.
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

    /// The same over words that have to be opened before the table grows into them.
    pub const fn with_growth(self, open: Open) -> Self {
        Self { open: Some(open), ..self }
    }

    /// A number greater than any given before.
    pub fn next_serial(&self) -> u64 {
        self.common[SERIAL].fetch_add(1, Relaxed) + 1
    }

    /// The greatest number given so far: what is entered from now on has a greater one.
    pub fn stamp(&self) -> u64 {
        self.common[SERIAL].load(Relaxed)
    }

    /// The serial of what is known of `key`; mostly without a lock, for what is asked often and changes seldom.
    #[inline(always)]
    pub fn serial(&self, kind: Kind, key: u64) -> Option<u64> {
        let shard = self.shard(kind, key);
        if let Some(glance) = shard.door().glance()
            && let Some(serial) = shard.glimpse(kind, key)
            && glance.was_undisturbed()
        {
            return Some(serial);
        }
        // Not where it would be first, or not at all, or another thread is at it.
        self.find(kind, key).map(|entry| entry.serial)
    }

    /// What is known of `key`.
    #[cold]
    pub fn find(&self, kind: Kind, key: u64) -> Option<Entry> {
        let shard = self.shard(kind, key);
        let _guard = shard.lock();
        shard.seek(kind, key).entry()
    }

    /// Replaces what is known of `key` by what `next` makes of it, in one step; gives what was there before.
    /// `next` must be quick and must not come back to the table.
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

    /// Enters something new under a serial of its own kind, to be compared with [`Table::moment`] and nothing
    /// else: it costs less than [`Table::next_serial`], which all threads share. Gives what was there before.
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

    /// What is [added](Table::add) under `key` from now on has a greater serial.
    #[inline(always)]
    pub fn moment(&self, kind: Kind, key: u64) -> u64 {
        self.shard(kind, key).newest()
    }

    /// Enters something new; gives what was there under the same key, which by that is known to be gone.
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

    /// Removes one entry after `cursor` that `wanted` picks; call it until it gives nothing.
    pub fn take_next(
        &self,
        cursor: &mut Cursor,
        wanted: impl Fn(Kind, &Entry) -> bool,
    ) -> Option<(Kind, u64, Entry)> {
        self.walk(cursor, wanted, true)
    }

    /// The next entry after `cursor` that `wanted` picks.
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
            // An empty shard is not worth a lock: what enters it during the walk may as well come after.
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

    /// Takes room for `count` entries, zero, out of what was never used.
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

/// A place in a walk through the table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    shard: usize,
    at: usize,
}
