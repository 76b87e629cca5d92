//! Clocks, sleeps and waits.

use core::sync::atomic::AtomicU64;

use libc::c_long;

use super::call::call;

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    let _ = unsafe {
        call(
            libc::SYS_clock_gettime,
            [libc::CLOCK_MONOTONIC as c_long, (&raw mut time) as c_long, 0, 0, 0, 0],
        )
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps up to 999 milliseconds, or less when a signal comes.
pub(crate) fn sleep_ms(milliseconds: u64) {
    sleep_ns(milliseconds.min(999) * 1_000_000);
}

/// Sleeps about `nanoseconds`, below a second, or less when a signal comes.
pub(crate) fn sleep_ns(nanoseconds: u64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds.min(999_999_999) as i64 };
    // SAFETY: the kernel reads one timespec.
    let _ = unsafe { call(libc::SYS_nanosleep, [(&raw const time) as c_long, 0, 0, 0, 0, 0]) };
}

/// Sleeps while the lower half of a shared word is `seen`, at most for `nanoseconds`, below a second.
pub(crate) fn wait_while(word: &AtomicU64, seen: u32, nanoseconds: u64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds.min(999_999_999) as i64 };
    let address = core::ptr::from_ref(word) as c_long;
    // SAFETY: the kernel reads four bytes of a live word, which on little-endian machines are its lower half, and one timespec.
    let _ = unsafe {
        let timeout = (&raw const time) as c_long;
        call(libc::SYS_futex, [address, libc::FUTEX_WAIT as c_long, seen as c_long, timeout, 0, 0])
    };
}

/// CLOCK_MONOTONIC in nanoseconds, without a system call where the kernel offers that.
pub(crate) fn quick_now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec into a local. It fails for no clock that exists since Linux 2.6, so `errno` stays.
    let _ = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Times that [`pause`] yields before it sleeps.
const YIELDS: u32 = 100;
/// Longest sleep of [`pause`] in nanoseconds.
const NAP_NS: u64 = 1_000_000;

/// Lets another thread run; `before` is the number of earlier pauses.
///
/// After 100 pauses it sleeps, twice as long each time: yielding never runs a thread of a lower priority, such as the
/// holder of a lock beside a real-time thread.
pub(crate) fn pause(before: u32) {
    match before.checked_sub(YIELDS) {
        // SAFETY: sched_yield takes nothing and touches nothing.
        None => _ = unsafe { call(libc::SYS_sched_yield, [0; 6]) },
        Some(naps) => sleep_ns((1_000 << naps.min(10)).min(NAP_NS)),
    }
}
