//! The board: a file of words that the parts of a run share: supervisor, nursery, tenants and daemons.
//!
//! A tenant records each step in its own lane before it may die of it, so that the last steps of the dead are known.

use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use nix::unistd::Pid;

use crate::chance::Chance;
use crate::delays;
use crate::points::table::{DAEMON, TENANT};
use crate::sys::{self, Fd, MappingAccess};

/// Most tenants at a time.
pub const TENANTS: usize = 16;
/// Most threads of a tenant.
pub const THREADS: usize = 3;
/// Lanes of each tenant: one for each of its threads, and for each of its child's.
const LANES_EACH: usize = 2 * THREADS;
const LANES: usize = TENANTS * LANES_EACH;
/// Most pieces of shared memory that tenants offer at a time.
const OFFERS: usize = 16;

const LANE_WORDS: usize = 8;
const FIRST_LANE: usize = 32;
const FIRST_OFFER: usize = FIRST_LANE + LANES * LANE_WORDS;
const FIRST_POINT: usize = FIRST_OFFER + OFFERS;
const WORDS: usize = FIRST_POINT + 2 * (TENANT.len() + DAEMON.len());

/// Counters and states, one word each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Not 0: the nursery ends all tenants and itself.
    Stop,
    /// Tenants that were killed.
    Deaths,
    /// Of these, killed from outside.
    RandomDeaths,
    /// Tenants that ended in another way.
    Endings,
    /// Panics of tenants, which may be killed before they end of them.
    Panics,
    /// Odd while no daemon answers; moves with each death and each return.
    DaemonTurn,
    /// Pid of the present daemon, or 0.
    Daemon,
    /// Time for which the daemon waited for a processor, in all, in nanoseconds.
    DaemonDelay,
    /// Longest block of a thread while a daemon answered, less waits for a processor, in nanoseconds.
    Blocked,
    /// The same with these waits.
    BlockedRaw,
    /// Longest block of a thread by a death of the daemon, in nanoseconds.
    BlockedRestart,
    /// Charges that were made.
    Charges,
    /// Charges that were refused.
    Refusals,
    /// Processes that the daemon admitted.
    Attached,
    /// Processes that were not admitted, though a daemon answered all the time.
    TurnedAway,
    /// Times that a process held more of the device than it was charged.
    Uncharged,
    /// Passages of points that the table does not contain.
    UnknownPoint,
    /// Times that the driver refused an allocation that the slice permitted.
    DriverRefusals,
    /// Allocations from pools of threads.
    Pooled,
    /// Allocations that other processes may open.
    Exports,
    /// Exported allocations that another process opened.
    Imports,
    /// Children that tenants forked.
    Children,
    /// Times that a tenant became another program by `exec`.
    Rebirths,
}

/// The words of the board's file, mapped.
#[derive(Clone, Copy, Debug)]
pub struct Board(&'static [AtomicU64]);

impl Board {
    /// Creates and maps an empty board.
    pub fn create(path: &Path) -> io::Result<Self> {
        File::create(path)?.set_len(8 * WORDS as u64)?;
        Self::open(path)
    }

    /// Maps a board that was created before.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let words = sys::map_shared(&Fd::from_raw(file.into_raw_fd()), WORDS, MappingAccess::ReadWrite);
        words.map(Self).map_err(|error| io::Error::from_raw_os_error(error.0))
    }

    /// Reads the value of a word.
    pub fn get(self, word: Word) -> u64 {
        self.0[word as usize].load(SeqCst)
    }

    /// Writes the value of a word.
    pub fn set(self, word: Word, value: u64) {
        self.0[word as usize].store(value, SeqCst);
    }

    /// Adds 1 to a word.
    pub fn count(self, word: Word) {
        self.0[word as usize].fetch_add(1, SeqCst);
    }

    /// Raises a word to `value`, if that is greater.
    pub fn raise(self, word: Word, value: u64) {
        self.0[word as usize].fetch_max(value, SeqCst);
    }

    /// The lane of a tenant's first thread; its other threads and its child have lanes of their own.
    pub fn lane(self, tenant: usize) -> Lane {
        Lane { board: self, first: FIRST_LANE + tenant % TENANTS * LANES_EACH * LANE_WORDS }
    }

    /// Offers a piece of shared memory to all tenants, in the place of another.
    pub fn offer(self, chance: &mut Chance, offer: Offer) {
        let word = offer.serial << 16 | offer.blocks;
        self.0[FIRST_OFFER + chance.below(OFFERS as u64) as usize].store(word, SeqCst);
    }

    /// A piece of shared memory by chance, which may no longer exist.
    pub fn some_offer(self, chance: &mut Chance) -> Option<Offer> {
        let word = self.0[FIRST_OFFER + chance.below(OFFERS as u64) as usize].load(SeqCst);
        (word != 0).then_some(Offer { serial: word >> 16, blocks: word & 0xffff })
    }

    /// Passages of a point; points of the daemon follow those of tenants.
    pub fn passes(self, point: usize) -> &'static AtomicU64 {
        &self.0[FIRST_POINT + 2 * point]
    }

    /// Deaths at a point.
    pub fn deaths(self, point: usize) -> &'static AtomicU64 {
        &self.0[FIRST_POINT + 2 * point + 1]
    }
}

/// A piece of shared memory, as its exporter offers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Number by which the driver identifies it.
    pub serial: u64,
    /// Size in blocks, less than 65536.
    pub blocks: u64,
}

/// Record of one thread of a tenant.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    board: Board,
    first: usize,
}

/// The instant at which a wait began, by three clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    since_ns: u64,
    turn: u64,
    own_delay_ns: u64,
    daemon_delay_ns: u64,
}

