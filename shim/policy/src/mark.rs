//! Work in the order of a stream, which ends only when the stream reaches it: free, unmapping, launch.
//!
//! The shim puts a mark of its own behind such work and queries it from the driver later. So it does not matter how
//! the program synchronises: with an event, a chain of streams, or a value in memory.

use core::sync::atomic::Ordering::{AcqRel, Acquire};

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;
use tranche_shm::message::ShareKey;

use crate::ledger::Ledger;
use crate::table::{EntryKind, Full, TableEntry};

/// Place of a mark, in terms of the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Event of the mark; 0 where none was created, and the work counts as unfinished in its context.
    pub event: u64,
    /// Context with which the mark ends.
    pub context: u64,
}

/// The driver's queries about marks.
pub trait Marks {
    /// True if all work that was in the stream before the mark is done.
    fn passed(&self, event: u64) -> bool;
    /// Destroys the event of a mark.
    fn end(&self, event: u64);
}

/// Work in front of a mark, an entry of [`EntryKind::Mark`] with event as detail and context as link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// Plain memory at this address was freed: an entry of [`EntryKind::Leaving`].
    Memory(u64),
    /// Memory of another process, open at this address, was closed once: an entry of [`EntryKind::Opened`].
    Opened(u64),
    /// Physical memory was unmapped from an array: an entry of [`EntryKind::Binding`] with this key.
    Tile(u64),
}

impl Behind {
    const OPENED: u64 = 1 << 62;
    const TILE: u64 = 1 << 63;

    /// Key in the table. Addresses and the keys of tiles are less than 2^62.
    const fn key(self) -> u64 {
        match self {
            Self::Memory(address) => address,
            Self::Opened(address) => address | Self::OPENED,
            Self::Tile(key) => key | Self::TILE,
        }
    }

    const fn of_key(key: u64) -> Self {
        match key & (Self::OPENED | Self::TILE) {
            0 => Self::Memory(key),
            Self::OPENED => Self::Opened(key & !Self::OPENED),
            _ => Self::Tile(key & !Self::TILE),
        }
    }
}

/// Suspends queries of marks: a context is about to end, and its marks with it.
#[must_use = "marks are asked for again when it is dropped"]
#[derive(Debug)]
pub struct Hush<'a>(Ledger<'a>);

impl Drop for Hush<'_> {
    fn drop(&mut self) {
        self.0.hushes().fetch_sub(1, AcqRel);
    }
}

impl<'a> Ledger<'a> {
    /// Suspends queries of marks, to be held while the driver ends a context and the ledger follows.
    pub fn hush(&self) -> Hush<'a> {
        self.hushes().fetch_add(1, AcqRel);
        Hush(*self)
    }

    pub(crate) fn is_hushed(&self) -> bool {
        self.hushes().load(Acquire) > 0
    }

    /// Lets `driver` free plain memory in the order of a stream.
    ///
    /// The charge stays until `mark`, which puts a mark into the stream, is reached.
    pub fn free_in_order<E>(
        &self,
        pointer: u64,
        marks: &impl Marks,
        mark: impl FnOnce() -> Mark,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let moment = self.table.moment(EntryKind::Memory, pointer);
        driver()?;
        let Some(entry) = self.table.take(EntryKind::Memory, pointer, moment) else { return Ok(()) };
        // An entry that finds no room in the table stays charged: too much, never too little.
        if let Ok(before) = self.table.put(EntryKind::Leaving, pointer, entry) {
            // The driver returned the address again, so the free of the memory before is done.
            before.into_iter().for_each(|gone| self.forget(EntryKind::Leaving, pointer, gone));
            self.leave_behind(Behind::Memory(pointer), entry.device, mark(), marks);
        }
        Ok(())
    }

    /// Ends the work in front of a mark as soon as the mark is reached, which may be at once.
    pub(crate) fn leave_behind(&self, what: Behind, device: DeviceSlot, mark: Mark, marks: &impl Marks) {
        if mark.event != 0 && marks.passed(mark.event) {
            marks.end(mark.event);
            return self.left(what, self.table.stamp());
        }
        let _turn = self.marking().acquire();
        let entry = TableEntry { detail: mark.event, link: mark.context, ..self.entry(device, Units::ZERO) };
        match self.table.put(EntryKind::Mark, what.key(), entry) {
            Ok(Some(before)) => end(before, marks),
            Ok(None) => _ = self.marks().fetch_add(1, AcqRel),
            // The work in front of it stays charged: too much, never too little.
            Err(Full) => end(entry, marks),
        }
    }

    /// Releases the charges of reached marks. One load where no work is under way.
    pub fn settle_marks(&self, marks: &impl Marks) {
        if self.marks().load(Acquire) == 0 {
            return;
        }
        let _turn = self.marking().acquire();
        for (_, key, entry) in self.table.entries(&[EntryKind::Mark], |entry| entry.detail != 0) {
            if !self.is_hushed() && marks.passed(entry.detail) {
                self.table.take(EntryKind::Mark, key, entry.serial);
                self.marks().fetch_sub(1, AcqRel);
                marks.end(entry.detail);
                self.left(Behind::of_key(key), entry.serial);
            }
        }
    }

    /// Ends the work of all marks of a context that has ended, and the marks with it.
    pub(crate) fn marks_gone(&self, context: u64) {
        if self.marks().load(Acquire) == 0 {
            return;
        }
        let _turn = self.marking().acquire();
        for (_, key, entry) in self.table.drain(&[EntryKind::Mark], |entry| entry.link == context) {
            self.marks().fetch_sub(1, AcqRel);
            self.left(Behind::of_key(key), entry.serial);
        }
    }

    /// Ends the work that was marked at `stamp`, and no later entry of the same key.
    fn left(&self, what: Behind, stamp: u64) {
        match what {
            Behind::Memory(pointer) => {
                let gone = self.table.take(EntryKind::Leaving, pointer, u64::MAX);
                gone.into_iter().for_each(|gone| self.forget(EntryKind::Leaving, pointer, gone));
            }
            Behind::Opened(pointer) => self.close_opened(pointer, stamp),
            Behind::Tile(key) => {
                self.few
                    .take(EntryKind::Binding, key, u64::MAX)
                    .into_iter()
                    .for_each(|gone| self.drop_mapping(gone));
            }
        }
    }

    /// Closes the memory opened at a pointer once, if it was entered by `stamp`.
    pub(crate) fn close_opened(&self, pointer: u64, stamp: u64) {
        let mut closed = None;
        let _ = self.table.change(EntryKind::Opened, pointer, |entry| {
            closed = entry.filter(|entry| entry.serial <= stamp);
            let more = |entry: &TableEntry| closed.is_none() || entry.detail > 1;
            let less = u64::from(closed.is_some());
            entry.filter(more).map(|entry| TableEntry { detail: entry.detail - less, ..entry })
        });
        if let Some(entry) = closed {
            self.let_go(ShareKey(entry.link));
        }
    }
}

fn end(entry: TableEntry, marks: &impl Marks) {
    if entry.detail != 0 {
        marks.end(entry.detail);
    }
}
