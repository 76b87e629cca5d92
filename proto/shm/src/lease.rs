//! The lease: GPU work that a slice may have outstanding, in one word of the control region.
//!
//! One word, so that the launch gate decides by one load.

/// The right of a slice to launch work, as the daemon last decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Launches pass while it is set; else they wait until it is.
    pub open: bool,
    /// Enables the launch gate. While it is clear, no launch waits, is marked or is counted.
    pub governed: bool,
    /// Closed by the operator: no launch bypasses the gate, however long it waits.
    pub frozen: bool,
    /// Processes signal the wakeup eventfd when their first work is submitted and when their last is done.
    pub bell: bool,
    /// Depth: most GPU time outstanding per process and device while the lease is open, in microseconds.
    ///
    /// The process estimates that time itself. At most [`Lease::MOST_DEPTH_US`].
    pub depth_us: u32,
    /// Launches that may be outstanding whatever their GPU time; at most [`Lease::MOST_LEAST`].
    pub least: u8,
}

const DEPTH: u32 = 32;
const LEAST: u32 = 56;
const BELL: u32 = 60;
const FROZEN: u32 = 61;
const GOVERNED: u32 = 62;
const OPEN: u32 = 63;

impl Lease {
    /// Lease of a slice without a launch gate.
    pub const UNGOVERNED: Self =
        Self { open: true, governed: false, frozen: false, bell: false, depth_us: 0, least: 0 };
    /// Largest depth that 24 bits hold, in microseconds: sixteen seconds.
    pub const MOST_DEPTH_US: u32 = (1 << 24) - 1;
    /// Largest [`Lease::least`] that 4 bits hold.
    pub const MOST_LEAST: u8 = 15;

    /// The lease as a word, with `turn` in its lower half. Figures above their limits are clamped.
    pub fn encode(self, turn: u32) -> u64 {
        u64::from(turn)
            | u64::from(self.depth_us.min(Self::MOST_DEPTH_US)) << DEPTH
            | u64::from(self.least.min(Self::MOST_LEAST)) << LEAST
            | u64::from(self.bell) << BELL
            | u64::from(self.frozen) << FROZEN
            | u64::from(self.governed) << GOVERNED
            | u64::from(self.open) << OPEN
    }

    /// The lease in a word. Every word is a valid lease.
    pub const fn decode(word: u64) -> Self {
        Self {
            open: word >> OPEN & 1 != 0,
            governed: word >> GOVERNED & 1 != 0,
            frozen: word >> FROZEN & 1 != 0,
            bell: word >> BELL & 1 != 0,
            depth_us: (word >> DEPTH) as u32 & Self::MOST_DEPTH_US,
            least: (word >> LEAST) as u8 & Self::MOST_LEAST,
        }
    }

    /// Number of the lease's change, modulo 2^32: the half of the word on which waiters' futexes sleep.
    pub const fn turn(word: u64) -> u32 {
        word as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_word_survives_decode_and_encode(word: u64) {
            prop_assert_eq!(Lease::decode(word).encode(Lease::turn(word)), word);
        }

        #[test]
        fn large_figures_are_clamped_without_other_changes(depth_us: u32, least: u8, turn: u32) {
            let lease = Lease { depth_us, least, ..Lease::UNGOVERNED };
            let back = Lease::decode(lease.encode(turn));
            prop_assert_eq!(back.depth_us, depth_us.min(Lease::MOST_DEPTH_US));
            prop_assert_eq!(back.least, least.min(Lease::MOST_LEAST));
            prop_assert_eq!(Lease { depth_us, least, ..back }, lease);
        }
    }
}
