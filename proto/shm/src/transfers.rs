//! Copies and fills that count as launches.

/// Copies and fills that pass the launch gate as kernel launches do, and are charged as these are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub enum CountedTransfers {
    /// Copies and fills all pass at once.
    #[default]
    None = 0,
    /// Copies and fills of every route count.
    All = 1,
    /// Fills, and copies with both ends on devices, which take GPU time from kernels. Copies over the bus do not.
    Inside = 2,
    /// Copies and fills all wait until the slice is on its GPUs, and then pass. A library that does not know it counts all.
    Held = 3,
}

impl CountedTransfers {
    /// Decodes a word of the control region. An unknown value counts all.
    #[inline]
    pub const fn of_word(word: u64) -> Self {
        match word {
            0 => Self::None,
            2 => Self::Inside,
            3 => Self::Held,
            _ => Self::All,
        }
    }
}
