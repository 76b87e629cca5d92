//! One shard of the table: an array of entries, linearly probed, under a lock that the caller holds.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use super::entry::{EntryKind, Full, TableEntry};
use super::room::{ENTRY_WORDS, EntryTable, FIRST_CAPACITY, SHARD_WORDS, SHARDS};
use crate::lock::{Guard, Lock};

/// Fibonacci hash of a key, of its block of 2 MiB before its place within the block.
///
/// Large allocations are spread as evenly as possible, and small ones of one block go to many shards.
#[inline(always)]
const fn hash(kind: u64, key: u64) -> u64 {
    (key ^ kind << 56).rotate_right(21).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The topmost bits choose an entry's shard, the next ones its home place.
const SHARD_BITS: u32 = SHARDS.ilog2();

/// A part of the table with a lock of its own.
#[derive(Clone, Copy)]
pub(super) struct Shard<'a> {
    table: &'a EntryTable<'a>,
    head: &'a [AtomicU64; SHARD_WORDS],
}

/// Words of an entry: its key, its kind, device and units, then its serial, detail and link.
type Cell<'a> = &'a [AtomicU64; ENTRY_WORDS];

/// Words of a shard's head; its start and its capacity count entries.
const LOCK: usize = 0;
const START: usize = 1;
const CAPACITY: usize = 2;
const COUNT: usize = 3;
const NEWEST: usize = 4;
/// Mask of the kind in an entry's second word; 0 in a vacant place.
const KIND: u64 = 0xff;

/// An entry that was found, with its place for a removal.
#[derive(Clone, Copy)]
pub(super) struct FoundEntry<'a> {
    pub(super) cell: Cell<'a>,
    at: usize,
    cells: Cells<'a>,
}

/// Result of a search for a key.
pub(super) enum Place<'a> {
    /// The key's entry is here.
    Taken(FoundEntry<'a>),
    /// The key has no entry, and would get this place, if the shard has any.
    Vacant(Option<Cell<'a>>),
}

impl Place<'_> {
    /// The entry found, if any.
    #[inline(always)]
    pub(super) fn entry(&self) -> Option<TableEntry> {
        match self {
            Self::Taken(found) => read(found.cell),
            Self::Vacant(_) => None,
        }
    }
}

impl<'a> Shard<'a> {
    /// The shard that has all entries of this key.
    #[inline(always)]
    pub(super) fn of(table: &'a EntryTable<'a>, kind: EntryKind, key: u64) -> Self {
        Self::numbered(table, (hash(kind as u64, key) >> (u64::BITS - SHARD_BITS)) as usize)
    }

    /// The shard of this number.
    #[inline(always)]
    pub(super) fn numbered(table: &'a EntryTable<'a>, number: usize) -> Self {
        Self { table, head: &table.shards[number % SHARDS] }
    }

    #[inline(always)]
    pub(super) fn lock(self) -> Guard<'a> {
        self.door().acquire()
    }

    #[inline(always)]
    pub(super) fn door(self) -> Lock<'a> {
        Lock::at(&self.head[LOCK], self.table.pause)
    }

    /// Serial of the newest entry with one of the shard's own.
    #[inline(always)]
    pub(super) fn newest(self) -> u64 {
        get(&self.head[NEWEST])
    }

    /// Next serial of the shard, greater than any before.
    #[inline(always)]
    pub(super) fn number(self) -> u64 {
        let number = self.newest() + 1;
        set(&self.head[NEWEST], number);
        number
    }

    #[inline(always)]
    pub(super) fn capacity(self) -> usize {
        get(&self.head[CAPACITY]) as usize
    }

    /// Serial of the entry in the key's home place, read without the lock.
    ///
    /// The result may be of any entry or none, but memory safety does not depend on it.
    #[inline(always)]
    pub(super) fn glimpse(self, kind: EntryKind, key: u64) -> Option<u64> {
        let cells = self.cells()?;
        let cell = cells.at(cells.home(kind as u64, key))?;
        is(cell, kind, key).then(|| get(&cell[2]))
    }

    /// Searches for an entry. At least half of the places are vacant, so it ends soon.
    #[inline(always)]
    pub(super) fn seek(self, kind: EntryKind, key: u64) -> Place<'a> {
        let Some(cells) = self.cells() else { return Place::Vacant(None) };
        let mut at = cells.home(kind as u64, key);
        while let Some(cell) = cells.at(at) {
            if is(cell, kind, key) {
                return Place::Taken(FoundEntry { cell, at, cells });
            }
            if get(&cell[1]) & KIND == 0 {
                return Place::Vacant(Some(cell));
            }
            at = cells.after(at);
        }
        Place::Vacant(None)
    }

    /// Inserts an entry at the place that [`Shard::seek`] found for it.
    #[inline(always)]
    pub(super) fn insert(
        self,
        place: Option<Cell<'a>>,
        kind: EntryKind,
        key: u64,
        entry: TableEntry,
    ) -> Result<(), Full> {
        let count = get(&self.head[COUNT]) + 1;
        let room = count as usize * 2 <= self.capacity();
        let cell = if room { place } else { self.place_after_growth(kind, key) };
        write(cell.ok_or(Full)?, kind, key, entry);
        set(&self.head[COUNT], count);
        Ok(())
    }

    /// A place for the key in twice the room; `None` if there is not that much.
    #[cold]
    #[inline(never)]
    fn place_after_growth(self, kind: EntryKind, key: u64) -> Option<Cell<'a>> {
        self.grow().ok()?;
        match self.seek(kind, key) {
            Place::Vacant(cell) => cell,
            Place::Taken(..) => None,
        }
    }

    /// Inserts an absent entry at the first vacant place from its home on.
    fn place(self, kind: EntryKind, key: u64, entry: TableEntry) {
        if let Place::Vacant(Some(cell)) = self.seek(kind, key) {
            write(cell, kind, key, entry);
        }
    }

    /// Closes the gap with later entries of the same run.
    #[inline(always)]
    pub(super) fn remove(self, gap: FoundEntry<'a>) {
        if let Some(cell) = gap.last_of_run() {
            set(&cell[1], 0);
            set(&self.head[COUNT], get(&self.head[COUNT]).saturating_sub(1));
        }
    }

    fn grow(self) -> Result<(), Full> {
        let (old_start, old_capacity) = (get(&self.head[START]) as usize, self.capacity());
        let capacity = (old_capacity * 2).max(FIRST_CAPACITY);
        let start = self.table.carve(capacity)?;
        set(&self.head[START], start as u64);
        set(&self.head[CAPACITY], capacity as u64);
        for cell in &self.table.heap[old_start..][..old_capacity] {
            if let Some((kind, key, entry)) = named(cell) {
                self.place(kind, key, entry);
            }
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn occupied(self, at: usize) -> Option<(FoundEntry<'a>, (EntryKind, u64, TableEntry))> {
        let cells = self.cells()?;
        let cell = cells.at(at)?;
        Some((FoundEntry { cell, at, cells }, named(cell)?))
    }

    /// The entries; `None` before the first growth.
    #[inline(always)]
    fn cells(self) -> Option<Cells<'a>> {
        let mask = self.capacity().checked_sub(1)?;
        Some(Cells { heap: self.table.heap, start: get(&self.head[START]) as usize, mask })
    }
}

