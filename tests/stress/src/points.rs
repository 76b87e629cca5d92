//! Crash points at which a process may die, and the hook that kills it there.

use std::cell::Cell;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::sys::signal::{Signal, raise};
use tranche_shm::crash;

use crate::board::{Board, Lane, Word, bump};

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

/// A crash point, and the passage, counted from now, at which the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aim {
    /// Number of the point on the board.
    pub point: usize,
    /// Number of the passage; the first is 1.
    pub passing: u64,
}

struct Fate {
    board: Board,
    side: Side,
    lane: Option<Lane>,
    aim: Option<Aim>,
    passed: AtomicU64,
}

static FATE: RwLock<Option<Fate>> = RwLock::new(None);

thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(0) };
}

/// Sets the number of this thread in its tenant: each has a lane of its own for its passages.
pub(crate) fn is_thread(number: usize) {
    THREAD.set(number);
}

/// Sets the point at which this process dies. A child sets its own.
pub fn doom(board: Board, side: Side, lane: Option<Lane>, aim: Option<Aim>) {
    let fate = Fate { board, side, lane, aim, passed: AtomicU64::new(0) };
    *FATE.write().expect("no thread panics while it sets a fate") = Some(fate);
    crash::hook(pass);
}

fn pass(name: &'static str) {
    let Ok(fate) = FATE.read() else { return };
    let Some(fate) = fate.as_ref() else { return };
    let table = if fate.side == Side::Tenant { TENANT } else { DAEMON };
    let Some(at) = table.iter().position(|known| *known == name) else {
        if !DAEMON_ALONE.contains(&name) && !JOBS.contains(&name) {
            fate.board.count(Word::UnknownPoint);
        }
        return;
    };
    let point = fate.side.points().start + at;
    bump(fate.board.passes(point));
    fate.lane.into_iter().for_each(|lane| lane.of_thread(THREAD.get()).passes(point));
    let Some(aim) = fate.aim.filter(|aim| aim.point == point) else { return };
    if fate.passed.fetch_add(1, Relaxed) + 1 == aim.passing {
        if let Some(lane) = fate.lane {
            lane.dies_at(point);
        }
        bump(fate.board.deaths(point));
        let _ = raise(Signal::SIGKILL);
    }
}

/// Point of a side with the fewest deaths.
pub fn rarest(board: Board, side: Side, except: impl Fn(usize) -> bool) -> Option<usize> {
    side.points().filter(|point| !except(*point)).min_by_key(|point| board.deaths(*point).load(Relaxed))
}
