//! Memory that the program holds.

use serde::Serialize;
use tranche_domain::units::Bytes;

use crate::cuda::{CudaError, Piece};

/// The smallest piece that filling tries: the grain of the driver.
const CRUMB: Bytes = Bytes::new(512);

/// Grain of the driver for larger pieces; filling in other sizes would leave the rounding unused.
const BLOCK: Bytes = Bytes::mib(2);

/// Memory that was requested and refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Refusal {
    /// Amount in bytes.
    pub(crate) bytes: Bytes,
    /// The driver's name for the refusal.
    pub(crate) error: String,
}

impl Refusal {
    pub(crate) fn new(bytes: Bytes, error: &CudaError) -> Self {
        Self { bytes, error: error.name().to_string() }
    }
}

/// Pieces that are held, and the largest refusal.
#[derive(Debug, Default)]
pub(crate) struct Hoard {
    pieces: Vec<Piece>,
    largest_refused: Option<Refusal>,
}

impl Hoard {
    /// Sum of the pieces that are held.
    pub(crate) fn held(&self) -> Bytes {
        self.pieces.iter().map(|piece| piece.size).sum()
    }

    /// The largest request that was ever refused.
    pub(crate) fn largest_refused(&self) -> Option<Refusal> {
        self.largest_refused.clone()
    }

    /// Takes one piece, and records a refusal.
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

    /// Takes pieces until the smallest is refused, so that nothing usable is left.
    ///
    /// The first has the size `free`, and each refusal halves it. Returns the bytes gained, and the last refusal.
    pub(crate) fn fill(&mut self, free: Bytes) -> (Bytes, Option<Refusal>) {
        let before = self.held();
        let mut size = whole(free);
        let mut last = None;
        while size >= CRUMB {
            if let Err(refusal) = self.take(size) {
                last = Some(refusal);
                size = whole(Bytes::new(size.get() / 2));
            }
        }
        (self.held().saturating_sub(before), last)
    }

    /// Frees all pieces and returns their sum.
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

/// The size in whole blocks, or in crumbs below a block, rounded down.
fn whole(size: Bytes) -> Bytes {
    let grain = if size >= BLOCK { BLOCK } else { CRUMB };
    Bytes::new(size.get() - size.get() % grain.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_whole_blocks_or_whole_crumbs() {
        assert_eq!(whole(Bytes::mib(2047)), Bytes::mib(2046));
        assert_eq!(whole(Bytes::new(2047)), Bytes::new(1536));
        assert_eq!(whole(Bytes::new(511)), Bytes::ZERO);
    }
}
