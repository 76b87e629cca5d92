//! The gate before launches: the lease in force, outstanding work, and lengths of launches.
//!
//! A launch is let through by a comparison and a countdown (the *fast path*, which is the hooks' business) as long
//! as the lease is the one under which the countdown was granted. All else comes here.
//!
//! Laws:
//! - *No thread hangs.* A thread waits for a closed lease hardly longer than the daemon lives, and for its own work no
//!   longer than that makes progress. A frozen slice waits until it is thawed.
//! - No lock of ours is held while the driver runs or while a thread waits.
//! - Captured work is neither delayed nor counted: it does not run.
//! - A completion counts when the GPU has written it or the program has waited for it, not before.

mod admit;
mod measure;
mod pace;
mod room;
mod state;
mod transfer;
mod unmarked;
mod wait;
mod width;

use core::sync::atomic::Ordering::Acquire;

use tranche_shm::DeviceSlot;
use tranche_shm::compute::ComputeRecord;
use tranche_shm::control::Control;
use tranche_shm::lease::Lease;

use crate::lock::Pause;
use state::GateState;
pub use transfer::{Route, Transfer};

/// Words that a gate needs, zero before its first use.
pub const GATE_WORDS: usize = state::WORDS;
/// Least GPU time between two marks, in nanoseconds: closer, they would cost more than they are worth.
const SPACING_NS: u64 = 200_000;
/// As often as this a mark stands behind what may be outstanding.
const MARKS_IN_DEPTH: u64 = 16;
/// Launches that may be outstanding while their length is unknown.
const UNKNOWN_LAUNCHES: u64 = 4;
/// The most launches that a thread makes before it comes here again.
const MOST_GRANTED: u64 = 4096;

/// The thread and the machine around it.
pub trait Host {
    /// CLOCK_MONOTONIC in nanoseconds.
    fn now_ns(&self) -> u64;
    /// Sleeps about so long, or less.
    fn sleep_ns(&self, nanoseconds: u64);
    /// Lets a microsecond pass or less, without giving up the processor.
    fn pause(&self);
    /// Sleeps until the lease's turn is another than this, at most so long, or less.
    fn wait_for_turn(&self, turn: u32, nanoseconds: u64);
    /// Rings the slice's bell.
    fn ring(&self);
    /// Tests if the daemon has ended, as far as the kernel shows that; false where it shows nothing.
    fn has_daemon_ended(&self) -> bool;
    /// Queries and finishes the marks that are reached, where the GPU does not write them.
    ///
    /// Returns true if others are pending, so that another query is due.
    fn refresh(&self) -> bool {
        false
    }
}

/// One launch, and the driver that does it.
pub trait Launch {
    /// Tests if it is recorded instead of done.
    fn is_captured(&self) -> bool;
    /// Device, context and queue of the launch; `None` if the driver will refuse it.
    fn place(&self) -> Option<LaunchTarget>;
    /// Does it: 0, or the driver's error.
    fn launch(&self) -> i32;
    /// Puts a mark into the stream, whose number the GPU writes once the work before it is done.
    ///
    /// Returns true if the driver took it.
    fn mark(&self, sequence: u32) -> bool;
}

/// Device, context and queue of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchTarget {
    /// Device of the slice.
    pub device: DeviceSlot,
    /// Handle of the context.
    pub context: u64,
    /// Number of its queue, unique in the process.
    ///
    /// It runs after earlier work in its queue, and beside work in others.
    pub stream: u64,
}

/// A launch that may be made.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// Word of the lease under which it was decided.
    word: u64,
    /// It is the first after an idle time.
    fresh: bool,
    /// Its length beside others, or alone, is measured.
    watched: bool,
    now: u64,
    /// Streams with work, its own included; 0 if that had some before.
    streams: u64,
}

/// Kind of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A kernel, or what takes as long as one.
    Kernel,
    /// A graph, by its executable's handle: what it takes is learnt for each.
    Graph(u64),
    /// A copy or fill: what it takes is learnt for its like.
    Transfer(Transfer),
}

/// Launches of a thread that pass without a call of the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// As long as the lease has this turn.
    pub turn: u32,
    /// Launches granted to the thread.
    pub launches: u32,
    /// On this device; nothing where they are not counted.
    pub device: Option<DeviceSlot>,
}

/// Launches of a thread that passed without a call of the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Launches since the thread was last at the gate.
    pub launches: u32,
    /// For which it had a grant on this device; nothing if it had none.
    pub device: Option<DeviceSlot>,
}

impl Grant {
    /// Every launch comes here.
    pub const NONE: Self = Self { turn: 0, launches: 0, device: None };

    const fn free(word: u64) -> Self {
        Self { turn: Lease::turn(word), launches: i32::MAX as u32, device: None }
    }

    /// Part of it that was launched, where `left` launches remain.
    pub const fn spent(self, left: u32) -> Spent {
        Spent { launches: self.launches.saturating_sub(left), device: self.device }
    }
}

/// Marks that were pending when a wait began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    any: bool,
    last: u32,
    /// Begin of the wait; 0 if no thread waits.
    asked: u64,
}

/// Work for which the program has waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// All work of the context.
    Context,
    /// All work of a stream, or as good as.
    Stream,
    /// The work before an event.
    Event,
}

/// The gate of one process.
#[derive(Clone, Copy, Debug)]
pub struct Gate<'a> {
    control: Control<'a>,
    record: ComputeRecord<'a>,
    state: GateState<'a>,
}

impl<'a> Gate<'a> {
    /// The gate over a process's record and words of its own.
    #[inline]
    pub fn over(
        control: Control<'a>,
        record: ComputeRecord<'a>,
        words: &'a [core::sync::atomic::AtomicU64],
        pause: Pause,
    ) -> Option<Self> {
        Some(Self { control, record, state: GateState::over(words, pause)? })
    }

    /// Tests if there is a gate at all.
    pub fn is_governed(&self) -> bool {
        self.control.lease().governed
    }

    /// Lets one launch through when it may, and gives what came of it. `spent` is what the thread has launched by
    /// itself since it was here last, perhaps on another device.
    pub fn launch(&self, spent: Spent, work: Work, host: &impl Host, launch: &impl Launch) -> (i32, Grant) {
        let word = self.control.lease_word().load(Acquire);
        if !Lease::decode(word).governed {
            return (launch.launch(), Grant::free(word));
        }
        if launch.is_captured() {
            return (launch.launch(), Grant::NONE);
        }
        let Some(place) = launch.place() else { return (launch.launch(), Grant::NONE) };
        let pass = self.admit(place, spent, host, launch);
        let result = launch.launch();
        if result != 0 {
            self.fail(place, pass, host);
            return (result, Grant::NONE);
        }
        let (grant, is_news) = self.enter(place, work, pass, launch);
        // Once its amount is recorded: the daemon may decide before the next line of this thread runs.
        if is_news && (Lease::decode(pass.word).bell || self.control.lease().bell) {
            host.ring();
        }
        (result, grant)
    }
}

const fn passes(lease: Lease) -> bool {
    lease.open && !lease.frozen || !lease.governed
}

#[cfg(test)]
mod tests;
