//! Sinks for what happens on the node, handed to each part of the daemon.

use std::path::Path;

use crate::conditions::Conditions;
use crate::counters::Counters;
use crate::events::Events;

/// The event history, the conditions that last, and the counters of metrics.
#[derive(Debug)]
pub(crate) struct Telemetry {
    pub(crate) events: Events,
    pub(crate) conditions: Conditions,
    pub(crate) counters: Counters,
}

impl Telemetry {
    /// Sinks whose history continues the one in the state directory.
    pub(crate) fn open(state: &Path) -> Self {
        let (conditions, counters) = (Conditions::default(), Counters::default());
        Self { events: Events::open(state), conditions, counters }
    }
}
