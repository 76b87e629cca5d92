//! Configuration values that are one of a few words, and their meanings.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tranche_shm::CountedTransfers;

/// Policy for a slice that stays over its cap, as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OverCapPolicy {
    /// Show it and refuse new memory.
    Report,
    /// Also kill its processes until it is within.
    Kill,
}

/// Policy for processes that violate their slice's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ViolationsPolicy {
    /// Show these processes as events and in views.
    Report,
    /// Also kill these processes.
    Kill,
}

/// Policy for processes that use a GPU outside any slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Foreigners {
    /// Show these processes as events and in views.
    Report,
    /// Also keep slices off the GPU.
    Refuse,
}

/// Treatment of jobs that are preempted or suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PreemptionPolicy {
    /// They are stopped, and start over later.
    Stop,
    /// They are parked where that is possible, and continue where they were.
    Park,
}

/// Treatment of asynchronous copies and fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transfers {
    /// Neither delayed nor charged.
    Uncounted,
    /// Those inside devices are delayed and charged like launches.
    Inside,
    /// All are delayed and charged like launches.
    Counted,
}

impl Transfers {
    /// The copies and fills that count as launches do.
    pub const fn counted(self) -> CountedTransfers {
        match self {
            Self::Uncounted => CountedTransfers::None,
            Self::Inside => CountedTransfers::Inside,
            Self::Counted => CountedTransfers::All,
        }
    }
}

/// Policy for a slice that stays over its cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverCap {
    /// Show it and refuse new memory.
    Report,
    /// Also kill its processes, the largest first, until it is within.
    Kill {
        /// Time for which it may be over its cap.
        grace: Duration,
    },
}
