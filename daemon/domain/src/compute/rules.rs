//! Constants of the scheduler.

use crate::compute::time::Nanos;

/// Constants of the scheduler. [`Rules::default`] has those that measured best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// GPU time that a slice uses in a turn.
    pub quantum: Nanos,
    /// Longest round of turns: turns are shorter where many slices want one.
    pub round: Nanos,
    /// Shortest turn, however many slices want one.
    pub least_quantum: Nanos,
    /// GPU time that a slice uses before another runs in its gaps, unless a gap is longer than `grace`.
    pub least_turn: Nanos,
    /// Idle time of a slice after which another runs, whatever it used.
    pub grace: Nanos,
    /// Slices that may be open on one GPU at a time, at least 1.
    ///
    /// More than one costs fairness where the hardware slices time between contexts, as use cannot be attributed then.
    pub width: u32,
    /// GPU time that the open slice may have outstanding while others want the GPU.
    pub depth: Nanos,
    /// The same, or two launches, while a slice within its share comes back now and then.
    pub shallow: Nanos,
    /// GPU time that a slice may have outstanding while no other wants the GPU.
    pub lone_depth: Nanos,
    /// Time since a slice wanted the GPU within which it counts as coming back at once.
    pub hysteresis: Nanos,
    /// Lead, in GPU time, up to which a slice fills the gaps of one that comes back at once.
    pub lead: Nanos,
    /// Lag, in GPU time, from which a slice interrupts another's turn when it wakes.
    pub preempt: Nanos,
    /// GPU time that an idle slice saves up at most.
    pub memory: Nanos,
    /// GPU time by which a slice may fall behind others while it wants nothing, between two kernels.
    pub lag: Nanos,
    /// Outstanding GPU time of the former slice at which the next is opened.
    pub overlap: Nanos,
    /// Time without progress, beyond its longest kernel, after which others wait no longer for a slice.
    pub stall: Nanos,
    /// Time since a closing after which a slice without outstanding work has none until it is opened.
    pub drained: Nanos,
    /// Longest kernel that is waited for in full.
    pub longest: Nanos,
    /// Wait after which a slice is first for one launch, whatever it used.
    pub starved: Nanos,
    /// GPU time by which a slice may exceed its limit at a time, and which it repays.
    pub burst: Nanos,
    /// Time for which a slice that wanted the GPU counts as present.
    pub about: Nanos,
    /// Time, in permille, that all slices of a GPU keep from others without use before that is charged.
    ///
    /// Each has its request of that.
    pub slack: u32,
    /// The same in permille of the time in which NVML saw a slice's processes compute.
    pub gaps: u32,
    /// Part of the time in permille, from which waits for a slice count that NVML sees compute nothing.
    pub held: u32,
    /// Age up to which a sample of NVML holds.
    pub confirmed: Nanos,
    /// Greatest slack that a slice saves up.
    pub most_slack: Nanos,
    /// The next slice is opened only when the former has nothing outstanding.
    pub strict_drain: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            quantum: Nanos::millis(10),
            round: Nanos::millis(40),
            least_quantum: Nanos::millis(3),
            least_turn: Nanos::micros(250),
            grace: Nanos::micros(100),
            width: 1,
            depth: Nanos::millis(4),
            shallow: Nanos::micros(400),
            lone_depth: Nanos::millis(20),
            hysteresis: Nanos::millis(5),
            lead: Nanos::millis(10),
            preempt: Nanos::millis(1),
            memory: Nanos::millis(10),
            lag: Nanos::millis(40),
            overlap: Nanos::micros(250),
            stall: Nanos::millis(30),
            drained: Nanos::millis(1),
            longest: Nanos::millis(40),
            starved: Nanos::millis(500),
            burst: Nanos::millis(15),
            about: Nanos::millis(1000),
            slack: 30,
            gaps: 350,
            held: 100,
            confirmed: Nanos::millis(3000),
            most_slack: Nanos::millis(8),
            strict_drain: false,
        }
    }
}
