//! Events that the daemon reports.

use serde::Deserialize;
use tranche_domain::id::GpuUuid;

/// One line of `tranche events --json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Event {
    /// Sequence number; later events have higher ones.
    pub seq: u64,
    /// Time, in milliseconds since the Unix epoch.
    pub time_unix_ms: u64,
    /// `info`, `warning` or `error`.
    pub severity: String,
    /// Kind, such as `slice-created`.
    pub kind: String,
    /// Name of the slice concerned, if any.
    pub slice: Option<String>,
    /// The GPU concerned, if any.
    pub gpu: Option<GpuUuid>,
    /// Pid of the process concerned, if any.
    pub pid: Option<u32>,
    /// Requester, if a user's process requested the action.
    pub actor: Option<Actor>,
    /// Rule of the daemon by which it happened, if any.
    #[serde(default)]
    pub cause: Option<String>,
    /// Evidence, as a sentence.
    pub evidence: String,
}

/// User and process that requested an action.
#[derive(Clone, Debug, Deserialize)]
pub struct Actor {
    /// Uid of the user.
    pub uid: u32,
    /// Pid, if a process made the request itself.
    pub pid: Option<u32>,
    /// Command name of the process (`comm`).
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
