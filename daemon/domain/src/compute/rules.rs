//! The numbers by which the arbiter decides.

use crate::compute::time::Nanos;

/// The numbers by which the arbiter decides. [`Rules::default`] are the ones that measured best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How much GPU time a slice uses before another that wants the GPU gets its turn.
    pub quantum: Nanos,
    /// How long a round of turns should be at most: turns are shorter where many want one.
    pub round: Nanos,
    /// How long a turn is at least.
    pub least_quantum: Nanos,
    /// How much GPU time a slice uses before another runs in its gaps, unless a gap is longer than `grace`.
    pub least_turn: Nanos,
    /// How long a holder may be idle before another runs, whatever it used.
    pub grace: Nanos,
    /// How many slices may be open on one GPU at a time, at least 1. More than one costs fairness where the
    /// hardware slices time between contexts, because nobody can say then who used it.
    pub width: u32,
    /// GPU time that the open slice may have outstanding while others want the GPU.
    pub depth: Nanos,
    /// The same, or two launches, while another comes back now and then that is within its share.
    pub shallow: Nanos,
    /// GPU time that a slice may have outstanding while nobody else wants the GPU.
    pub lone_depth: Nanos,
    /// How long ago a slice may have wanted the GPU and still count as coming back at once.
    pub hysteresis: Nanos,
    /// How much more than its part a slice may have used and still fill the gaps of one that comes back at once.
    pub lead: Nanos,
    /// How much less than its part a slice must have used to interrupt another's turn when it wakes.
    pub preempt: Nanos,
    /// How much GPU time an idle slice may save up.
    pub memory: Nanos,
    /// How far a slice may fall behind others in GPU time while it wants nothing, between two kernels.
    pub lag: Nanos,
    /// The next slice is opened when the former has no more than this outstanding.
    pub overlap: Nanos,
    /// A slice with work that makes no progress for so long, and its longest kernel besides, is waited for no more.
    pub stall: Nanos,
    /// A slice that is seen with nothing outstanding so long after it was closed has nothing outstanding until it is opened.
    pub drained: Nanos,
    /// Kernels that take longer than this are not waited for in full.
    pub longest: Nanos,
    /// A slice that waited so long goes first, for one launch, whatever it is owed.
    pub starved: Nanos,
    /// What a slice may exceed its limit by at a time, and make up for afterwards.
    pub burst: Nanos,
    /// How long a slice of higher priority counts as being about after it wanted the GPU.
    pub about: Nanos,
    /// Time that all slices of a GPU may keep from others beyond what they use before that is charged, in permille of
    /// the time; each has its request of that.
    pub slack: u32,
    /// The same in permille of the time for which the driver saw a slice's processes compute.
    pub gaps: u32,
    /// For which part of the time others may wait because of a slice of which the driver sees nothing compute.
    pub held: u32,
    /// For how long that holds which the driver saw.
    pub confirmed: Nanos,
    /// The most of both that a slice saves up.
    pub most_slack: Nanos,
    /// The next slice is opened only when the former has nothing outstanding.
    pub strict_drain: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            quantum: Nanos::millis(10),
            round: Nanos::millis(30),
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
            most_slack: Nanos::millis(2),
            strict_drain: false,
        }
    }
}
