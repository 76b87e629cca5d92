//! Facts that the engine takes from outside: the time, the caller, and which processes live.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::sys;
use crate::units::Time;

/// Identity of a process or thread in one word: its number, its start and its program. Numbers are reused,
/// the three together are not; `exec` keeps the first two and makes another of the third.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp(pub(crate) u64);

const START_BITS: u32 = 42;
/// Bits of the start that distinguish programs; the rest is the start time, some two days of it.
const IMAGE_BITS: u32 = 18;

impl Stamp {
    /// From a number (below 2^22, as Linux has it) and what else distinguishes its bearers.
    pub const fn new(id: u32, start: u64) -> Self {
        Self((id as u64) << START_BITS | start & ((1 << START_BITS) - 1))
    }

    /// The process or thread number.
    pub const fn id(self) -> u32 {
        (self.0 >> START_BITS) as u32
    }

    /// The part that distinguishes bearers of the same number.
    pub const fn start(self) -> u64 {
        self.0 & ((1 << START_BITS) - 1)
    }

    /// True if two stamps are of the same process or thread, running the same program. A process that may not
    /// see which program another one runs sees 0, and must not take it for dead.
    fn is_same(self, other: Self) -> bool {
        let parts = |stamp: Self| (stamp.0 >> IMAGE_BITS, stamp.0 & ((1 << IMAGE_BITS) - 1));
        let ((who, image), (other_who, other_image)) = (parts(self), parts(other));
        who == other_who && (image == other_image || image == 0 || other_image == 0)
    }
}

/// The world: [`Host`] for programs, something simpler for tests in virtual time.
pub trait World: fmt::Debug + Send + Sync {
    /// Time of the node's clock.
    fn now(&self) -> Time;
    /// Stamp of the calling process.
    fn myself(&self) -> Stamp;
    /// Another process, if it lives.
    fn other(&self, _pid: u32) -> Option<Stamp> {
        None
    }
    /// True if a stamp is the calling process's, now: `fork` may have happened since it was made.
    fn is_me(&self, process: Stamp) -> bool {
        process.id() == own_id()
    }
    /// True if the caller may control another process as a debugger may.
    fn may_control(&self, _pid: u32) -> bool {
        true
    }
    /// True if a process lives. One that is dead but not yet waited for does not.
    fn is_alive(&self, process: Stamp) -> bool;
}

/// This machine: its CLOCK_MONOTONIC and `/proc`.
#[derive(Clone, Copy, Debug)]
pub struct Host;

impl World for Host {
    fn now(&self) -> Time {
        sys::monotonic()
    }

    fn myself(&self) -> Stamp {
        let pid = own_id();
        life(pid).map_or(Stamp::new(pid, 0), |life| life.stamp)
    }

    fn other(&self, pid: u32) -> Option<Stamp> {
        life(pid).filter(|life| life.state != State::Ended).map(|life| life.stamp)
    }

    fn may_control(&self, pid: u32) -> bool {
        // The kernel checks for this file what it checks for debuggers.
        fs::File::open(proc().join(format!("{pid}/mem"))).is_ok()
    }

    fn is_alive(&self, process: Stamp) -> bool {
        // A process that `/proc` hides from this one, as from a unit with ProtectProc=, is left to those that
        // see it.
        life(process.id()).map_or_else(
            || std::env::var_os(crate::PROC_VARIABLE).is_none() && sys::is_hidden(process.id()),
            |life| life.stamp.is_same(process) && life.state != State::Ended,
        )
    }
}

/// The machine's own `/proc`. A program in a container has numbers of its own there, and a real driver sees through
/// that; here the machine's `/proc` is mounted in the container at another place, which this variable names.
fn proc() -> &'static PathBuf {
    static PROC: OnceLock<PathBuf> = OnceLock::new();
    PROC.get_or_init(|| std::env::var_os(crate::PROC_VARIABLE).map_or_else(|| "/proc".into(), PathBuf::from))
}

/// The number at the end of a link in `/proc` that leads to the process or thread that reads it.
fn linked(name: &str) -> Option<u32> {
    fs::read_link(proc().join(name)).ok()?.file_name()?.to_str()?.parse().ok()
}

/// The calling process, as the machine numbers it.
fn own_id() -> u32 {
    /// Pid in this namespace in the upper half, the machine's number in the lower.
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    let (here, known) = (std::process::id(), KNOWN.load(Relaxed));
    if known >> 32 == u64::from(here) {
        return known as u32;
    }
    let id = linked("self").unwrap_or(here);
    KNOWN.store(u64::from(here) << 32 | u64::from(id), Relaxed);
    id
}

