//! In what a GPU may differ from the plain law.

/// What a GPU does that the plain law does not have. In nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// A slice is up to so much longer, at random.
    pub slice_more: u64,
    /// A switch, to which the last context is not ready to go on, costs up to so much more, at random.
    pub switch_more: u64,
    /// A kernel is interrupted at the end of its context's slice. Without, it ends first.
    pub preempts: bool,
    /// The slice of a context that is alone begins anew when it is over, so that a newcomer waits for the rest of it.
    pub renews: bool,
    /// So many heads of a context's lanes run at full speed side by side; more share the speed of so many.
    pub abreast: usize,
    /// For so long after a change of contexts work runs at half its speed: caches are cold.
    pub cold: u64,
}

impl Quirks {
    /// None.
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
