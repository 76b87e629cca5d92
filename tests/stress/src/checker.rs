//! Samples the memory that the slice is granted and holds, without a request to any process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::IntoRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use simgpu::Node;
use tranche_shm::control::{self, Control};
use tranche_shm::credit::{Credit, CreditWord, Units};
use tranche_shm::usage::{self, Usage};
use tranche_shm::{DeviceSlot, Slot};

use crate::board::{Board, Word};
use crate::sys::{self, Fd, MappingAccess};

/// The slice's regions, as the checker reads them.
#[derive(Clone, Copy, Debug)]
pub struct Regions {
    control: Control<'static>,
    usage: Usage<'static>,
}

impl Regions {
    /// Maps the files that the daemon created.
    pub fn open(slice: &Path) -> io::Result<Self> {
        let map = |name: &str, words| {
            let file = File::options().read(true).write(true).open(slice.join(name))?;
            sys::map_shared(&Fd::from_raw(file.into_raw_fd()), words, MappingAccess::ReadWrite)
                .map_err(|error| io::Error::from_raw_os_error(error.0))
        };
        let control = Control::attach(map("control", control::WORDS)?).map_err(io::Error::other)?;
        let usage = Usage::attach(map("usage", usage::WORDS)?).map_err(io::Error::other)?;
        Ok(Self { control, usage })
    }

    fn words(self) -> Vec<Credit> {
        let device = device();
        let slots = (0..self.control.slots_high()).filter_map(Slot::new);
        slots.map(|slot| self.usage.credit(slot, device).load()).collect()
    }

    /// All words at one instant, and the memory charged to all: two reads that agree. None if they never do.
    fn snapshot(self) -> Option<(Vec<Credit>, Units)> {
        const ATTEMPTS: usize = 50;
        let read = || (self.words(), self.control.common(device()));
        (0..ATTEMPTS).find_map(|_| {
            let (first, second) = (read(), read());
            (first == second).then_some(second)
        })
    }

    /// Bytes of credit and of the charge to all, and processes in slots: zero after all have ended.
    pub fn left(self) -> (u64, usize) {
        let common = self.control.common(device()).bytes();
        let words = self.words();
        let credit = words.iter().map(|word| word.granted.max(word.used).bytes()).sum::<u64>() + common;
        let seated = (0..self.control.slots_high()).filter_map(Slot::new);
        (credit, seated.filter(|slot| self.control.identity(*slot).is_some()).count())
    }

    /// Credit word of an attached process, to break it.
    pub fn some_word(self, number: u64) -> Option<CreditWord<'static>> {
        let taken: Vec<Slot> = (0..self.control.slots_high())
            .filter_map(Slot::new)
            .filter(|slot| self.control.identity(*slot).is_some())
            .collect();
        let slot = taken.get(number as usize % taken.len().max(1))?;
        Some(self.usage.credit(*slot, device()))
    }
}

fn device() -> DeviceSlot {
    DeviceSlot::new(0).expect("a slice has a first device")
}

/// The most that may be granted at any instant, in bytes.
#[derive(Debug)]
pub struct Bound {
    allowed: AtomicU64,
    cap: AtomicU64,
}

impl Bound {
    /// A bound that equals a cap in bytes.
    pub const fn new(cap: u64) -> Self {
        Self { allowed: AtomicU64::new(cap), cap: AtomicU64::new(cap) }
    }

    /// Raises the bound before the cap grows.
    pub fn grows(&self, cap: u64) {
        self.cap.store(cap, SeqCst);
        self.allowed.store(cap, SeqCst);
    }

    /// Records a smaller cap: once the slice was within it, it must stay so.
    pub fn shrank(&self, cap: u64) {
        self.cap.store(cap, SeqCst);
    }
}

/// Counts of samples and violations.
#[derive(Debug, Default)]
pub struct Seen {
    /// Instants at which all words were read.
    pub snapshots: AtomicU64,
    /// Of these, with more granted or used than the cap.
    pub over_grants: AtomicU64,
    /// Of these, with a process that uses more than it was granted.
    pub over_use: AtomicU64,
    /// The most that was granted beyond the cap, in bytes.
    pub worst: AtomicU64,
    /// Samples of the device's memory.
    pub device_looks: AtomicU64,
    /// Of these, with more in use than the cap.
    pub device_over: AtomicU64,
}

