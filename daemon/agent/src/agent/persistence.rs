//! The way of the node's state to the disk.
//!
//! Law: a change is answered once a snapshot that has it is on disk. Changes that wait at the same time share a write.

use tranche_domain::id::SliceName;

use super::{Agent, Core};
use crate::failure::Requested;
use crate::state::{SavedSlice, StateFile};
use crate::state_store::SaveError;

impl Agent {
    /// Writes the state file; a failure is logged.
    pub(crate) fn save(&self) {
        if let Err(failure) = self.core().save() {
            tracing::error!(%failure, "the state on disk is old");
        }
    }

    /// Waits until the state file has a snapshot of this number. No lock of the core may be held.
    ///
    /// # Errors
    /// The state file has the old state.
    pub(super) fn record(&self, number: u64) -> Requested<()> {
        let _turn = self.state.turn();
        if self.state.has_written(number) {
            return Ok(());
        }
        let (number, snapshot) = self.core().snapshot();
        let written = self.state.write(number, &snapshot);
        self.core().note_written(number, written)
    }

    /// Writes the state file again if the last attempt failed.
    pub(crate) fn save_again(&self) {
        let mut core = self.core();
        if core.is_unsaved && core.save().is_ok() {
            tracing::info!("the state on disk is what it should be again");
        }
    }
}

impl Core {
    /// Writes the state file.
    pub(crate) fn save(&mut self) -> Requested<()> {
        let (number, snapshot) = self.snapshot();
        let written = self.state.write(number, &snapshot);
        self.note_written(number, written)
    }

    /// Number of the next snapshot, which has all changes up to now.
    pub(crate) const fn next_snapshot(&self) -> u64 {
        self.snapshots + 1
    }

    /// The state for the disk, with its number.
    fn snapshot(&mut self) -> (u64, StateFile) {
        let is_coming =
            |name: &SliceName| self.pending_takeover.iter().any(|saved| saved.slice.name == *name);
        let here = self.node.slices().iter().filter(|(name, _)| !is_coming(name));
        let served = here.filter_map(|(name, slice)| {
            let runtime = self.live.get(name)?;
            let roots = runtime.occupants().roots.into_iter().collect();
            Some(SavedSlice { slice: slice.clone(), generation: runtime.generation, roots })
        });
        let slices = served.chain(self.stranded.iter().chain(&self.pending_takeover).cloned()).collect();
        let state = StateFile::new(self.generation, slices).with_cordons(self.node.cordons().clone());
        self.snapshots += 1;
        (self.snapshots, state)
    }

    fn note_written(&mut self, number: u64, written: Result<(), SaveError>) -> Requested<()> {
        // An older snapshot on disk does not make up for a newer one that is not.
        self.is_unsaved = written.is_err() || self.is_unsaved && number < self.snapshots;
        Ok(written.inspect_err(|_| self.telemetry.counters.unsaved())?)
    }
}
