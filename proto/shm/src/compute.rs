//! What a process has outstanding on its GPUs, in records behind those of [`crate::usage`]: written by the process
//! and by its GPUs, read by the daemon.
//!
//! Each record is 128 words, so that none straddles two pages: the GPU writes into it, and the fewer pages it is
//! given the better. 16 numbers, the time with work outstanding on each of 16 devices, since when there is some on
//! each, then a ring of 32 *marks* of two words.
//!
//! A mark stands behind some launches in a stream. The process writes its first word when it submits it; the GPU
//! writes the lower half of the second when it gets there. A mark is pending while the lower halves differ.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::usage;
use crate::word::AtomicU64;
use crate::{DeviceSlot, MAX_DEVICES, MAX_SLOTS, Slot};

/// Length of a usage region with the records of this module, in words.
pub const REGION_WORDS: usize = FIRST + MAX_SLOTS * RECORD_WORDS;
/// Length of a usage region with the records of this module, in bytes.
pub const REGION_BYTES: usize = REGION_WORDS * 8;
/// Length of a record in words.
pub const RECORD_WORDS: usize = 128;
/// Marks of one process that can be pending at once.
pub const MARKS: usize = 32;

/// Where the records begin, in bytes.
pub const FIRST_BYTE: usize = FIRST * 8;
const PAGE_WORDS: usize = 512;
const FIRST: usize = usage::WORDS.next_multiple_of(PAGE_WORDS);
const BUSY: usize = 16;
const SINCE: usize = BUSY + MAX_DEVICES;
const RING: usize = SINCE + MAX_DEVICES;
const _: () = assert!(RING + 2 * MARKS <= RECORD_WORDS && PAGE_WORDS.is_multiple_of(RECORD_WORDS));

/// The numbers of a record. Order is layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tally {
    /// Threads that wait at the gate now, for it to be opened or for room in its depth.
    Waiting,
    /// The number of the last mark.
    Sequence,
    /// Launches counted; each is seen here at the latest when its thread places its next mark.
    Launches,
    /// GPU time of a launch, of a kernel or of a whole graph, on average lately, in nanoseconds; 0 while unknown. What
    /// runs beside others counts for its part of the time.
    KernelNs,
    /// The longest launch seen lately, in nanoseconds.
    LongestNs,
    /// Launches let through because nothing that was outstanding made progress.
    Passes,
    /// Launches let through because the daemon was away.
    Degraded,
    /// Time that threads waited for the gate to be opened, in nanoseconds.
    WaitedNs,
    /// Launches of whole graphs, which [`Tally::Launches`] counts too.
    Graphs,
}

/// The records of a region, to whoever may write them.
#[derive(Clone, Copy, Debug)]
pub struct Compute<'a> {
    words: &'a [AtomicU64; REGION_WORDS],
}

impl<'a> Compute<'a> {
    /// The records in a usage region; nothing if it is too short. Whether it is one says [`usage::Usage::attach`].
    #[inline]
    pub fn known(words: &'a [AtomicU64]) -> Option<Self> {
        words.first_chunk().map(|words| Self { words })
    }

    /// A process's record.
    pub fn record(self, slot: Slot) -> Record<'a> {
        let words = &self.words[FIRST + slot.index() * RECORD_WORDS..];
        Record(words.first_chunk().expect("the region is as long as all records"))
    }

    /// Empties a process's record, for the next one.
    pub fn clear(self, slot: Slot) {
        self.record(slot).0.iter().for_each(|word| word.store(0, Relaxed));
    }
}

/// One process's record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a>(&'a [AtomicU64; RECORD_WORDS]);

impl<'a> Record<'a> {
    /// A record of these words, such as one outside any region.
    pub const fn over(words: &'a [AtomicU64; RECORD_WORDS]) -> Self {
        Self(words)
    }

