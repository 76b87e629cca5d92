//! The work of a context, with the heads of its lanes.

use std::ops::{Deref, DerefMut};

use super::before::Before;
use super::piece::Piece;

/// Pieces of a context by growing sequence numbers. Their lanes stay as they are.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    all: Vec<Piece>,
    /// Indices of those that no earlier piece holds back by its lane.
    heads: Vec<usize>,
    /// Lanes of all pieces.
    lanes: Before,
}

impl Pieces {
    /// Adds a piece behind all others.
    pub fn push(&mut self, piece: Piece) {
        if self.lanes.admits(piece.lane) {
            self.heads.push(self.all.len());
        }
        self.lanes.add(piece.lane);
        self.all.push(piece);
    }

    pub(super) fn remove(&mut self, index: usize) -> Piece {
        let piece = self.all.remove(index);
        if self.lanes.is_one_lane() && !self.all.is_empty() {
            // The next of the lane is the head.
            return piece;
        }
        *self = std::mem::take(&mut self.all).into_iter().collect();
        piece
    }

    pub(super) fn heads(&self) -> &[usize] {
        &self.heads
    }
}

impl FromIterator<Piece> for Pieces {
    fn from_iter<I: IntoIterator<Item = Piece>>(pieces: I) -> Self {
        let mut all = Self::default();
        pieces.into_iter().for_each(|piece| all.push(piece));
        all
    }
}

impl Deref for Pieces {
    type Target = [Piece];

    fn deref(&self) -> &[Piece] {
        &self.all
    }
}

impl DerefMut for Pieces {
    fn deref_mut(&mut self) -> &mut [Piece] {
        &mut self.all
    }
}
