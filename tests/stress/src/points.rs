//! Crash points at which a process may die, and the hook that kills it there.

pub mod table;

use std::cell::Cell;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::sys::signal::{Signal, raise};
use tranche_shm::crash;

use crate::board::{Board, Lane, Word, bump};

pub use table::{DAEMON, DAEMON_ALONE, JOBS, PARKS, PREEMPTIONS, Side, TENANT, name};

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
        if ![DAEMON_ALONE, PARKS, PREEMPTIONS, JOBS].iter().any(|table| table.contains(&name)) {
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