    /// One of its numbers.
    pub fn tally(self, tally: Tally) -> &'a AtomicU64 {
        &self.0[tally as usize]
    }

    /// For how long the process has had work outstanding on a device before the present stretch, in nanoseconds,
    /// as it says itself.
    pub fn busy_ns(self, device: DeviceSlot) -> &'a AtomicU64 {
        &self.0[BUSY + device.index()]
    }

    /// Since when it has had some without a break, by CLOCK_MONOTONIC in nanoseconds; 0 if it has none. A process
    /// that does not wait for its work learns late that there is none: its marks tell sooner.
    pub fn busy_since_ns(self, device: DeviceSlot) -> &'a AtomicU64 {
        &self.0[SINCE + device.index()]
    }

    /// Its marks.
    pub const fn marks(self) -> Marks<'a> {
        Marks(self)
    }

    /// Where the record begins, for a driver that is to let its GPU write there; the record fills
    /// [`RECORD_WORDS`] words of one page.
    pub const fn address(self) -> *const AtomicU64 {
        self.0.as_ptr()
    }
}

/// A mark behind some launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its number; marks of a process are numbered from 1 on and begin anew after 2^32.
    pub sequence: u32,
    /// Where the launches run.
    pub device: DeviceSlot,
    /// How long the launches take that it stands behind, and no mark before it, as estimated when it was
    /// submitted, in microseconds; at most [`Mark::MOST_US`].
    pub estimate_us: u32,
}

const DEVICE: u32 = 32;
const ESTIMATE: u32 = 36;

impl Mark {
    /// The longest estimate that can be said: sixteen seconds.
    pub const MOST_US: u32 = (1 << 24) - 1;

    fn encode(self) -> u64 {
        let estimate = self.estimate_us.min(Self::MOST_US);
        u64::from(self.sequence) | (self.device.index() as u64) << DEVICE | u64::from(estimate) << ESTIMATE
    }

    fn decode(word: u64) -> Option<Self> {
        Some(Self {
            sequence: word as u32,
            device: DeviceSlot::new((word >> DEVICE & 0xf) as usize)?,
            estimate_us: (word >> ESTIMATE) as u32 & Self::MOST_US,
        })
    }
}

/// What is outstanding on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// GPU time behind which a mark stands, as estimated when submitted, in microseconds.
    pub estimate_us: u64,
    /// Marks that are pending. None means idle, give or take what was launched since the last mark.
    pub marks: u32,
}

/// The ring of marks of one process.
#[derive(Clone, Copy, Debug)]
pub struct Marks<'a>(Record<'a>);

impl<'a> Marks<'a> {
    /// Whether the place of the mark of that number is free for it.
    pub fn has_room(self, sequence: u32) -> bool {
        self.at(place(sequence)).1
    }

    /// Writes a mark down, before the GPU is asked to write its number. A pending one in its place is forgotten:
    /// see [`Marks::has_room`].
    pub fn submit(self, mark: Mark) {
        let (submitted, done) = self.words(place(mark.sequence));
        // The number that is not the new one: pending from the moment it is written down.
        done.store(u64::from(mark.sequence.wrapping_sub(1)), Relaxed);
        submitted.store(mark.encode(), Release);
        self.0.tally(Tally::Sequence).store(u64::from(mark.sequence), Release);
    }

    /// The word of which the GPU writes the lower half.
    pub fn done(self, sequence: u32) -> &'a AtomicU64 {
        self.words(place(sequence)).1
    }

    /// How many bytes behind the beginning of the record that word is.
    pub const fn done_offset(sequence: u32) -> usize {
        (RING + 2 * place(sequence) + 1) * 8
    }

    /// The process knows by other ways that the mark of that number has been reached, or never will be.
    pub fn finish(self, sequence: u32) {
        let (submitted, done) = self.words(place(sequence));
        if submitted.load(Acquire) as u32 == sequence {
            done.store(u64::from(sequence), Release);
        }
    }

    /// Marks that the GPU has not reached yet, in no order.
    pub fn pending(self) -> impl Iterator<Item = Mark> {
        (0..MARKS).filter_map(move |place| match self.at(place) {
            (submitted, false) => Mark::decode(submitted),
            (_, true) => None,
        })
    }

    /// What is outstanding on a device. The GPU's word may come some microseconds late, never early.
    pub fn outstanding(self, device: DeviceSlot) -> Outstanding {
        let here = self.pending().filter(|mark| mark.device == device);
        here.fold(Outstanding::default(), |sum, mark| Outstanding {
            estimate_us: sum.estimate_us + u64::from(mark.estimate_us),
            marks: sum.marks + 1,
        })
    }

    /// What was submitted in a place, and whether it is done.
    fn at(self, place: usize) -> (u64, bool) {
        let (submitted, done) = self.words(place);
        let submitted = submitted.load(Acquire);
        (submitted, submitted as u32 == done.load(Acquire) as u32)
    }

    fn words(self, place: usize) -> (&'a AtomicU64, &'a AtomicU64) {
        let Record(words) = self.0;
        (&words[RING + 2 * place], &words[RING + 2 * place + 1])
    }
}

