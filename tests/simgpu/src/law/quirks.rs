//! Deviations of a GPU from the plain law.

/// Deviations of a GPU from the plain law, times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// Most by which a slice is longer, at random.
    pub slice_more: u64,
    /// Most by which a switch costs more, at random, when the last context still has work.
    pub switch_more: u64,
    /// A kernel is interrupted at the end of its context's slice. Without, it ends first.
    pub preempts: bool,
    /// The slice of a lone context begins anew when it is over, so that a newcomer waits for its rest.
    pub renews: bool,
    /// Number of lane heads of a context that run at full speed side by side; more share that speed.
    pub abreast: usize,
    /// Time after a change of contexts in which work runs at half speed, because caches are cold.
    pub cold: u64,
}

impl Quirks {
    /// The plain law itself.
    pub const NONE: Self =
        Self { slice_more: 0, switch_more: 0, preempts: true, renews: false, abreast: usize::MAX, cold: 0 };
}

/// The next of a row of numbers that is the same every time (SplitMix64), up to the greatest.
pub(super) const fn draw(dice: &mut u64, most: u64) -> u64 {
    if most == 0 {
        return 0;
    }
    *dice = dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (*dice ^ *dice >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ word >> 31) % (most + 1)
}
