//! Sinks for what happens on a node: event history, conditions, counters.
//!
//! Laws: recording never blocks on a disk, and what a tenant can repeat is bounded.
#![forbid(unsafe_code)]

pub mod conditions;
pub mod counters;
pub mod events;
pub mod retained;

use std::path::Path;

use tranche_domain::event::Happening;

use conditions::Conditions;
use counters::DaemonCounters;
use events::Events;

/// The event history, the conditions that last, and the counters of metrics.
#[derive(Debug)]
pub struct Telemetry {
    /// Event history of the node.
    pub events: Events,
    /// Conditions that last at present.
    pub conditions: Conditions,
    /// Counters since the start of the daemon, for metrics.
    pub counters: DaemonCounters,
}

impl Telemetry {
    /// Sinks whose history continues the one in the state directory.
    pub fn open(state: &Path) -> Self {
        let (conditions, counters) = (Conditions::default(), DaemonCounters::default());
        Self { events: Events::open(state), conditions, counters }
    }

    /// Records an event, see [`Events::record`].
    pub fn record(&self, draft: Happening) {
        self.events.record(draft);
    }
}
