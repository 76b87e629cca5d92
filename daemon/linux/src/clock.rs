//! Clocks of the daemon.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Wall-clock time in milliseconds since 1970, which may jump; 0 before 1970.
pub fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map(Duration::from);
    now.ok().and_then(|now| u64::try_from(now.as_nanos()).ok()).unwrap_or_default()
}

/// CLOCK_MONOTONIC in milliseconds.
pub fn monotonic_ms() -> u64 {
    monotonic_ns() / 1_000_000
}
