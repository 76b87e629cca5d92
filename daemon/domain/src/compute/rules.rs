//! The numbers by which the arbiter decides.

use crate::compute::time::Nanos;

/// The numbers by which the arbiter decides. [`Rules::default`] are the ones that measured best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How much GPU time a slice uses before another that wants the GPU gets its turn.
    pub quantum: Nanos,
    /// How many slices may be open on one GPU at a time, at least 1. More than one costs fairness where the
    /// hardware slices time between contexts, because nobody can say then who used it.
    pub width: u32,
    /// GPU time that the open slice may have outstanding while others want the GPU.
    pub depth: Nanos,
    /// GPU time that a slice may have outstanding while nobody else wants the GPU.
    pub lone_depth: Nanos,
    /// How long ago a slice may have used the GPU and still count as wanting it.
    pub hysteresis: Nanos,
    /// The next slice is opened when the former has no more than this outstanding.
    pub overlap: Nanos,
    /// A former holder that makes no progress for so long is waited for no more.
    pub stall: Nanos,
    /// The next slice is opened only when the former has nothing outstanding.
    pub strict_drain: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            quantum: Nanos::millis(10),
            width: 1,
            depth: Nanos::millis(4),
            lone_depth: Nanos::millis(100),
            hysteresis: Nanos::millis(5),
            overlap: Nanos::micros(200),
            stall: Nanos::millis(50),
            strict_drain: false,
        }
    }
}
