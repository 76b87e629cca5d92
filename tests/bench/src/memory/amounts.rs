//! Amounts that several measurements share.

/// Steps in a loop that is timed.
pub(crate) const STEPS: u32 = 40_000;
/// Bytes of a whole block, as most allocations of frameworks are, and of one that shares a block.
pub(crate) const BLOCK: u64 = 2 << 20;
