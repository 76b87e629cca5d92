//! The points, by the side that passes them.

/// Crash points of a tenant.
pub const TENANT: &[&str] = &[
    "attach: begin",
    "attach: connected",
    "attach: greeted",
    "attach: welcomed",
    "attach: mapped",
    "attach: ready",
    "ask: begin",
    "ask: sent",
    "ask: answered",
    "ask: connected anew",
    "charge: begin",
    "charge: charged",
    "charge: excluded",
    "charge: granted",
    "charge: refused",
    "reservation: grown",
    "reservation: keep",
    "reservation: drop",
    "release: begin",
    "release: with credit",
    "release: end",
    "allocate: driver",
    "allocate: blocks",
    "allocate: entered",
    "free: driver",
    "free: taken",
    "free: block left",
    "context: charged",
    "context: noted",
    "context: ended",
    "pool: driver",
    "pool: paid",
    "pool: settled",
    "export: parted",
    "export: told",
    "import: held",
    "import: opened",
    "share: left",
    "share: told",
];

/// Crash points of the daemon, in its work for tenants.
pub const DAEMON: &[&str] = &[
    "join: admitted",
    "join: cleared",
    "join: seated",
    "attach: answer",
    "attach: welcome sent",
    "credit: observed",
    "credit: entered",
    "credit: granted",
    "credit: recalled",
    "credit: exhausted",
    "credit: answer",
    "limits: written",
    "reap: ended",
    "reap: free",
    "vacate: left",
    "vacate: cleared",
    "vacate: settled",
    "export: noted",
    "export: handed over",
    "export: published",
    "import: noted",
    "drop: released",
    "leave: released",
    "recovery: restored",
    "recovery: reseated",
    "recovery: done",
];

/// Crash points of the daemon in which no tenant has a part.
///
/// A storm passes them without a death; daemons die there in tests/chaos.
pub const DAEMON_ALONE: &[&str] = &[
    "file: begun",
    "file: made",
    "file: written",
    "file: synced",
    "file: renamed",
    "file: kept",
    "sampler: looks",
    "regions: begun",
    "regions: half",
    "regions: empty",
    "regions: headed",
    "regions: made",
    "history: written",
    "history: full",
    "history: put aside",
    "create: promised",
    "create: opened",
    "create: listening",
    "create: recorded",
    "create: told",
    "resize: recorded",
    "resize: in force",
    "enter: entered",
    "enter: recorded",
    "delete: ending",
    "delete: forgotten",
    "delete: recorded",
    "recovery: read",
    "recovery: seated",
    "recovery: rubbish",
    "recovery: adopting",
];

/// Crash points of the daemon while slices are parked or brought back.
///
/// Daemons die there in tests/chaos.
pub const PARKS: &[&str] = &[
    "park: intended",
    "park: locked",
    "park: checkpointed",
    "park: parked",
    "unpark: committed",
    "unpark: returned",
    "unpark: back",
];

/// Crash points of the daemon while members of jobs are parked for others.
///
/// Daemons die there in tests/chaos.
pub const PREEMPTIONS: &[&str] = &["jobs: parking", "jobs: parked"];

/// Crash points of the daemon in its work with jobs; daemons die there in tests/teams.
pub const JOBS: &[&str] = &[
    "jobs: keeping",
    "jobs: kept",
    "jobs: opened",
    "jobs: prepared",
    "jobs: hailed",
    "jobs: entered",
    "jobs: ordered",
    "jobs: leaving",
    "jobs: told",
    "jobs: ended",
    "jobs: closed",
    "jobs: left",
];

/// Part of the table that a process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first part, [`TENANT`].
    Tenant,
    /// The second part, [`DAEMON`].
    Daemon,
}

impl Side {
    /// The points of that side, as the board numbers them.
    pub fn points(self) -> std::ops::Range<usize> {
        match self {
            Self::Tenant => 0..TENANT.len(),
            Self::Daemon => TENANT.len()..TENANT.len() + DAEMON.len(),
        }
    }
}

/// Name of a point, with its side.
pub fn name(point: usize) -> String {
    match TENANT.get(point) {
        Some(name) => format!("tenant {name}"),
        None => format!("daemon {}", DAEMON[point - TENANT.len()]),
    }
}
