//! Compute records: outstanding GPU work of each process.
//!
//! The process and its GPUs write them, the daemon reads them. They lie behind the records of [`crate::usage`]. A record has 128 words, so that none straddles two pages, because
//! its page is mapped for GPU writes: 16 counters, busy time on each of 16 devices, start of the present busy time on
//! each, then a ring of 32 *completion markers* (marks) of two words.
//!
//! A mark follows some launches in a stream. The process writes its first word when it submits it; the GPU writes the
//! lower half of the second when the work before it is done. A mark is pending while the lower halves differ.

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
/// Length of the ring: marks of one process that can be pending at once.
pub const MARKS: usize = 32;

/// Offset of the first record in the region, in bytes.
pub const FIRST_BYTE: usize = FIRST * 8;
const PAGE_WORDS: usize = 512;
const FIRST: usize = usage::WORDS.next_multiple_of(PAGE_WORDS);
const BUSY: usize = 16;
const SINCE: usize = BUSY + MAX_DEVICES;
const RING: usize = SINCE + MAX_DEVICES;
const _: () = assert!(RING + 2 * MARKS <= RECORD_WORDS && PAGE_WORDS.is_multiple_of(RECORD_WORDS));

/// The counters of a record. Their order is the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tally {
    /// Threads that wait at the launch gate now, for an open lease or for room in its depth.
    Waiting,
    /// Sequence number of the last mark.
    Sequence,
    /// Launches so far. Each is counted at the latest when its thread places its next mark.
    Launches,
    /// Recent mean GPU time of a launch (a kernel or a whole graph), in nanoseconds; 0 while unknown.
    ///
    /// Launches that run side by side count their parts of the time.
    KernelNs,
    /// Longest recent launch, in nanoseconds.
    LongestNs,
    /// Launches that bypassed the gate because no outstanding work made progress.
    Passes,
    /// Launches that bypassed the gate because the daemon was away.
    Degraded,
    /// Time that threads waited for an open lease, in nanoseconds.
    WaitedNs,
    /// Launches of whole graphs, which [`Tally::Launches`] counts too.
    Graphs,
    /// 1 if the last launches on the device of the last mark were in one stream, 2 if in several.
    ///
    /// 0 before the first mark, and from releases without this counter.
    Streams,
}

/// The compute records of a usage region, for reading and writing.
#[derive(Clone, Copy, Debug)]
pub struct ComputeRecords<'a> {
    words: &'a [AtomicU64; REGION_WORDS],
}

impl<'a> ComputeRecords<'a> {
    /// The records in a usage region; `None` if it is too short.
    ///
    /// The header is not checked here, but by [`usage::Usage::attach`].
    #[inline]
    pub fn known(words: &'a [AtomicU64]) -> Option<Self> {
        words.first_chunk().map(|words| Self { words })
    }

    /// Record of the process in a slot.
    pub fn record(self, slot: Slot) -> ComputeRecord<'a> {
        let words = &self.words[FIRST + slot.index() * RECORD_WORDS..];
        ComputeRecord(words.first_chunk().expect("the region is as long as all records"))
    }

    /// Zeroes the record of a slot before its next process; returns true if it held anything.
    pub fn clear(self, slot: Slot) -> bool {
        let mut held = 0;
        for word in self.record(slot).0 {
            held |= word.load(Relaxed);
            word.store(0, Relaxed);
        }
        held != 0
    }
}

/// Compute record of one process, [`RECORD_WORDS`] words.
#[derive(Clone, Copy, Debug)]
pub struct ComputeRecord<'a>(&'a [AtomicU64; RECORD_WORDS]);

impl<'a> ComputeRecord<'a> {
    /// A record in these words, which may lie outside any region.
    pub const fn over(words: &'a [AtomicU64; RECORD_WORDS]) -> Self {
        Self(words)
    }

    /// The word of a counter.
    pub fn tally(self, tally: Tally) -> &'a AtomicU64 {
        &self.0[tally as usize]
    }

    /// Time with work outstanding on a device, in nanoseconds, the present busy time not included.
    ///
    /// It is the process's own figure.
    pub fn busy_ns(self, device: DeviceSlot) -> &'a AtomicU64 {
        &self.0[BUSY + device.index()]
    }

    /// Start of the present busy time on a device, by CLOCK_MONOTONIC in nanoseconds; 0 while idle.
    ///
    /// A process that does not wait for its work clears it late; its marks are more recent.
    pub fn busy_since_ns(self, device: DeviceSlot) -> &'a AtomicU64 {
        &self.0[SINCE + device.index()]
    }

    /// The ring of marks.
    pub const fn marks(self) -> MarkRing<'a> {
        MarkRing(self)
    }

    /// Address of its [`RECORD_WORDS`] words, all in one page, for a driver that maps them for GPU writes.
    pub const fn address(self) -> *const AtomicU64 {
        self.0.as_ptr()
    }
}

