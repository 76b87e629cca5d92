//! The only unsafe code of the engine: file mappings, futexes, the clock, and signals to processes.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::units::Time;

/// True if a process exists that the calling one may not signal, so that `/proc` may hide it.
pub(crate) fn is_hidden(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: signal 0 is sent to no process; the call only checks whether it could be.
    let result = unsafe { libc::kill(pid, 0) };
    result == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// A file mapped shared and writable, as words. Unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping is reached only as `&[AtomicU64]`, which any thread may use, and is freed only by drop.
unsafe impl Send for Mapping {}
// SAFETY: a shared mapping gives out only `&[AtomicU64]`, and all access through it is atomic.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `words` words of a file that is at least so long and is never shortened.
    pub(crate) fn of(file: &File, words: usize) -> io::Result<Self> {
        // SAFETY: the address is the kernel's choice, so no existing mapping is touched; the descriptor is open for
        // the whole call; the result is checked before use.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                words * 8,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(start.cast::<AtomicU64>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { start, words }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `of` mapped that many words, page-aligned, readable and writable, and drop (which needs `self` by
        // value) has not run; all processes use atomics, and every bit pattern is a valid word.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `of` mapped, and no borrow of it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

/// Gives the calling thread, and none that it starts, the least real-time priority.
///
/// # Errors
/// The kernel's: EPERM without `CAP_SYS_NICE` or a limit of such priorities (`RLIMIT_RTPRIO`).
pub fn run_at_real_time() -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads the parameters, which live on this stack; number 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const priority) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sleeps while the low half of a word is `expected`, at most so long. May wake early for no reason.
pub(crate) fn sleep_on(word: &AtomicU64, expected: u32, at_most: Duration) {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(at_most.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(at_most.subsec_nanos()),
    };
    // SAFETY: the kernel reads four aligned bytes at the word, which is borrowed and thus mapped for the whole call (its
    // low half comes first: little endian is asserted below), and a timespec that lives on this stack.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const timeout) };
}

const _: () = assert!(cfg!(target_endian = "little"), "futexes lie in the low half of a word");

/// Wakes up to `count` threads that sleep on a word, in any process.
pub(crate) fn wake(word: &AtomicU64, count: i32) {
    // SAFETY: waking touches no memory; the address only names the queue.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
}

/// The machine's CLOCK_MONOTONIC in any time namespace of this process: a GPU's clock is in none.
pub(crate) fn monotonic() -> Time {
    static AHEAD_NS: LazyLock<i64> = LazyLock::new(|| {
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        let line = offsets.lines().find_map(|line| line.strip_prefix("monotonic"));
        let numbers = line.and_then(|line| line.trim().split_once(' '));
        let number = |text: &str| text.trim().parse::<i64>().ok();
        numbers
            .and_then(|(s, ns)| number(s)?.checked_mul(1_000_000_000)?.checked_add(number(ns)?))
            .unwrap_or(0)
    });
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which lives on this stack.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let shown = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
    Time(shown.saturating_add_signed(AHEAD_NS.saturating_neg()))
}

/// The kernel's number of the calling thread.
pub(crate) fn thread_id() -> u32 {
    // By the kernel's number, as glibc has a function for it since 2.30 only, and releases need 2.28 (`systemd/dist/glibc`).
    // SAFETY: the call takes nothing and always succeeds, and threads have numbers below 2^22.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Kills the calling process at once, as SIGKILL from outside would.
pub(crate) fn die() -> ! {
    // SAFETY: both calls take plain numbers; the second is reached only if the first has not acted yet.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
        libc::_exit(137)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::thread;

    /// Scheduling policy of the calling thread, as proc(5) numbers it.
    fn policy() -> i32 {
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The name ends with the last parenthesis; the policy is field 41, and the state behind the name field 3.
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(38).unwrap().parse().unwrap()
    }

    #[test]
    fn real_time_priority_is_not_inherited() {
        let tried = || {
            let outcome = run_at_real_time();
            (outcome, policy(), thread::spawn(policy).join().unwrap())
        };
        match thread::spawn(tried).join().unwrap() {
            (Ok(()), own, inherited) => assert_eq!((own, inherited), (libc::SCHED_FIFO, libc::SCHED_OTHER)),
            (Err(error), own, _) => {
                assert_eq!((error.raw_os_error(), own), (Some(libc::EPERM), libc::SCHED_OTHER));
            }
        }
    }
}
