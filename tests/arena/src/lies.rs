//! Tenants that launch nothing and write what they like into their own compute record.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

use tranche_shm::DeviceSlot;
use tranche_shm::compute::{CompletionMark, ComputeRecord, MARKS, RECORD_WORDS, Tally};

use crate::chance::Chance;
use crate::{MS, US};

/// One step of a strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Number of threads that wait at the gate.
    Waiting(u64),
    /// A new marker, of an estimate in microseconds.
    Marker(u32),
    /// The whole ring filled with markers of this estimate.
    Ring(u32),
    /// Every marker is reached.
    Reached,
    /// Busy since now plus this offset in nanoseconds; at `i64::MIN` not busy.
    Since(i64),
    /// Adds nanoseconds to the busy time of earlier stretches.
    Busy(u64),
    /// Adds to the number of launches.
    Launches(u64),
    /// Reported length of a kernel in nanoseconds.
    Kernel(u64),
    /// Reported length of the longest launch in nanoseconds.
    Longest(u64),
    /// The number of the last marker.
    Sequence(u64),
    /// A word at a place of the record.
    Word(usize, u64),
    /// The whole record is zeroed.
    Clear,
    /// Signals the slice's wakeup to the daemon.
    Wakeup,
    /// The next step only while the lease is open, or only while it is closed.
    If(bool),
    /// Sleeps for a number of nanoseconds.
    Sleep(u64),
}