/// A completion marker behind some launches in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionMark {
    /// Sequence number within the process, from 1 on, modulo 2^32.
    pub sequence: u32,
    /// Device on which the launches run.
    pub device: DeviceSlot,
    /// GPU time of the launches since the mark before it, in microseconds.
    ///
    /// At most [`CompletionMark::MOST_US`].
    ///
    /// The process estimates it at submission.
    pub estimate_us: u32,
}

const DEVICE: u32 = 32;
const ESTIMATE: u32 = 36;

impl CompletionMark {
    /// Largest estimate that 24 bits hold, in microseconds: sixteen seconds.
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

/// Outstanding work of one process on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// Sum of the pending marks' estimates, in microseconds.
    pub estimate_us: u64,
    /// Number of pending marks. Zero means idle, except for launches since the last mark.
    pub marks: u32,
}

/// The ring of marks of one process.
#[derive(Clone, Copy, Debug)]
pub struct MarkRing<'a>(ComputeRecord<'a>);

impl<'a> MarkRing<'a> {
    /// True if the place of that sequence number holds no pending mark.
    pub fn has_room(self, sequence: u32) -> bool {
        self.at(place(sequence)).1
    }

    /// Records a mark, before the driver is called to let the GPU write its number.
    ///
    /// It overwrites a pending mark in its place: see [`MarkRing::has_room`].
    pub fn submit(self, mark: CompletionMark) {
        let (submitted, done) = self.words(place(mark.sequence));
        // Any other number than the new one, so that the mark is pending from the next store on.
        done.store(u64::from(mark.sequence.wrapping_sub(1)), Relaxed);
        submitted.store(mark.encode(), Release);
        self.0.tally(Tally::Sequence).store(u64::from(mark.sequence), Release);
    }

    /// The word whose lower half the GPU writes.
    pub fn done(self, sequence: u32) -> &'a AtomicU64 {
        self.words(place(sequence)).1
    }

    /// Offset of [`MarkRing::done`]'s word from the start of the record, in bytes.
    pub const fn done_offset(sequence: u32) -> usize {
        (RING + 2 * place(sequence) + 1) * 8
    }

    /// Ends a mark from the CPU, where its work is known to be done or will never run.
    pub fn finish(self, sequence: u32) {
        let (submitted, done) = self.words(place(sequence));
        if submitted.load(Acquire) as u32 == sequence {
            done.store(u64::from(sequence), Release);
        }
    }

    /// Marks that the GPU has not reached yet, in no order.
    pub fn pending(self) -> impl Iterator<Item = CompletionMark> {
        (0..MARKS).filter_map(move |place| match self.at(place) {
            (submitted, false) => CompletionMark::decode(submitted),
            (_, true) => None,
        })
    }

    /// Outstanding work on a device. The GPU's write can be some microseconds late, never early.
    pub fn outstanding(self, device: DeviceSlot) -> Outstanding {
        let here = self.pending().filter(|mark| mark.device == device);
        here.fold(Outstanding::default(), |sum, mark| Outstanding {
            estimate_us: sum.estimate_us + u64::from(mark.estimate_us),
            marks: sum.marks + 1,
        })
    }

    /// The submitted word of a place, and true if the GPU has reached it.
    fn at(self, place: usize) -> (u64, bool) {
        let (submitted, done) = self.words(place);
        let submitted = submitted.load(Acquire);
        (submitted, submitted as u32 == done.load(Acquire) as u32)
    }

    fn words(self, place: usize) -> (&'a AtomicU64, &'a AtomicU64) {
        let ComputeRecord(words) = self.0;
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

    fn record(words: &[AtomicU64]) -> ComputeRecord<'_> {
        ComputeRecord::over(words.first_chunk().unwrap())
    }

    fn mark(sequence: u32, device: usize, estimate_us: u32) -> CompletionMark {
        CompletionMark { sequence, device: DeviceSlot::new(device).unwrap(), estimate_us }
    }

    #[test]
    fn mark_is_pending_until_the_gpu_writes_its_number() {
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
    fn done_offset_is_the_address_of_done() {
        let words = zeroed(RECORD_WORDS);
        let record = record(&words);
        for sequence in [1, 31, 32, u32::MAX] {
            let word: *const AtomicU64 = record.marks().done(sequence);
            assert_eq!(word as usize - record.address() as usize, MarkRing::done_offset(sequence));
        }
    }

    #[test]
    fn records_stay_within_a_page_and_apart() {
        let words = zeroed(REGION_WORDS);
        let compute = ComputeRecords::known(&words).unwrap();
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
        fn mark_survives_encode_and_decode(sequence: u32, device in 0..MAX_DEVICES, estimate_us in 0..=CompletionMark::MOST_US) {
            let mark = mark(sequence, device, estimate_us);
            prop_assert_eq!(CompletionMark::decode(mark.encode()), Some(mark));
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
                let most = u64::from(CompletionMark::MOST_US) * u64::from(sum.marks);
                prop_assert!(sum.estimate_us <= most);
            }
        }
    }
}
