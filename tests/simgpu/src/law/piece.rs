//! A piece of queued work.

use crate::lane::{Lane, WorkKind};

/// Condition on a piece of work, besides its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// No condition besides the lane.
    Nothing,
    /// Another piece on the same GPU, by its sequence number.
    Piece(u64),
    /// A moment in nanoseconds.
    Moment(u64),
    /// Something elsewhere that has not happened yet.
    Elsewhere,
}

/// One piece of queued work.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Its number, growing with every submission on the GPU.
    pub sequence: u64,
    /// Index in the owner's table, which the law does not use.
    pub place: usize,
    /// The queue within its context.
    pub lane: Lane,
    /// Kind of the work.
    pub kind: WorkKind,
    /// Nanoseconds still to run. A gate is shut while this is not zero.
    pub remaining: u64,
    /// Condition besides the lane.
    pub after: After,
}

impl Piece {
    pub(super) fn needs_gpu(&self) -> bool {
        matches!(self.kind, WorkKind::Kernel | WorkKind::Copy | WorkKind::Mark) && self.remaining > 0
    }

    pub(super) fn crosses_the_bus(&self) -> bool {
        matches!(self.kind, WorkKind::Upload | WorkKind::Download)
    }

    /// A mark too, unless it takes time.
    pub(super) const fn passes_at_once(&self) -> bool {
        self.remaining == 0
    }
}
