//! The words of the table: heads of shards, and the room that these grow into.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::entry::Full;
use crate::lock::Pause;

pub(super) const SHARDS: usize = 64;
pub(super) const SHARD_WORDS: usize = 8;
pub(super) const ENTRY_WORDS: usize = 5;
pub(super) const FIRST_CAPACITY: usize = 32;

/// Word with the number of entries given to shards.
const NEXT_FREE: usize = 0;
const SERIAL: usize = 1;
/// Words in front of the shards' heads, which precede the entries.
const COMMON: usize = 8;

/// Makes words usable that a table is about to grow into; returns true if they are.
pub type Open = fn(&[AtomicU64]) -> bool;

/// The table, over words of the caller.
#[derive(Clone, Copy, Debug)]
pub struct EntryTable<'a> {
    common: &'a [AtomicU64; COMMON],
    pub(super) shards: &'a [[AtomicU64; SHARD_WORDS]; SHARDS],
    pub(super) heap: &'a [[AtomicU64; ENTRY_WORDS]],
    pub(super) pause: Pause,
    open: Option<Open>,
}

impl<'a> EntryTable<'a> {
    /// Fewest words that a table needs.
    pub const LEAST_WORDS: usize = COMMON + SHARDS * (SHARD_WORDS + FIRST_CAPACITY * ENTRY_WORDS);

    /// Words that a table with one entry has in use: the heads, and the first entries.
    pub const FIRST_WORDS: usize = COMMON + SHARDS * SHARD_WORDS + FIRST_CAPACITY * ENTRY_WORDS;

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

    /// Takes zeroed room for `count` entries from the part that was never used.
    pub(super) fn carve(&self, count: usize) -> Result<usize, Full> {
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
