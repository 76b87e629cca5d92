//! The gate before launches: who may launch now, what is outstanding, and how long it takes.
//!
//! A launch is let through by a comparison and a countdown (the *fast path*, which is the hooks' business) as long
//! as the lease is the one under which the countdown was granted. All else comes here.
//!
//! Laws:
//! - *Nobody hangs.* A thread waits for a closed lease no longer than the daemon lives, and for its own work no
//!   longer than that makes progress. What is frozen stays so until it is thawed.
//! - No lock of ours is held while the driver runs or while a thread waits.
//! - What is captured is neither delayed nor counted: it does not run.
//! - A completion is believed when the GPU has written it or the program has waited for it, not before.

mod admit;
mod measure;
mod pace;
mod room;
mod state;
mod transfer;
mod wait;
mod width;

use core::sync::atomic::Ordering::Acquire;

use tranche_shm::DeviceSlot;
use tranche_shm::compute::Record;
use tranche_shm::control::Control;
use tranche_shm::lease::Lease;

use crate::lock::Pause;
use state::State;
pub use transfer::{Route, Transfer};

/// Words that a gate needs, zero before its first use.
pub const GATE_WORDS: usize = state::WORDS;
/// A mark stands behind at least so much GPU time: more often, they would cost more than they tell.
const SPACING_NS: u64 = 200_000;
/// As often as this a mark stands behind what may be outstanding.
const MARKS_IN_DEPTH: u64 = 16;
/// Launches that may be outstanding as long as nobody knows how long they take.
const UNKNOWN_LAUNCHES: u64 = 4;
/// The most launches that a thread makes before it comes here again.
const MOST_GRANTED: u64 = 4096;

/// The thread and the machine around it.
pub trait Host {
    /// CLOCK_MONOTONIC in nanoseconds.
    fn now_ns(&self) -> u64;
    /// Sleeps about so long, or less.
    fn sleep_ns(&self, nanoseconds: u64);
    /// Sleeps until the lease's turn is another than this, at most so long, or less.
    fn wait_for_turn(&self, turn: u32, nanoseconds: u64);
    /// Rings the slice's bell.
    fn ring(&self);
    /// Where the GPU does not write its marks, finds out which are reached and finishes them. Returns whether there are
    /// others, about which it is to be asked again.
    fn refresh(&self) -> bool {
        false
    }
}

/// One launch, and the driver that does it.
pub trait Launch {
    /// Tests if it is recorded instead of done.
    fn is_captured(&self) -> bool;
    /// Where it runs; nothing if the driver will refuse it.
    fn place(&self) -> Option<Place>;
    /// Does it: 0, or the driver's error.
    fn launch(&self) -> i32;
    /// Asks the GPU to write the number of a mark once what is before it is done. Says whether it will.
    fn mark(&self, sequence: u32) -> bool;
}

/// Device, context and queue of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The device.
    pub device: DeviceSlot,
    /// The context.
    pub context: u64,
    /// The queue in which it runs after what came before, by any number that no other queue of the process has: what
    /// is in other queues may run beside it.
    pub stream: u64,
}

/// A launch that may be made.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// The lease that said so.
    word: u64,
    /// It is the first after an idle time.
    fresh: bool,
    /// It is to be seen what becomes of it beside others, or alone.
    watched: bool,
    now: u64,
    /// Streams with work, its own included; 0 if that had some before.
    streams: u64,
}

/// What is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A kernel, or what takes as long as one.
    Kernel,
    /// A graph, by its executable's handle: what it takes is learnt for each.
    Graph(u64),
    /// A copy or fill: what it takes is learnt for its like.
    Transfer(Transfer),
}

/// What a thread may launch without coming here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// As long as the lease has this turn.
    pub turn: u32,
    /// So many launches.
    pub launches: u32,
    /// On this device; nothing where they are not counted.
    pub device: Option<DeviceSlot>,
}

/// What a thread has launched without coming here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// So many launches.
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

    /// What was launched of it, where so many are left.
    pub const fn spent(self, left: u32) -> Spent {
        Spent { launches: self.launches.saturating_sub(left), device: self.device }
    }
}

/// What was pending when a wait began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    any: bool,
    last: u32,
    /// When that was; 0 if nobody waits.
    asked: u64,
}

/// What the program has waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// All work of the context.
    Context,
    /// All work of a stream, or as good as.
    Stream,
    /// Some work.
    Event,
}

/// The gate of one process.
#[derive(Clone, Copy, Debug)]
pub struct Gate<'a> {
    control: Control<'a>,
    record: Record<'a>,
    state: State<'a>,
}

impl<'a> Gate<'a> {
    /// The gate over a process's record and words of its own.
    #[inline]
    pub fn over(
        control: Control<'a>,
        record: Record<'a>,
        words: &'a [core::sync::atomic::AtomicU64],
        pause: Pause,
    ) -> Option<Self> {
        Some(Self { control, record, state: State::over(words, pause)? })
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
        let grant = self.enter(place, work, pass, launch);
        self.tell(pass, host);
        (result, grant)
    }
}

const fn passes(lease: Lease) -> bool {
    lease.open && !lease.frozen || !lease.governed
}

#[cfg(test)]
mod tests;
