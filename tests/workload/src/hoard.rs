//! The memory the program holds.

use serde::Serialize;
use tranche_domain::units::Bytes;

use crate::cuda::{CudaError, Piece};

/// The smallest piece that filling tries: what the driver itself rounds to.
const CRUMB: Bytes = Bytes::new(512);

/// Memory that was asked for and refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Refusal {
    /// How much.
    pub(crate) bytes: Bytes,
    /// The driver's name for the refusal.
    pub(crate) error: String,
}

impl Refusal {
    pub(crate) fn new(bytes: Bytes, error: &CudaError) -> Self {
        Self { bytes, error: error.name().to_string() }
    }
}

/// What is held, and what was refused.
#[derive(Debug, Default)]
pub(crate) struct Hoard {
    pieces: Vec<Piece>,
    largest_refused: Option<Refusal>,
}

impl Hoard {
    /// Sum of what is held.
    pub(crate) fn held(&self) -> Bytes {
        self.pieces.iter().map(|piece| piece.size).sum()
    }

    /// The largest request that was ever refused.
    pub(crate) fn largest_refused(&self) -> Option<Refusal> {
        self.largest_refused.clone()
    }

    /// Takes one piece.
    pub(crate) fn take(&mut self, size: Bytes) -> Result<(), Refusal> {
        match Piece::take(size) {
            Ok(piece) => {
                self.pieces.push(piece);
                Ok(())
            }
            Err(error) => {
                let refusal = Refusal::new(size, &error);
                self.note(&refusal);
                Err(refusal)
            }
        }
    }

    /// Takes pieces until the smallest is refused, beginning with `free` and halving at each refusal.
    /// Returns what was gained, and the last refusal.
    pub(crate) fn fill(&mut self, free: Bytes) -> (Bytes, Option<Refusal>) {
        let before = self.held();
        let mut size = free;
        let mut last = None;
        while size >= CRUMB {
            if let Err(refusal) = self.take(size) {
                last = Some(refusal);
                size = half(size);
            }
        }
        (self.held().saturating_sub(before), last)
    }

    /// Gives everything back. Returns how much that was.
    pub(crate) fn release(&mut self) -> Bytes {
        let held = self.held();
        self.pieces.clear();
        held
    }

    fn note(&mut self, refusal: &Refusal) {
        if self.largest_refused.as_ref().is_none_or(|largest| refusal.bytes > largest.bytes) {
            self.largest_refused = Some(refusal.clone());
        }
    }
}

/// Half, in whole crumbs.
fn half(size: Bytes) -> Bytes {
    let half = size.get() / 2;
    Bytes::new(half - half % CRUMB.get())
}
