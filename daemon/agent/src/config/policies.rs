//! Values that are one of a few words, and what they stand for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What can be done about a slice that stays over its cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OverCapPolicy {
    /// It is shown and gets nothing new.
    Report,
    /// Its processes are killed until it is within.
    Kill,
}

/// What can be done about processes that break the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ViolationsPolicy {
    /// They are shown.
    Report,
    /// They are killed, too.
    Kill,
}

/// What can be done about processes that use a GPU outside any slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Foreigners {
    /// They are shown.
    Report,
    /// Their GPU takes no slices, too.
    Refuse,
}

/// What asynchronous copies and fills are to a slice's compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transfers {
    /// They pass, and nobody is charged for them.
    Uncounted,
    /// They wait and are charged as launches are.
    Counted,
}

/// What is done about a slice that stays over its cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverCap {
    /// It is shown and gets nothing new.
    Report,
    /// Its processes are killed, the largest first, until it is within.
    Kill {
        /// How long it may be over its cap.
        grace: Duration,
    },
}
