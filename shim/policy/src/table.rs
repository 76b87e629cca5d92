//! The table of the ledger's entries: sharded, open addressing, in words of the caller.
//!
//! Linear probing with backward shift, so without tombstones and slow decay. A shard grows by itself when it is half
//! full, so that runs stay short and a look-up takes about as long among ten thousand as among ten. Space that a
//! shard leaves behind is not used again: over all growth that is at most as much as is in use.

// Explicit paths, because the model of the protocol compiles this file from another folder.
#[path = "table/entry.rs"]
mod entry;
#[path = "table/room.rs"]
mod room;
#[path = "table/shard.rs"]
mod shard;

use room::SHARDS;
use shard::{Place, Shard, read, write};

use crate::lock::Guard;

pub use entry::{EntryKind, Full, TableEntry};
pub use room::{EntryTable, Open};

impl EntryTable<'_> {
    /// Serial number of `key`'s entry; mostly without a lock, as it is read often and changes rarely.
    #[inline(always)]
    pub fn serial(&self, kind: EntryKind, key: u64) -> Option<u64> {
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
    pub fn find(&self, kind: EntryKind, key: u64) -> Option<TableEntry> {
        let shard = self.shard(kind, key);
        let _guard = shard.lock();
        shard.seek(kind, key).entry()
    }

    /// Replaces the entry of `key` by the result of `next`, in one step; returns the one before.
    ///
    /// `next` must be quick and must not call the table.
    #[inline]
    pub fn change(
        &self,
        kind: EntryKind,
        key: u64,
        next: impl FnOnce(Option<TableEntry>) -> Option<TableEntry>,
    ) -> Result<Option<TableEntry>, Full> {
        let held = self.hold(kind, key);
        let before = held.place.entry();
        held.replace(next(before))?;
        Ok(before)
    }

    /// Replaces the entry of `key`, if there is one, by the result of `next` likewise.
    #[inline]
    pub fn alter(
        &self,
        kind: EntryKind,
        key: u64,
        next: impl FnOnce(TableEntry) -> TableEntry,
    ) -> Option<TableEntry> {
        self.change(kind, key, |entry| entry.map(next)).unwrap_or(None)
    }

    #[inline(never)]
    fn hold(&self, kind: EntryKind, key: u64) -> Held<'_> {
        let shard = self.shard(kind, key);
        let guard = shard.lock();
        Held { place: shard.seek(kind, key), shard, kind, key, _guard: guard }
    }

    /// Inserts an entry under a serial of its own kind; returns the entry before.
    ///
    /// That serial may be compared with [`EntryTable::moment`] only. It costs less than [`EntryTable::next_serial`], which all
    /// threads share.
    #[inline(always)]
    pub fn add(&self, kind: EntryKind, key: u64, entry: TableEntry) -> Result<Option<TableEntry>, Full> {
        let shard = self.shard(kind, key);
        let _guard = shard.lock();
        let entry = TableEntry { serial: shard.number(), ..entry };
        match shard.seek(kind, key) {
            Place::Taken(found) => {
                let before = read(found.cell);
                write(found.cell, kind, key, entry);
                Ok(before)
            }
            Place::Vacant(cell) => shard.insert(cell, kind, key, entry).map(|()| None),
        }
    }

    /// A serial below that of every later [`EntryTable::add`] under `key`.
    #[inline(always)]
    pub fn moment(&self, kind: EntryKind, key: u64) -> u64 {
        self.shard(kind, key).newest()
    }

    /// Inserts an entry; returns the one before under the same key, whose object has therefore ended.
    pub fn put(&self, kind: EntryKind, key: u64, entry: TableEntry) -> Result<Option<TableEntry>, Full> {
        self.change(kind, key, |_| Some(entry))
    }

    /// Removes `key` if it was entered no later than `stamp`.
    #[inline(never)]
    pub fn take(&self, kind: EntryKind, key: u64, stamp: u64) -> Option<TableEntry> {
        self.take_quickly(kind, key, stamp)
    }

    /// As [`EntryTable::take`], compiled into its caller.
    #[inline(always)]
    pub fn take_quickly(&self, kind: EntryKind, key: u64, stamp: u64) -> Option<TableEntry> {
        let shard = self.shard(kind, key);
        let _guard = shard.lock();
        let Place::Taken(found) = shard.seek(kind, key) else { return None };
        let taken = read(found.cell).filter(|entry| entry.serial <= stamp);
        if taken.is_some() {
            shard.remove(found);
        }
        taken
    }

    /// Removes the entries of these kinds that `wanted` accepts, one at each step.
    pub fn drain(
        &self,
        kinds: &'static [EntryKind],
        wanted: impl Fn(&TableEntry) -> bool,
    ) -> impl Iterator<Item = (EntryKind, u64, TableEntry)> {
        let mut cursor = Cursor::default();
        core::iter::from_fn(move || self.step(&mut cursor, kinds, &wanted, true))
    }

    /// Entries of these kinds that `wanted` accepts. The table may change between two steps.
    pub fn entries(
        &self,
        kinds: &'static [EntryKind],
        wanted: impl Fn(&TableEntry) -> bool,
    ) -> impl Iterator<Item = (EntryKind, u64, TableEntry)> {
        let mut cursor = Cursor::default();
        core::iter::from_fn(move || self.step(&mut cursor, kinds, &wanted, false))
    }

    fn step(
        &self,
        cursor: &mut Cursor,
        kinds: &[EntryKind],
        wanted: impl Fn(&TableEntry) -> bool,
        remove: bool,
    ) -> Option<(EntryKind, u64, TableEntry)> {
        while cursor.shard < SHARDS {
            let shard = Shard::numbered(self, cursor.shard);
            // An empty shard is not worth a lock: an entry that is inserted meanwhile may as well come later.
            let guard = (shard.capacity() > 0).then(|| shard.lock());
            while guard.is_some() && cursor.at < shard.capacity() {
                let at = cursor.at;
                if let Some((found, (kind, key, entry))) = shard.occupied(at)
                    && kinds.contains(&kind)
                    && wanted(&entry)
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
    fn shard(&self, kind: EntryKind, key: u64) -> Shard<'_> {
        Shard::of(self, kind, key)
    }
}

/// The place of a key, whose shard is locked.
struct Held<'a> {
    place: Place<'a>,
    shard: Shard<'a>,
    kind: EntryKind,
    key: u64,
    _guard: Guard<'a>,
}

impl Held<'_> {
    /// Makes `next` the entry of the key, or leaves it without one.
    #[inline(never)]
    fn replace(self, next: Option<TableEntry>) -> Result<(), Full> {
        let Self { place, shard, kind, key, .. } = self;
        match (place, next) {
            (Place::Taken(found), Some(entry)) => write(found.cell, kind, key, entry),
            (Place::Taken(found), None) => shard.remove(found),
            (Place::Vacant(cell), Some(entry)) => shard.insert(cell, kind, key, entry)?,
            (Place::Vacant(_), None) => {}
        }
        Ok(())
    }
}

/// Position of an iteration over the table.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    shard: usize,
    at: usize,
}