/// A strategy: its steps, again and again.
#[derive(Clone, Copy, Debug)]
pub enum Lies {
    /// A fixed list of steps.
    Steps(&'static [Lie]),
    /// Drawn from a seed: plausible ones and absurd ones.
    Drawn(u64),
    /// Random words at random places; the second field is the pause after each in nanoseconds.
    Words(u64, u64),
}

/// Strategies that were found to keep others out, or might, each with what it does.
pub const STRATEGIES: &[(&str, &[Lie])] = &[
    (
        "a new marker each time, busy since now",
        &[Lie::Reached, Lie::Marker(1_000), Lie::Since(0), Lie::Wakeup, Lie::Sleep(2 * MS)],
    ),
    (
        "a full ring that is never reached, and moves on",
        &[Lie::Ring(16_000_000), Lie::Since(0), Lie::Sleep(5 * MS)],
    ),
    (
        "threads that wait for ever while a count goes up",
        &[Lie::Waiting(3), Lie::Launches(1), Lie::Wakeup, Lie::Sleep(MS)],
    ),
    (
        "busy and idle by turns",
        &[
            Lie::Marker(2_000),
            Lie::Since(0),
            Lie::Kernel(MS),
            Lie::Longest(MS),
            Lie::Wakeup,
            Lie::Sleep(900 * US),
            Lie::Reached,
            Lie::Since(i64::MIN),
            Lie::Wakeup,
            Lie::Sleep(900 * US),
        ],
    ),
    (
        "wants the GPU until it has it",
        &[
            Lie::If(false),
            Lie::Waiting(1),
            Lie::If(true),
            Lie::Waiting(0),
            Lie::Launches(1),
            Lie::Wakeup,
            Lie::Sleep(100 * US),
        ],
    ),
    (
        "work outstanding whenever it is closed",
        &[
            Lie::If(false),
            Lie::Marker(40_000),
            Lie::If(true),
            Lie::Reached,
            Lie::Since(0),
            Lie::Longest(40 * MS),
            Lie::Sleep(500 * US),
        ],
    ),
    (
        "numbers that go round",
        &[
            Lie::Sequence(u64::MAX - 1),
            Lie::Marker(500),
            Lie::Marker(500),
            Lie::Busy(u64::MAX / 2),
            Lie::Launches(u64::MAX / 3),
            Lie::Kernel(u64::MAX),
            Lie::Longest(u64::MAX),
            Lie::Sleep(3 * MS),
        ],
    ),
    (
        "busy since a time to come",
        &[Lie::Since(3_000_000_000), Lie::Marker(1_000), Lie::Sleep(4 * MS), Lie::Reached, Lie::Marker(1)],
    ),
    (
        "idle for as long as use forgives",
        &[
            Lie::Kernel(285 * US),
            Lie::Longest(285 * US),
            Lie::Launches(1),
            Lie::Marker(285),
            Lie::Since(0),
            Lie::Wakeup,
            Lie::Sleep(285 * US),
            Lie::Reached,
            Lie::Since(i64::MIN),
            Lie::Busy(285 * US),
            Lie::Sleep(95 * US),
        ],
    ),
    (
        "a turn for a moment's use, again and again",
        &[
            Lie::Waiting(1),
            Lie::Wakeup,
            Lie::If(true),
            Lie::Busy(US),
            Lie::Sleep(80 * US),
            Lie::If(true),
            Lie::Waiting(0),
            Lie::Launches(1),
            Lie::Wakeup,
            Lie::Sleep(150 * US),
        ],
    ),
    (
        "asks while it is closed, shows work while it is open, and is gone",
        &[
            Lie::If(false),
            Lie::Waiting(1),
            Lie::If(false),
            Lie::Wakeup,
            Lie::If(true),
            Lie::Marker(4_000),
            Lie::If(true),
            Lie::Since(0),
            Lie::Sleep(300 * US),
            Lie::If(true),
            Lie::Waiting(0),
            Lie::Reached,
            Lie::Since(i64::MIN),
            Lie::Wakeup,
            Lie::Sleep(6 * MS),
        ],
    ),
    (
        "stands still for a while, then goes on",
        &[Lie::Waiting(1), Lie::Launches(1), Lie::Wakeup, Lie::Sleep(200 * MS)],
    ),
];

/// Lengths in nanoseconds among which most rules of the scheduler lie.
const LENGTHS: [u64; 14] = [
    50 * US,
    90 * US,
    150 * US,
    300 * US,
    600 * US,
    MS,
    2 * MS,
    3 * MS,
    4_900 * US,
    8 * MS,
    15 * MS,
    35 * MS,
    120 * MS,
    490 * MS,
];

impl Lies {
    /// The steps of one strategy.
    pub fn steps(self) -> Vec<Lie> {
        match self {
            Self::Steps(steps) => steps.to_vec(),
            Self::Words(seed, pause) => {
                let mut chance = Chance::new(seed);
                let words = (0..512).flat_map(|_| {
                    let place = chance.word() as usize % RECORD_WORDS;
                    [Lie::Word(place, any_word(&mut chance)), Lie::Sleep(pause)]
                });
                words.collect()
            }
            Self::Drawn(seed) => {
                let mut chance = Chance::new(seed);
                let count = chance.between(2, 14);
                let mut steps: Vec<Lie> = (0..count).map(|_| draw(&mut chance)).collect();
                steps.push(Lie::Sleep(LENGTHS[chance.word() as usize % 10]));
                steps
            }
        }
    }
}

fn any_word(chance: &mut Chance) -> u64 {
    match chance.word() % 5 {
        0 => 0,
        1 => u64::MAX,
        2 => chance.word() % 100,
        3 => chance.word() % (1 << 40),
        _ => chance.word(),
    }
}

fn draw(chance: &mut Chance) -> Lie {
    let length = LENGTHS[chance.word() as usize % LENGTHS.len()];
    let estimate = u32::try_from(length / US).unwrap_or(1);
    match chance.word() % 20 {
        0 => Lie::Waiting(0),
        1 | 2 => Lie::Waiting(chance.between(1, 3)),
        3 | 4 => {
            Lie::Marker(if chance.word().is_multiple_of(4) { CompletionMark::MOST_US } else { estimate })
        }
        5 => Lie::Ring(estimate),
        6 | 7 => Lie::Reached,
        8 => Lie::Since(0),
        9 => Lie::Since([i64::MIN, 3_000_000_000, -3_000_000_000, i64::MAX][chance.word() as usize % 4]),
        10 => Lie::Busy(if chance.word().is_multiple_of(2) { length } else { any_word(chance) }),
        11 => Lie::Launches(any_word(chance)),
        12 => Lie::Kernel(if chance.word().is_multiple_of(2) { length } else { any_word(chance) }),
        13 => Lie::Longest(if chance.word().is_multiple_of(2) { length } else { any_word(chance) }),
        14 => Lie::Sequence(any_word(chance)),
        15 => Lie::Word(chance.word() as usize % RECORD_WORDS, any_word(chance)),
        16 => Lie::Clear,
        17 => Lie::Wakeup,
        18 => Lie::If(chance.word().is_multiple_of(2)),
        _ => Lie::Sleep(length),
    }
}

/// Does one step that is neither a sleep, a wakeup nor a condition.
pub fn write(words: &[AtomicU64; RECORD_WORDS], lie: Lie, now: u64) {
    let (record, Some(device)) = (ComputeRecord::over(words), DeviceSlot::new(0)) else { return };
    let tally = |tally| record.tally(tally);
    let marks = record.marks();
    let mark = |estimate_us: u32| {
        let sequence = (tally(Tally::Sequence).load(Relaxed) as u32).wrapping_add(1);
        marks.submit(CompletionMark { sequence, device, estimate_us });
    };
    match lie {
        Lie::Waiting(threads) => tally(Tally::Waiting).store(threads, Release),
        Lie::Marker(estimate) => mark(estimate),
        Lie::Ring(estimate) => (0..MARKS).for_each(|_| mark(estimate)),
        Lie::Reached => {
            let pending: Vec<u32> = marks.pending().map(|mark| mark.sequence).collect();
            pending.into_iter().for_each(|sequence| marks.finish(sequence));
        }
        Lie::Since(i64::MIN) => record.busy_since_ns(device).store(0, Release),
        Lie::Since(off) => {
            record.busy_since_ns(device).store(now.saturating_add_signed(off).max(1), Release);
        }
        Lie::Busy(more) => {
            record.busy_ns(device).fetch_add(more, Relaxed);
        }
        Lie::Launches(more) => {
            tally(Tally::Launches).fetch_add(more, Relaxed);
        }
        Lie::Kernel(length) => tally(Tally::KernelNs).store(length, Relaxed),
        Lie::Longest(length) => tally(Tally::LongestNs).store(length, Relaxed),
        Lie::Sequence(number) => tally(Tally::Sequence).store(number, Relaxed),
        Lie::Word(place, word) => words[place % RECORD_WORDS].store(word, Relaxed),
        Lie::Clear => words.iter().for_each(|word| word.store(0, Relaxed)),
        Lie::Wakeup | Lie::If(_) | Lie::Sleep(_) => {}
    }
}