thread_local! {
    /// Thread's number in its own namespace, and its stamp.
    static THREAD: Cell<(u32, Stamp)> = const { Cell::new((0, Stamp(0))) };
}

/// The calling thread. What `fork` copied is seen to be stale by its number.
pub(crate) fn this_thread() -> Stamp {
    let here = sys::thread_id();
    let (known, stamp) = THREAD.get();
    if known == here {
        return stamp;
    }
    let id = linked("thread-self").unwrap_or(here);
    let stamp = life(id).map_or(Stamp::new(id, 0), |life| life.stamp);
    THREAD.set((here, stamp));
    stamp
}

/// True if a thread lives and is not stopped. `/proc/TID` exists for every thread, though it is not listed.
pub(crate) fn thread_runs(thread: Stamp) -> bool {
    life(thread.id()).is_some_and(|life| life.stamp.is_same(thread) && life.state == State::Running)
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
    stamp: Stamp,
    state: State,
}

/// Reads a process's state from `/proc`. A leader that ended while other threads run is still alive.
fn life(id: u32) -> Option<Life> {
    // The kernel's own word, also in a process that is emulated: of `/proc/PID/stat` an emulator makes up most.
    let stat = fs::read_to_string(proc().join(format!("{id}/task/{id}/stat"))).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<_> = fields.split_ascii_whitespace().collect();
    let threads: u64 = fields.get(17)?.parse().ok()?;
    let state = match *fields.first()? {
        "Z" | "X" | "x" if threads <= 1 => State::Ended,
        "T" | "t" => State::Stopped,
        _ => State::Running,
    };
    let start: u64 = fields.get(19)?.parse().ok()?;
    // Where its stack begins: another place, by chance, for each program that it becomes.
    let stack: u64 = fields.get(25)?.parse().ok()?;
    Some(Life { stamp: Stamp::new(id, start << IMAGE_BITS | image(stack)), state })
}

/// 0 only for no stack.
fn image(stack: u64) -> u64 {
    const MASK: u64 = (1 << IMAGE_BITS) - 1;
    match (stack >> 4 ^ stack >> (4 + IMAGE_BITS)) & MASK {
        0 if stack != 0 => 1,
        image => image,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

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
        assert!(!Host.is_alive(Stamp::new(me.id(), me.start() + (1 << IMAGE_BITS))));
    }

    /// A shell command that reads and writes lines. `spawn` returns while the kernel still builds the
    /// program's stack; only a line from it shows that it runs.
    struct Talker(Child);

    impl Talker {
        fn new(command: &str) -> Self {
            let mut shell = Command::new("sh");
            shell.args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::piped());
            Self(shell.spawn().unwrap())
        }

        fn say(&mut self, line: &[u8]) {
            self.0.stdin.as_mut().unwrap().write_all(line).unwrap();
        }

        fn hear(&mut self, line: &[u8]) {
            let mut heard = vec![0; line.len()];
            self.0.stdout.as_mut().unwrap().read_exact(&mut heard).unwrap();
            assert_eq!(heard, line);
        }

        fn stamp(&self) -> Stamp {
            life(self.0.id()).unwrap().stamp
        }
    }

    impl Drop for Talker {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_that_became_another_program_is_another() {
        let mut process = Talker::new("echo begun; read line; exec cat");
        process.hear(b"begun\n");
        let before = process.stamp();
        assert!(Host.is_alive(before));
        process.say(b"go\nagain\n");
        process.hear(b"again\n");
        assert!(!Host.is_alive(before), "it is still taken for the first program");
        assert!(Host.is_alive(process.stamp()));
    }

    #[test]
    fn a_process_whose_program_cannot_be_seen_is_not_taken_for_dead() {
        let me = Host.myself();
        assert!(Host.is_alive(Stamp::new(me.id(), me.start() >> IMAGE_BITS << IMAGE_BITS)));
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
        let mut process = Talker::new("exec cat");
        process.say(b"line\n");
        process.hear(b"line\n");
        let stamp = process.stamp();
        assert!(Host.is_alive(stamp));
        process.0.kill().unwrap();
        while Host.is_alive(stamp) {
            std::thread::yield_now(); // not waited for yet, so it can only become a zombie
        }
        assert!(life(process.0.id()).is_some());
    }
}
