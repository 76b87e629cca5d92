//! What is over only when a stream has come to it: freed in the order of a stream, unmapped in it, run in it.
//!
//! The shim puts a mark of its own behind such work and asks the driver for it later. So it does not matter how the
//! program learns that the work is over, or whether it does: an event, a chain of streams, a value in memory.

use core::sync::atomic::Ordering::{AcqRel, Acquire};

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;
use tranche_shm::message::ShareKey;

use crate::ledger::Ledger;
use crate::table::{Cursor, Entry, Full, Kind};

/// Where a mark is, in what the driver is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// What the driver calls it; 0 where it could not be put, and what would be behind it ends with the context.
    pub event: u64,
    /// The context it ends with.
    pub context: u64,
}

/// The driver's word on marks.
pub trait Marks {
    /// Whether all that was in the stream before the mark is over.
    fn passed(&self, event: u64) -> bool;
    /// It is of no more use.
    fn end(&self, event: u64);
}

/// What an entry of [`Kind::Mark`] stands behind; its detail is the event and its link the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// Plain memory at this address was freed: an entry of [`Kind::Leaving`].
    Memory(u64),
    /// Memory of others, open at this address, was closed once: an entry of [`Kind::Opened`].
    Opened(u64),
    /// Physical memory was taken out of an array: an entry of [`Kind::Binding`] with this key.
    Tile(u64),
}

impl Behind {
    const OPENED: u64 = 1 << 62;
    const TILE: u64 = 1 << 63;

    /// Addresses and the keys of tiles are less than 2^62.
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

/// While it lives no mark is asked for: a context is about to end, and its marks with it.
#[must_use = "marks are asked for again when it is dropped"]
#[derive(Debug)]
pub struct Hush<'a>(Ledger<'a>);

impl Drop for Hush<'_> {
    fn drop(&mut self) {
        self.0.hushes().fetch_sub(1, AcqRel);
    }
}

impl<'a> Ledger<'a> {
    /// To be held while the driver ends a context and the books follow.
    pub fn hush(&self) -> Hush<'a> {
        self.hushes().fetch_add(1, AcqRel);
        Hush(*self)
    }

    pub(crate) fn is_hushed(&self) -> bool {
        self.hushes().load(Acquire) > 0
    }

    /// Lets `driver` free plain memory in the order of a stream; it stays charged until that is done. What shows
    /// that, `mark` puts into the stream.
    pub fn free_in_order<E>(
        &self,
        pointer: u64,
        marks: &impl Marks,
        mark: impl FnOnce() -> Mark,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let moment = self.table.moment(Kind::Memory, pointer);
        driver()?;
        let Some(entry) = self.table.take(Kind::Memory, pointer, moment) else { return Ok(()) };
        // What finds no room in the table stays charged: too much, never too little.
        if let Ok(before) = self.table.put(Kind::Leaving, pointer, entry) {
            // The address could be given out again, so what was there before has left.
            before.into_iter().for_each(|gone| self.forget(Kind::Leaving, pointer, gone));
            self.leave_behind(Behind::Memory(pointer), entry.device, mark(), marks);
        }
        Ok(())
    }

    /// Ends what has a mark behind it as soon as that is passed, which may be now.
    pub(crate) fn leave_behind(&self, what: Behind, device: DeviceSlot, mark: Mark, marks: &impl Marks) {
        if mark.event != 0 && marks.passed(mark.event) {
            marks.end(mark.event);
            return self.left(what, self.table.stamp());
        }
        let _turn = self.marking().acquire();
        let entry = Entry { detail: mark.event, link: mark.context, ..self.entry(device, Units::ZERO) };
        match self.table.put(Kind::Mark, what.key(), entry) {
            Ok(Some(before)) => end(before, marks),
            Ok(None) => _ = self.marks().fetch_add(1, AcqRel),
            // What is behind it stays charged: too much, never too little.
            Err(Full) => end(entry, marks),
        }
    }

    /// Gives back what has left by now. Where nothing is on its way, that is one load.
    pub fn settle_marks(&self, marks: &impl Marks) {
        if self.marks().load(Acquire) == 0 {
            return;
        }
        let _turn = self.marking().acquire();
        let waiting = |kind: Kind, entry: &Entry| kind == Kind::Mark && entry.detail != 0;
        let mut cursor = Cursor::default();
        while let Some((_, key, entry)) = self.table.next(&mut cursor, waiting) {
            if !self.is_hushed() && marks.passed(entry.detail) {
                self.table.take(Kind::Mark, key, entry.serial);
                self.marks().fetch_sub(1, AcqRel);
                marks.end(entry.detail);
                self.left(Behind::of_key(key), entry.serial);
            }
        }
    }

    /// A context is no more, and all that was under way in it is over. Its marks are gone with it.
    pub(crate) fn marks_gone(&self, context: u64) {
        if self.marks().load(Acquire) == 0 {
            return;
        }
        let _turn = self.marking().acquire();
        let of_context = |kind: Kind, entry: &Entry| kind == Kind::Mark && entry.link == context;
        let mut cursor = Cursor::default();
        while let Some((_, key, entry)) = self.table.take_next(&mut cursor, of_context) {
            self.marks().fetch_sub(1, AcqRel);
            self.left(Behind::of_key(key), entry.serial);
        }
    }

    /// What was marked at `stamp` has left; what is there since is something else.
    fn left(&self, what: Behind, stamp: u64) {
        match what {
            Behind::Memory(pointer) => {
                let gone = self.table.take(Kind::Leaving, pointer, u64::MAX);
                gone.into_iter().for_each(|gone| self.forget(Kind::Leaving, pointer, gone));
            }
            Behind::Opened(pointer) => self.close_opened(pointer, stamp),
            Behind::Tile(key) => {
                self.few
                    .take(Kind::Binding, key, u64::MAX)
                    .into_iter()
                    .for_each(|gone| self.drop_mapping(gone));
            }
        }
    }

    /// What was open at a pointer was closed once, if it was entered by `stamp`.
    pub(crate) fn close_opened(&self, pointer: u64, stamp: u64) {
        let mut closed = None;
        let _ = self.table.change(Kind::Opened, pointer, |entry| {
            closed = entry.filter(|entry| entry.serial <= stamp);
            let more = |entry: &Entry| closed.is_none() || entry.detail > 1;
            let less = u64::from(closed.is_some());
            entry.filter(more).map(|entry| Entry { detail: entry.detail - less, ..entry })
        });
        if let Some(entry) = closed {
            self.let_go(ShareKey(entry.link));
        }
    }
}

fn end(entry: Entry, marks: &impl Marks) {
    if entry.detail != 0 {
        marks.end(entry.detail);
    }
}
