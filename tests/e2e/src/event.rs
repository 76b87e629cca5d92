//! What the daemon says has happened.

use serde::Deserialize;
use tranche_domain::id::GpuUuid;

/// One line of `tranche events --json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Event {
    /// Its number.
    pub seq: u64,
    /// Time, in milliseconds since the Unix epoch.
    pub time_unix_ms: u64,
    /// `info`, `warning` or `error`.
    pub severity: String,
    /// What.
    pub kind: String,
    /// To which slice, or in which.
    pub slice: Option<String>,
    /// On which GPU.
    pub gpu: Option<GpuUuid>,
    /// By or to which process.
    pub pid: Option<u32>,
    /// At whose request.
    pub actor: Option<Actor>,
    /// What shows it.
    pub evidence: String,
}

/// The user and the process that had something done.
#[derive(Clone, Debug, Deserialize)]
pub struct Actor {
    /// The user.
    pub uid: u32,
    /// The process.
    pub pid: Option<u32>,
    /// What it ran.
    pub command: Option<String>,
}

impl Event {
    #[track_caller]
    pub(crate) fn read(lines: &str) -> Vec<Self> {
        let read = |line: &str| match serde_json::from_str(line) {
            Ok(event) => event,
            Err(error) => panic!("tranche events --json: {error}\n{line}"),
        };
        lines.lines().map(read).collect()
    }
}
