//! Decision on a slice.

use crate::compute::terms::LeaseDecision;

/// Decision on one slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct SliceDecision {
    pub(super) lease: LeaseDecision,
    pub(super) fills: bool,
    pub(super) spared: bool,
    /// It is open without a turn, and no other slice waits for it.
    pub(super) beside: bool,
    pub(super) reason: DecisionReason,
}

/// Reason for which a slice runs or not; others by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecisionReason {
    Running,
    NoWork,
    Limit,
    Frozen,
    Behind(usize),
    Over(usize),
}