/// Sources and results of the checker.
#[derive(Debug)]
pub struct Checker<'a> {
    /// Regions of the slice.
    pub regions: Regions,
    /// Node with the slice's device.
    pub node: &'a Node,
    /// Bound of granted and held memory.
    pub bound: &'a Bound,
    /// Board with the daemon's delays.
    pub board: Board,
    /// Pid of the present daemon, or 0.
    pub daemon: &'a AtomicU32,
    /// Results of the samples.
    pub seen: &'a Seen,
}

impl Checker<'_> {
    /// Samples until `stop` is set.
    pub fn run(&self, stop: &AtomicBool) {
        const PAUSE: Duration = Duration::from_micros(150);
        let (mut device_due, mut delay_due) = (Instant::now(), Instant::now());
        let mut delays = Delays::default();
        while !stop.load(SeqCst) {
            self.check_words();
            if device_due <= Instant::now() {
                self.check_device();
                device_due = Instant::now() + Duration::from_millis(4);
            }
            if delay_due <= Instant::now() {
                let total = delays.add(self.daemon.load(SeqCst));
                self.board.set(Word::DaemonDelay, total);
                delay_due = Instant::now() + Duration::from_millis(5);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn check_words(&self) {
        let over = self.regions.control.over_cap(device());
        let Some((words, common)) = self.regions.snapshot() else { return };
        let sum = |half: fn(&Credit) -> Units| {
            words.iter().map(|word| half(word).bytes()).sum::<u64>() + common.bytes()
        };
        let granted = sum(|word| word.granted);
        // Read after the words: the bound is raised before the cap grows.
        let (allowed, cap) = (self.bound.allowed.load(SeqCst), self.bound.cap.load(SeqCst));
        bump(&self.seen.snapshots);
        if granted.max(sum(|word| word.used)) > allowed {
            bump(&self.seen.over_grants);
            self.seen.worst.fetch_max(granted.saturating_sub(allowed), SeqCst);
            self.describe(&words, allowed, cap);
        }
        if words.iter().any(|word| word.used > word.granted) {
            bump(&self.seen.over_use);
        }
        // While the slice is over its cap, the words may seem to be within: memory that moves from one of them to the
        // charge of all is for an instant in neither.
        if granted <= cap && !over {
            // Only down, and not where the cap has grown meanwhile.
            let _ = self.bound.allowed.compare_exchange(allowed, cap.min(allowed), SeqCst, SeqCst);
        }
    }

    /// Prints the first five over-grants in full, as evidence of the cause.
    fn describe(&self, words: &[Credit], allowed: u64, cap: u64) {
        const FEW: u64 = 5;
        if self.seen.over_grants.load(SeqCst) > FEW {
            return;
        }
        let at = sys::now_ns() / 1_000_000;
        eprintln!(
            "over-grant at {at} ms: {allowed} bytes allowed, cap {cap}, turn {}, over {}, to all {:?}",
            self.board.get(Word::DaemonTurn),
            self.regions.control.over_cap(device()),
            self.regions.control.common(device())
        );
        for (index, word) in words.iter().enumerate().filter(|(_, word)| **word != Credit::default()) {
            let identity = Slot::new(index).and_then(|slot| self.regions.control.identity(slot));
            eprintln!("  seat {index}: {word:?}, {identity:?}");
        }
    }

    fn check_device(&self) {
        let gpu = self.node.gpu(0).expect("every node has a first GPU");
        let held: u64 = self.node.holdings(gpu).iter().map(|holding| holding.memory.bytes()).sum();
        bump(&self.seen.device_looks);
        if held > self.bound.allowed.load(SeqCst) {
            bump(&self.seen.device_over);
            if self.seen.device_over.load(SeqCst) < 4 {
                eprintln!(
                    "device over at {} ms: {held} {:?}",
                    sys::now_ns() / 1_000_000,
                    self.node.holdings(gpu)
                );
                eprintln!("  {:?}", self.regions.words());
            }
        }
    }
}

/// Waits of the daemon's threads for a processor, as the kernel counts them.
///
/// Of each interval, the thread that waited longest counts.
#[derive(Debug, Default)]
struct Delays {
    total_ns: u64,
    threads: BTreeMap<String, u64>,
}

impl Delays {
    fn add(&mut self, pid: u32) -> u64 {
        let mut worst = 0;
        let mut threads = BTreeMap::new();
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let field = text.split_ascii_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
            let Some(delay) = field else { continue };
            let name = task.path().to_string_lossy().into_owned();
            worst = worst.max(delay.saturating_sub(self.threads.get(&name).copied().unwrap_or_default()));
            threads.insert(name, delay);
        }
        self.threads = threads;
        self.total_ns += worst;
        self.total_ns
    }
}

fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, SeqCst);
}