impl Lane {
    const WAITING_SINCE: usize = 0;
    const TURN: usize = 1;
    const DAEMON_DELAY: usize = 2;
    const DIED_AT: usize = 3;
    const LAST: usize = 4;
    const OWN_DELAY: usize = 5;
    const THREAD: usize = 6;

    fn word(self, at: usize) -> &'static AtomicU64 {
        &self.board.0[self.first + at]
    }

    /// The lane of another thread of the same tenant.
    pub fn of_thread(self, thread: usize) -> Self {
        Self { first: self.first + thread % LANES_EACH * LANE_WORDS, ..self }
    }

    /// The lane of the first thread of its child.
    pub fn of_child(self) -> Self {
        self.of_thread(THREADS)
    }

    /// Clears the lane and those beside it for the next tenant.
    pub fn clear(self) {
        (0..LANE_WORDS * LANES_EACH).for_each(|at| self.word(at).store(0, SeqCst));
    }

    /// Records that the thread passes a point.
    pub fn passes(self, point: usize) {
        self.word(Self::LAST).store(point as u64 + 1, SeqCst);
    }

    /// The point that the thread passed last.
    pub fn last(self) -> Option<usize> {
        (self.word(Self::LAST).load(SeqCst) as usize).checked_sub(1)
    }

    /// Records that the tenant is about to die at a point.
    pub fn dies_at(self, point: usize) {
        self.word(Self::DIED_AT).store(point as u64 + 1, SeqCst);
    }

    /// Point of the tenant's death, unless it was killed from outside.
    pub fn died_at(self) -> Option<usize> {
        (self.word(Self::DIED_AT).load(SeqCst) as usize).checked_sub(1)
    }

    /// Records the thread that has the lane.
    pub(crate) fn belongs_to(self, thread: Pid) {
        self.word(Self::THREAD).store(thread.as_raw() as u64, SeqCst);
    }

    fn thread(self) -> Option<Pid> {
        let thread = self.word(Self::THREAD).load(SeqCst);
        (thread != 0).then(|| Pid::from_raw(thread as i32))
    }

    /// Records that a wait begins.
    ///
    /// `own_delay_ns` is the time that all threads of the tenant have waited for a processor so far: one of them may
    /// wait for its turn behind another, whatever that one waits for.
    pub(crate) fn begin(self, own_delay_ns: u64) -> Wait {
        let wait = Wait {
            since_ns: sys::now_ns(),
            turn: self.board.get(Word::DaemonTurn),
            own_delay_ns,
            daemon_delay_ns: self.board.get(Word::DaemonDelay),
        };
        self.word(Self::OWN_DELAY).store(wait.own_delay_ns, SeqCst);
        self.word(Self::TURN).store(wait.turn, SeqCst);
        self.word(Self::DAEMON_DELAY).store(wait.daemon_delay_ns, SeqCst);
        self.word(Self::WAITING_SINCE).store(wait.since_ns, SeqCst);
        wait
    }

    /// Records that a wait is over; returns its length less waits for a processor.
    pub(crate) fn end(self, wait: Wait, own_delay_ns: u64) -> Duration {
        self.word(Self::WAITING_SINCE).store(0, SeqCst);
        self.enter(wait, own_delay_ns)
    }

    /// Records the waits of a tenant's threads before it is killed; returns their lanes and lengths.
    pub fn end_killed(self) -> impl Iterator<Item = (Self, Duration)> {
        let lanes = move || (0..THREADS).map(move |thread| self.of_thread(thread));
        let own_delay_ns = move || lanes().filter_map(|lane| delays::of_thread(lane.thread()?)).sum();
        lanes().filter_map(move |lane| Some((lane, lane.end_one_killed(own_delay_ns)?)))
    }

    fn end_one_killed(self, own_delay_ns: impl Fn() -> u64) -> Option<Duration> {
        let wait = self.waiting().filter(|_| self.thread().is_some_and(delays::is_asleep))?;
        let own_delay_ns = own_delay_ns();
        // The thread may have continued and recorded the wait itself, or it waits for a daemon whose death is not
        // recorded yet.
        let daemon = Pid::from_raw(self.board.get(Word::Daemon) as i32);
        let is_ours = self.waiting()? == wait && !delays::is_dead(daemon);
        is_ours.then(|| self.enter(wait, own_delay_ns))
    }

    /// The wait that has begun and not ended.
    fn waiting(self) -> Option<Wait> {
        let load = |at| self.word(at).load(SeqCst);
        let wait = Wait {
            since_ns: load(Self::WAITING_SINCE),
            turn: load(Self::TURN),
            own_delay_ns: load(Self::OWN_DELAY),
            daemon_delay_ns: load(Self::DAEMON_DELAY),
        };
        (wait.since_ns != 0).then_some(wait)
    }

    /// Records a wait; returns its length less waits for a processor, or zero if a daemon died meanwhile.
    fn enter(self, wait: Wait, own_delay_ns: u64) -> Duration {
        let raw = sys::now_ns().saturating_sub(wait.since_ns);
        let turn = self.board.get(Word::DaemonTurn);
        if turn != wait.turn || turn % 2 == 1 {
            self.board.raise(Word::BlockedRestart, raw);
            return Duration::ZERO;
        }
        let daemon_delay_ns = self.board.get(Word::DaemonDelay).saturating_sub(wait.daemon_delay_ns);
        self.board.raise(Word::BlockedRaw, raw);
        let own_delay_ns = own_delay_ns.saturating_sub(wait.own_delay_ns);
        let blocked_ns = raw.saturating_sub(own_delay_ns + daemon_delay_ns);
        self.board.raise(Word::Blocked, blocked_ns);
        Duration::from_nanos(blocked_ns)
    }
}

/// Adds 1 to a counter of points, which needs no memory order.
pub(crate) fn bump(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Relaxed) + 1
}
