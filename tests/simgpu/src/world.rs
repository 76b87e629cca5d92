//! What the engine asks of the world outside: the time, who calls, and who still lives.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::fs;

use crate::sys;
use crate::units::Time;

/// A process or thread for ever: its number and when it started, in one word. Numbers are reused, pairs are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp(pub(crate) u64);

const START_BITS: u32 = 42;

impl Stamp {
    /// From a number (below 2^22, as Linux has it) and a start time in clock ticks since boot.
    pub const fn new(id: u32, start: u64) -> Self {
        Self((id as u64) << START_BITS | start & ((1 << START_BITS) - 1))
    }

    /// The process or thread number.
    pub const fn id(self) -> u32 {
        (self.0 >> START_BITS) as u32
    }

    /// The start time in clock ticks since boot.
    pub const fn start(self) -> u64 {
        self.0 & ((1 << START_BITS) - 1)
    }
}

/// The world: [`Host`] for programs, something simpler for tests in virtual time.
pub trait World: fmt::Debug + Send + Sync {
    /// The time now.
    fn now(&self) -> Time;
    /// The calling process.
    fn myself(&self) -> Stamp;
    /// Whether a stamp is the calling process's, now: `fork` may have happened since it was made.
    fn is_me(&self, process: Stamp) -> bool {
        process.id() == std::process::id()
    }
    /// Whether a process lives. One that is dead but not yet waited for does not.
    fn is_alive(&self, process: Stamp) -> bool;
}

/// This machine: CLOCK_MONOTONIC and `/proc`.
#[derive(Clone, Copy, Debug)]
pub struct Host;

impl World for Host {
    fn now(&self) -> Time {
        sys::monotonic()
    }

    fn myself(&self) -> Stamp {
        let pid = std::process::id();
        Stamp::new(pid, life(pid).map_or(0, |life| life.start))
    }

    fn is_alive(&self, process: Stamp) -> bool {
        life(process.id()).is_some_and(|life| life.start == process.start() && life.state != State::Ended)
    }
}

thread_local! {
    static THREAD: Cell<Stamp> = const { Cell::new(Stamp(0)) };
}

/// The calling thread. What `fork` copied is seen to be stale by its number.
pub(crate) fn this_thread() -> Stamp {
    let id = sys::thread_id();
    let known = THREAD.get();
    if known.id() == id {
        return known;
    }
    let stamp = Stamp::new(id, life(id).map_or(0, |life| life.start));
    THREAD.set(stamp);
    stamp
}

/// Whether a thread lives and is not stopped (`/proc/TID` exists for every thread, though it is not listed).
pub(crate) fn thread_runs(thread: Stamp) -> bool {
    life(thread.id()).is_some_and(|life| life.start == thread.start() && life.state == State::Running)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Or asleep, and will run.
    Running,
    /// By a signal or a debugger.
    Stopped,
    Ended,
}

struct Life {
    start: u64,
    state: State,
}

/// Reads a process's state from `/proc`. A leader that ended while other threads run is still alive.
fn life(id: u32) -> Option<Life> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<_> = fields.split_ascii_whitespace().collect();
    let threads: u64 = fields.get(17)?.parse().ok()?;
    let state = match *fields.first()? {
        "Z" | "X" | "x" if threads <= 1 => State::Ended,
        "T" | "t" => State::Stopped,
        _ => State::Running,
    };
    Some(Life { start: fields.get(19)?.parse().ok()?, state })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_stamp_keeps_both_of_its_parts() {
        let stamp = Stamp::new(4_194_303, 123_456_789_012);
        assert_eq!((stamp.id(), stamp.start()), (4_194_303, 123_456_789_012));
    }

    #[test]
    fn this_process_and_this_thread_live() {
        assert!(Host.is_alive(Host.myself()));
        assert!(thread_runs(this_thread()));
    }

    #[test]
    fn a_process_with_the_same_pid_that_started_at_another_time_is_another() {
        let me = Host.myself();
        assert!(!Host.is_alive(Stamp::new(me.id(), me.start() + 1)));
    }

    #[test]
    fn a_thread_that_ended_is_dead() {
        let ended = std::thread::spawn(this_thread).join().unwrap();
        while thread_runs(ended) {
            std::thread::yield_now(); // the kernel clears the thread shortly after join returns
        }
    }

    #[test]
    fn a_zombie_is_dead() {
        let mut child = Command::new("sleep").arg("100").stdout(Stdio::null()).spawn().unwrap();
        let stamp = Stamp::new(child.id(), life(child.id()).unwrap().start);
        assert!(Host.is_alive(stamp));
        child.kill().unwrap();
        while Host.is_alive(stamp) {
            std::thread::yield_now(); // not waited for yet, so it can only become a zombie
        }
        assert!(life(child.id()).is_some());
        child.wait().unwrap();
    }
}
