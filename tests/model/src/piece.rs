//! Memory that both processes may hold, as the driver has it.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use loom::sync::atomic::AtomicU32 as Modelled;

/// The only piece that is exported, as the driver has it: counted once while a process holds it.
///
/// Its holders are in a modelled word, or loom would not know that the order of the driver's calls matters. The word is
/// always read by a change, which sees the newest value.
pub struct Piece {
    pub(crate) units: AtomicU32,
    pub(crate) holders: Modelled,
}

/// Bit beside the holders: the exporter's call has returned, and the other process may know the key.
pub(crate) const PASSED_ON: u32 = 1 << 31;

impl Default for Piece {
    fn default() -> Self {
        Self { units: AtomicU32::new(0), holders: Modelled::new(0) }
    }
}

impl Piece {
    fn holders(&self) -> u32 {
        self.holders.fetch_or(0, AcqRel)
    }

    pub(crate) fn held(&self) -> u32 {
        if self.holders() & !PASSED_ON == 0 { 0 } else { self.units.load(Relaxed) }
    }

    pub(crate) fn leave(&self, process: usize) {
        self.holders.fetch_and(!(1 << process), AcqRel);
    }

    pub(crate) fn is_passed_on(&self) -> bool {
        self.holders() & PASSED_ON != 0
    }

    /// Adds a holder; fails if there is none, as the driver then has no such memory.
    pub(crate) fn join(&self, process: usize) -> Result<(), Gone> {
        let more = |holders: u32| (holders & !PASSED_ON != 0).then_some(holders | 1 << process);
        self.holders.fetch_update(AcqRel, Acquire, more).map(drop).map_err(|_| Gone)
    }
}

/// Error of the driver: it has no such memory.
#[derive(Debug)]
pub(crate) struct Gone;
