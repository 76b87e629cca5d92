//! The lists of contexts and of libraries, each of places that are numbered from one.

use tranche_shm::MAX_DEVICES;

use crate::table::Kind;

/// The two lists, which share the ledger's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// Contexts. The primary one of each device has a place of its own at the beginning.
    Contexts,
    /// Libraries, and deferred code of libraries.
    Libraries,
}

impl List {
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Contexts => Kind::Present,
            Self::Libraries => Kind::Library,
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
