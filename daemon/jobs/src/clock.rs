//! The job clock: total uptime of the machine since the store was created. It is monotonic, is not affected
//! by changes of the system time, and continues over restarts and reboots. Limits and ages use it; wall-clock
//! times are for display.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Readings of the system clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Wall-clock time in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Time since boot, including suspend.
    pub uptime: Duration,
}

impl ClockReading {
    /// Readings of the system's clocks at this instant.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // CLOCK_BOOTTIME exists on every Linux that is supported.
        let uptime = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default();
        Self { unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX), uptime }
    }
}

/// A time on the job clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct JobTime(pub(crate) Duration);

impl JobTime {
    /// Time since `earlier`, at least zero.
    pub(crate) const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole milliseconds.
    pub(crate) fn millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

/// State of the job clock at the time it was last saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Clock {
    /// Time that the job clock showed.
    pub(crate) showed: JobTime,
    /// Uptime at that moment.
    uptime: Duration,
}

impl Clock {
    /// Continues a saved clock, or starts at zero.
    pub(crate) fn again(kept: Option<Self>, rebooted: bool, now: ClockReading) -> Self {
        match kept {
            None => Self { showed: JobTime::default(), uptime: now.uptime },
            // The time between the last save and the start of this daemon is lost: nothing of it runs any more.
            Some(kept) if rebooted => Self { uptime: now.uptime, ..kept },
            Some(kept) => kept,
        }
    }

    /// The time for these readings.
    pub(crate) fn at(self, now: ClockReading) -> Now {
        let showed = JobTime(self.showed.0 + now.uptime.saturating_sub(self.uptime));
        Now { unix_ms: now.unix_ms, clock: Self { showed, uptime: now.uptime } }
    }
}

/// The current time on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Wall-clock time for display.
    pub(crate) unix_ms: u64,
    pub(crate) clock: Clock,
}

impl Now {
    pub(crate) const fn moment(&self) -> JobTime {
        self.clock.showed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(seconds: u64) -> ClockReading {
        ClockReading { unix_ms: 0, uptime: Duration::from_secs(seconds) }
    }

    #[test]
    fn clock_continues_over_restarts_and_reboots() {
        let shows = |clock: Clock, at: u64| clock.at(up(at)).moment().0.as_secs();
        let first = Clock::again(None, true, up(500));
        assert_eq!((shows(first, 500), shows(first, 530)), (0, 30));
        let kept = first.at(up(530)).clock;
        let second = Clock::again(Some(kept), false, up(600));
        assert_eq!(shows(second, 600), 100);
        let third = Clock::again(Some(kept), true, up(7));
        assert_eq!((shows(third, 7), shows(third, 9)), (30, 32));
        assert_eq!(shows(second, 20), 30, "a machine that cannot say that it was booted again");
    }

    #[test]
    fn boottime_clock_is_available() {
        let before = ClockReading::now();
        assert!(before.uptime > Duration::ZERO && ClockReading::now().uptime >= before.uptime);
    }
}
