use super::process::HOPE;
use super::*;
use proptest::prelude::*;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use tranche_shm::compute::{CompletionMark, RECORD_WORDS, Tally};

const MS: u64 = 1_000_000;

struct Page(Vec<AtomicU64>);

impl Page {
    fn new() -> Self {
        Self((0..RECORD_WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    fn record(&self) -> ComputeRecord<'_> {
        ComputeRecord::over(self.0.first_chunk().unwrap())
    }

    fn begin(&self, at_ms: u64, sequence: u32, estimate_ms: u32) {
        self.record().busy_since_ns(first()).store(at_ms * MS, Relaxed);
        self.submit(sequence, estimate_ms);
    }

    fn submit(&self, sequence: u32, estimate_ms: u32) {
        self.record().marks().submit(CompletionMark {
            sequence,
            device: first(),
            estimate_us: estimate_ms * 1000,
        });
    }

    fn learn(&self, busy_ms: u64) {
        self.record().busy_ns(first()).store(busy_ms * MS, Relaxed);
        self.record().busy_since_ns(first()).store(0, Relaxed);
    }
}

fn first() -> DeviceSlot {
    DeviceSlot::new(0).unwrap()
}

fn account() -> Account {
    Account::new(&[GpuUuid::from_bytes([1; 16])])
}

fn look(account: &mut Account, at_ms: u64, pages: &[&Page]) -> Observed {
    let records = pages.iter().zip(1..).map(|(page, pid)| {
        let identity = ProcessIdentity { pid, start_time: 1, inner_pid: pid };
        (Slot::new(pid as usize).unwrap(), identity, page.record())
    });
    account.look(Instant::from_nanos(at_ms * MS), records)
}

fn busy_ms(seen: &Observed) -> u64 {
    seen.busy[0].get() / MS
}

#[test]
fn synchronizing_process_is_charged_as_it_reports() {
    let (page, mut account) = (Page::new(), account());
    look(&mut account, 100, &[&page]);
    page.begin(101, 1, 1);
    let seen = look(&mut account, 102, &[&page]);
    assert_eq!((busy_ms(&seen), seen.outstanding), (1, Nanos::millis(1)));
    assert!(account.is_active());
    page.record().marks().finish(1);
    page.learn(2);
    let seen = look(&mut account, 110, &[&page]);
    assert_eq!((busy_ms(&seen), seen.outstanding), (2, Nanos::ZERO), "two of the ten");
    assert!(!account.is_active());
}

#[test]
fn unaware_process_is_not_charged_for_idleness() {
    let (page, mut account) = (Page::new(), account());
    look(&mut account, 100, &[&page]);
    page.begin(100, 1, 3);
    look(&mut account, 101, &[&page]);
    page.record().marks().finish(1);
    assert_eq!(busy_ms(&look(&mut account, 150, &[&page])), 4, "three were outstanding at the last look");
    assert_eq!(busy_ms(&look(&mut account, 200, &[&page])), 4);
    page.submit(2, 3);
    assert_eq!(busy_ms(&look(&mut account, 202, &[&page])), 6, "it goes on in the same stretch");
}

#[test]
fn finished_work_is_not_charged_on_late_notice() {
    let (page, mut account) = (Page::new(), account());
    look(&mut account, 100, &[&page]);
    page.begin(100, 1, 3);
    look(&mut account, 101, &[&page]);
    page.record().marks().finish(1);
    assert_eq!(busy_ms(&look(&mut account, 150, &[&page])), 4);
    page.learn(30);
    page.begin(151, 2, 3);
    page.record().tally(Tally::Launches).store(1, Relaxed);
    page.record().tally(Tally::KernelNs).store(2 * MS, Relaxed);
    assert_eq!(busy_ms(&look(&mut account, 153, &[&page])), 6, "two more, whatever it says of the first");
}

#[test]
fn launches_are_in_order_where_each_process_with_work_says_so() {
    let (pages, mut account) = ([Page::new(), Page::new()], account());
    let mut in_order = |streams: [u64; 2], at_ms| {
        for (page, streams) in pages.iter().zip(streams) {
            page.record().tally(Tally::Streams).store(streams, Relaxed);
        }
        look(&mut account, at_ms, &[&pages[0], &pages[1]]).in_order
    };
    assert!(!in_order([1, 1], 100), "none has work");
    pages[0].begin(101, 1, 1);
    assert!(in_order([1, 2], 102), "the other has no work");
    pages[1].begin(103, 1, 1);
    assert!(in_order([1, 1], 104));
    assert!(!in_order([1, 2], 105));
    assert!(!in_order([0, 1], 106), "an earlier release does not say");
}

#[test]
fn concurrently_busy_processes_count_once() {
    let (pages, mut account) = ([Page::new(), Page::new(), Page::new()], account());
    let pages: Vec<&Page> = pages.iter().collect();
    look(&mut account, 100, &pages);
    pages.iter().for_each(|page| page.begin(100, 1, 50));
    let seen = look(&mut account, 110, &pages);
    assert_eq!((busy_ms(&seen), seen.outstanding), (10, Nanos::millis(150)));
    assert_eq!((account.launching(), seen.contexts), (3, 3));
    pages[1].record().marks().done(1).store(1, Relaxed);
    assert_eq!(look(&mut account, 111, &pages).contexts, 2, "the work of one is done");
}

#[test]
fn use_before_the_first_look_is_not_charged() {
    let (page, mut account) = (Page::new(), account());
    page.learn(5000);
    page.begin(50, 1, 9);
    assert_eq!(busy_ms(&look(&mut account, 100, &[&page])), 0);
    assert_eq!(busy_ms(&look(&mut account, 101, &[&page])), 1);
    let fresh = Page::new();
    fresh.record().tally(Tally::Degraded).store(5, Relaxed);
    let mut account = self::account();
    look(&mut account, 100, &[&fresh]);
    look(&mut account, 101, &[&fresh]);
    assert_eq!(account.let_through(), (0, 5), "but what passed while there was no daemon is counted, once");
}

#[test]
fn process_in_a_reused_slot_starts_at_zero() {
    let (page, mut account) = (Page::new(), account());
    page.learn(5000);
    look(&mut account, 100, &[&page]);
    let fresh = Page::new();
    fresh.learn(3);
    let other = ProcessIdentity { pid: 9, start_time: 9, inner_pid: 9 };
    let records = [(Slot::new(1).unwrap(), other, fresh.record())];
    let seen = account.look(Instant::from_nanos(110 * MS), records.into_iter());
    assert_eq!(busy_ms(&seen), 3);
}

#[test]
fn submitted_and_reached_markers_are_progress() {
    let (page, mut account) = (Page::new(), account());
    let mut seen = vec![look(&mut account, 1, &[&page]).progress];
    for sequence in 1..=3 {
        page.submit(sequence, 1);
        seen.push(look(&mut account, 1, &[&page]).progress);
    }
    for sequence in 1..=3 {
        page.record().marks().finish(sequence);
        seen.push(look(&mut account, 1, &[&page]).progress);
    }
    assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "{seen:?}");
}

#[test]
fn launch_estimate_is_bounded_by_the_longest_stall() {
    let (page, mut account) = (Page::new(), account());
    look(&mut account, 100, &[&page]);
    page.record().tally(Tally::KernelNs).store(MS, Relaxed);
    page.record().tally(Tally::LongestNs).store(40 * MS, Relaxed);
    page.begin(100, 1, 1);
    assert_eq!(look(&mut account, 100, &[&page]).longest, Nanos::millis(40), "nothing speaks against it");
    let mut seen = Observed::default();
    for at in 101..140 {
        page.record().marks().finish(at - 100);
        page.submit(at - 99, 1);
        seen = look(&mut account, at.into(), &[&page]);
        page.record().tally(Tally::Launches).fetch_add(1, Relaxed);
    }
    assert_eq!((seen.kernel, seen.longest), (Nanos::millis(1), Nanos::millis(1)));
    look(&mut account, 140, &[&page]);
    let seen = look(&mut account, 170, &[&page]);
    assert_eq!(seen.longest, Nanos::millis(30), "now it stands still");
}

#[test]
fn gpus_are_reported_in_sorted_order() {
    let gpus = [GpuUuid::from_bytes([9; 16]), GpuUuid::from_bytes([1; 16])];
    let (page, mut account) = (Page::new(), Account::new(&gpus));
    look(&mut account, 100, &[&page]);
    page.begin(100, 1, 50);
    let seen = look(&mut account, 103, &[&page]);
    assert_eq!(seen.busy, [Nanos::ZERO, Nanos::millis(3)], "the first device is the second GPU");
}

proptest! {
    #[test]
    fn hostile_records_never_exceed_elapsed_time(
        rounds in prop::collection::vec((0u64..5000, prop::collection::vec(any::<(usize, u64)>(), 0..40)), 1..20),
    ) {
        let (pages, mut account) = ([Page::new(), Page::new()], account());
        let (mut at, mut before) = (1000, None);
        for (pause, words) in rounds {
            at += pause;
            for (place, word) in words {
                pages[place % 2].0[place / 2 % RECORD_WORDS].store(word, Relaxed);
            }
            let seen = look(&mut account, at, &[&pages[0], &pages[1]]);
            if let Some((busy, then)) = before {
                prop_assert!(seen.busy[0].get() - busy <= (at - then) * MS);
            }
            before = Some((seen.busy[0].get(), at));
        }
    }
}

#[test]
fn endless_launch_estimate_is_bounded() {
    let (page, mut account) = (Page::new(), account());
    look(&mut account, 100, &[&page]);
    page.begin(100, 1, 1);
    let longest = |account: &mut Account, at_ms| look(account, at_ms, &[&page]).longest;
    for at_ms in 101..150 {
        longest(&mut account, at_ms);
    }
    assert!(longest(&mut account, 150) <= HOPE, "others would wait for it");
    assert!(longest(&mut account, 900) <= HOPE, "for ever");
}
