//! Decision on a slice.

use crate::compute::terms::LeaseDecision;
use crate::compute::time::Instant;

/// Decision on one slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct SliceDecision {
    pub(super) lease: LeaseDecision,
    pub(super) fills: bool,
    pub(super) spared: bool,
    /// It is open without a turn, and no other slice waits for it.
    pub(super) beside: bool,
    pub(super) reason: DecisionReason,
    /// It opens by itself, if nothing happens until then.
    pub(super) next: Option<Opening>,
    /// Time about which it may be opened.
    pub(super) likely: Option<Instant>,
}

impl SliceDecision {
    /// A decision of which nothing else is known.
    pub(super) const fn of(lease: LeaseDecision, reason: DecisionReason) -> Self {
        Self { lease, fills: false, spared: false, beside: false, reason, next: None, likely: None }
    }
}

/// An opening to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) at: Instant,
    pub(super) lease: LeaseDecision,
    pub(super) fills: bool,
    pub(super) spared: bool,
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
