//! Decision on a slice.

use crate::compute::terms::Lease;

/// Decision on one slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    pub(super) lease: Lease,
    pub(super) fills: bool,
    pub(super) spared: bool,
    /// It is open without a turn, and no other slice waits for it.
    pub(super) beside: bool,
    pub(super) reason: Reason,
}

/// Reason for which a slice runs or not; others by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Running,
    NoWork,
    Limit,
    Frozen,
    Behind(usize),
    Over(usize),
}