/// The entries of a shard, whose number is a power of two.
#[derive(Clone, Copy)]
struct Cells<'a> {
    heap: &'a [[AtomicU64; ENTRY_WORDS]],
    start: usize,
    mask: usize,
}

impl<'a> Cells<'a> {
    /// The entry in a place. Without the shard's lock it may be half-written or gone.
    #[inline(always)]
    fn at(self, at: usize) -> Option<Cell<'a>> {
        self.heap.get(self.start.wrapping_add(at))
    }

    /// Home place of the entry of that key.
    #[inline(always)]
    const fn home(self, kind: u64, key: u64) -> usize {
        let rest = hash(kind, key) << SHARD_BITS;
        rest.wrapping_shr(self.mask.leading_zeros()) as usize & self.mask
    }

    #[inline(always)]
    const fn after(self, at: usize) -> usize {
        (at + 1) & self.mask
    }

    #[inline(always)]
    const fn distance(self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & self.mask
    }
}

impl<'a> FoundEntry<'a> {
    /// Moves entries of the same run up, and returns the place that is vacant afterwards.
    #[inline(always)]
    fn last_of_run(self) -> Option<Cell<'a>> {
        let Self { cells, at: mut gap, cell: mut free } = self;
        let mut at = gap;
        loop {
            at = cells.after(at);
            let cell = cells.at(at)?;
            let (key, head) = (get(&cell[0]), get(&cell[1]));
            if head & KIND == 0 {
                return Some(free);
            }
            if cells.distance(cells.home(head & KIND, key), at) >= cells.distance(gap, at) {
                free.iter().zip(cell).for_each(|(to, from)| set(to, get(from)));
                (gap, free) = (at, cell);
            }
        }
    }
}

#[inline(always)]
fn is(cell: Cell<'_>, kind: EntryKind, key: u64) -> bool {
    get(&cell[0]) == key && get(&cell[1]) & KIND == kind as u64
}

/// Value of an entry; `None` for a vacant place.
#[inline(always)]
pub(super) fn read(cell: Cell<'_>) -> Option<TableEntry> {
    let head = get(&cell[1]);
    Some(TableEntry {
        device: DeviceSlot::new((head >> 8 & 0xff) as usize)?,
        serial: get(&cell[2]),
        units: Units::new((head >> 32) as u32),
        detail: get(&cell[3]),
        link: get(&cell[4]),
    })
}

fn named(cell: Cell<'_>) -> Option<(EntryKind, u64, TableEntry)> {
    let kind = *EntryKind::ALL.get((get(&cell[1]) & KIND).checked_sub(1)? as usize)?;
    Some((kind, get(&cell[0]), read(cell)?))
}

#[inline(always)]
pub(super) fn write(cell: Cell<'_>, kind: EntryKind, key: u64, entry: TableEntry) {
    let head = kind as u64 | (entry.device.index() as u64) << 8 | u64::from(entry.units.get()) << 32;
    let words = [key, head, entry.serial, entry.detail, entry.link];
    cell.iter().zip(words).for_each(|(word, value)| set(word, value));
}

#[inline(always)]
fn get(word: &AtomicU64) -> u64 {
    word.load(Relaxed)
}

#[inline(always)]
fn set(word: &AtomicU64, value: u64) {
    word.store(value, Relaxed);
}