const fn place(sequence: u32) -> usize {
    sequence as usize % MARKS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn zeroed(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    fn record(words: &[AtomicU64]) -> Record<'_> {
        Record::over(words.first_chunk().unwrap())
    }

    fn mark(sequence: u32, device: usize, estimate_us: u32) -> Mark {
        Mark { sequence, device: DeviceSlot::new(device).unwrap(), estimate_us }
    }

    #[test]
    fn a_mark_is_pending_until_the_gpu_has_written_its_number() {
        let words = zeroed(RECORD_WORDS);
        let marks = record(&words).marks();
        let device = DeviceSlot::new(3).unwrap();
        assert_eq!(marks.pending().count(), 0);
        marks.submit(mark(1, 3, 250));
        marks.submit(mark(2, 3, 50));
        marks.submit(mark(3, 4, 7));
        assert_eq!(marks.outstanding(device), Outstanding { estimate_us: 300, marks: 2 });
        // The GPU writes 32 bits.
        let done = marks.done(1);
        done.store(done.load(Relaxed) & !0xffff_ffff | 1, Relaxed);
        assert_eq!(marks.outstanding(device), Outstanding { estimate_us: 50, marks: 1 });
        marks.finish(2);
        marks.finish(7);
        assert_eq!(marks.pending().collect::<Vec<_>>(), [mark(3, 4, 7)]);
        assert!(!marks.has_room(3 + MARKS as u32) && marks.has_room(2 + MARKS as u32));
    }

    #[test]
    fn the_word_that_the_gpu_writes_is_where_its_offset_says() {
        let words = zeroed(RECORD_WORDS);
        let record = record(&words);
        for sequence in [1, 31, 32, u32::MAX] {
            let word: *const AtomicU64 = record.marks().done(sequence);
            assert_eq!(word as usize - record.address() as usize, Marks::done_offset(sequence));
        }
    }

    #[test]
    fn no_record_straddles_a_page_or_reaches_into_another_or_into_credit_words() {
        let words = zeroed(REGION_WORDS);
        let compute = Compute::known(&words).unwrap();
        let usage = usage::Usage::init(&words, 1).unwrap();
        let at = |slot: usize| {
            compute.record(Slot::new(slot).unwrap()).address() as usize - words.as_ptr() as usize
        };
        for slot in [0, 1, MAX_SLOTS - 1] {
            assert_eq!(at(slot) / 4096, (at(slot) + RECORD_WORDS * 8 - 1) / 4096);
        }
        assert!(at(0) >= usage::BYTES && at(1) == at(0) + RECORD_WORDS * 8);
        compute.record(Slot::new(1).unwrap()).0.iter().for_each(|word| word.store(u64::MAX, Relaxed));
        compute.clear(Slot::new(1).unwrap());
        assert_eq!(usage.generation(), 1);
        assert!(words[16..].iter().all(|word| word.load(Relaxed) == 0));
    }

    proptest! {
        #[test]
        fn every_mark_reads_back(sequence: u32, device in 0..MAX_DEVICES, estimate_us in 0..=Mark::MOST_US) {
            let mark = mark(sequence, device, estimate_us);
            prop_assert_eq!(Mark::decode(mark.encode()), Some(mark));
        }

        #[test]
        fn hostile_words_never_panic_a_reader(seed: Vec<u64>) {
            let words = zeroed(RECORD_WORDS);
            for (at, word) in seed.iter().enumerate() {
                words[at * 37 % RECORD_WORDS].store(*word, Relaxed);
            }
            let record = record(&words);
            for device in (0..MAX_DEVICES).filter_map(DeviceSlot::new) {
                let sum = record.marks().outstanding(device);
                prop_assert!(sum.marks <= MARKS as u32);
                let most = u64::from(Mark::MOST_US) * u64::from(sum.marks);
                prop_assert!(sum.estimate_us <= most);
            }
        }
    }
}
