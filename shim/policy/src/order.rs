//! Announcements of calls under way and of ends of contexts, in the words of the ledger.
//!
//! Both announce first and read second, with a full barrier between: see `calls.rs`.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU64, compiler_fence, fence};

use tranche_shm::DeviceSlot;

/// Makes every other thread of the process pass a full barrier.
pub type Barrier = fn();

/// Number of lines for threads. Threads beyond it share a count.
const LINES: usize = 512;
const LINE_WORDS: usize = 8;
/// Lines tried for a thread, from the one of its hash on.
const PROBES: usize = 16;
/// Ends of contexts at a time; further ones wait.
const ENDS: usize = 15;
/// Words that the order takes: the ends, the count of calls without a line, the lines.
pub(crate) const WORDS: usize = ENDS + 1 + LINES * LINE_WORDS;

/// Words of a line: the thread it belongs to, and what that thread has announced.
const THREAD: usize = 0;
pub(crate) const ANNOUNCED: usize = 1;

/// Set in the announcement of a whole device, below which is its number.
const DEVICE: u64 = 1 << 63;

/// Announcement of a call or an end: a context, or a device for all that concerns its primary context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announced(pub(crate) u64);

impl Announced {
    #[inline(always)]
    pub(crate) const fn context(context: u64) -> Self {
        Self(context & !DEVICE)
    }

    pub(crate) const fn device(device: DeviceSlot) -> Self {
        Self(DEVICE | device.index() as u64)
    }

    pub(crate) fn as_device(self) -> Option<DeviceSlot> {
        (self.0 & DEVICE != 0).then(|| DeviceSlot::new((self.0 & !DEVICE) as usize)).flatten()
    }
}

/// The words of the order, within the ledger's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    words: &'a [AtomicU64; WORDS],
    barrier: Option<Barrier>,
}

impl<'a> Order<'a> {
    #[inline(always)]
    pub(crate) const fn over(words: &'a [AtomicU64; WORDS], barrier: Option<Barrier>) -> Self {
        Self { words, barrier }
    }

    pub(crate) fn ends(self) -> &'a [AtomicU64] {
        &self.words[..ENDS]
    }

    /// Number of calls under way whose thread has no line.
    pub(crate) fn others(self) -> &'a AtomicU64 {
        &self.words[ENDS]
    }

    #[inline(always)]
    pub(crate) fn lines(self) -> &'a [[AtomicU64; LINE_WORDS]] {
        self.words[ENDS + 1..].as_chunks().0
    }

    /// The word in which a thread announces its call.
    #[inline(always)]
    pub(crate) fn line(self, thread: u64) -> Option<&'a AtomicU64> {
        let first = (thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize % LINES;
        let line = &self.lines()[first];
        if line[THREAD].load(Relaxed) == thread { Some(&line[ANNOUNCED]) } else { self.find(thread, first) }
    }

    /// Assigns a line to a thread. Lines stay assigned: a thread with the number of an ended one has its line as
    /// well.
    #[cold]
    #[inline(never)]
    fn find(self, thread: u64, first: usize) -> Option<&'a AtomicU64> {
        for probe in 0..PROBES {
            let line = &self.lines()[(first + probe) % LINES];
            // Without a load before it: a read of a fresh page maps the zero page, and the write faults once more.
            let owner =
                line[THREAD].compare_exchange(0, thread, SeqCst, SeqCst).map_or_else(|now| now, |_| thread);
            if owner == thread {
                return Some(&line[ANNOUNCED]);
            }
        }
        None
    }

    /// Barrier between the announcement of a call and its read of ends.
    #[inline(always)]
    pub(crate) fn call_barrier(self) {
        match self.barrier {
            Some(_) => compiler_fence(SeqCst),
            None => fence(SeqCst),
        }
    }

    /// Barrier between the announcement of an end and its reads of calls.
    pub(crate) fn end_barrier(self) {
        fence(SeqCst);
        if let Some(barrier) = self.barrier {
            barrier();
        }
    }
}
