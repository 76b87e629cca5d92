//! What a slice may have outstanding on its GPUs: one word of the control region, so that who may launch is found
//! out by one load.

/// The right of a slice to launch work, as the daemon last decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Launches pass; otherwise they wait until they do.
    pub open: bool,
    /// Whether there is a gate at all: without it nobody waits, marks or counts.
    pub governed: bool,
    /// Closed because the operator said so: however long it lasts, nothing passes.
    pub frozen: bool,
    /// Processes ring when they begin to have work outstanding, and when they have none any more.
    pub bell: bool,
    /// The most GPU time that a process may have outstanding on a device while the lease is open, as it estimates
    /// it, in microseconds; at most [`Lease::MOST_DEPTH_US`].
    pub depth_us: u32,
    /// So many launches may be outstanding however long they take; at most [`Lease::MOST_LEAST`].
    pub least: u8,
}

const DEPTH: u32 = 32;
const LEAST: u32 = 56;
const BELL: u32 = 60;
const FROZEN: u32 = 61;
const GOVERNED: u32 = 62;
const OPEN: u32 = 63;

impl Lease {
    /// Of a slice whose launches nobody counts.
    pub const UNGOVERNED: Self =
        Self { open: true, governed: false, frozen: false, bell: false, depth_us: 0, least: 0 };
    /// The deepest that can be said: sixteen seconds.
    pub const MOST_DEPTH_US: u32 = (1 << 24) - 1;
    /// The most launches that can be said to pass at least.
    pub const MOST_LEAST: u8 = 15;

    /// As a word, with the turn in its lower half. What is too large becomes the most that can be said.
    pub fn encode(self, turn: u32) -> u64 {
        u64::from(turn)
            | u64::from(self.depth_us.min(Self::MOST_DEPTH_US)) << DEPTH
            | u64::from(self.least.min(Self::MOST_LEAST)) << LEAST
            | u64::from(self.bell) << BELL
            | u64::from(self.frozen) << FROZEN
            | u64::from(self.governed) << GOVERNED
            | u64::from(self.open) << OPEN
    }

    /// From a word; every word is one.
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

    /// Which change of the lease a word is: the half that a waiter's futex is about.
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
        fn every_word_is_a_lease_and_reads_back(word: u64) {
            prop_assert_eq!(Lease::decode(word).encode(Lease::turn(word)), word);
        }

        #[test]
        fn what_is_too_large_is_cut_and_spoils_nothing_else(depth_us: u32, least: u8, turn: u32) {
            let lease = Lease { depth_us, least, ..Lease::UNGOVERNED };
            let back = Lease::decode(lease.encode(turn));
            prop_assert_eq!(back.depth_us, depth_us.min(Lease::MOST_DEPTH_US));
            prop_assert_eq!(back.least, least.min(Lease::MOST_LEAST));
            prop_assert_eq!(Lease { depth_us, least, ..back }, lease);
        }
    }
}
