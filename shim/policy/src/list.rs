//! The lists of contexts and of libraries, each of places that are numbered from one.

use tranche_shm::MAX_DEVICES;

use crate::table::EntryKind;

/// The two lists, which share the ledger's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// Contexts. The primary one of each device has a place of its own at the beginning.
    Contexts,
    /// Libraries, and deferred code of libraries.
    Libraries,
}

impl List {
    pub(crate) const fn kind(self) -> EntryKind {
        match self {
            Self::Contexts => EntryKind::Present,
            Self::Libraries => EntryKind::Library,
        }
    }

    /// The first place that is not reserved.
    pub(crate) const fn first(self) -> u64 {
        match self {
            Self::Contexts => MAX_DEVICES as u64 + 1,
            Self::Libraries => 1,
        }
    }
}
