//! Exit of an attached process, whose memory the driver has not released yet.

use std::time::Duration;

/// Longest time for which the driver usually lists a process after its end or an `execve`.
pub const MAX_LISTED_TIME: Duration = Duration::from_secs(3);

/// Exit of an attached process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exit {
    /// Time until which its memory may become free at any moment, in nanoseconds of CLOCK_MONOTONIC.
    pub(super) until_ns: u64,
    /// The driver listed it after its end.
    pub(super) listed: bool,
}

/// Prospect of memory that ended processes of the slice hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Departure {
    /// No process has ended, or each that has stays listed for longer than [`MAX_LISTED_TIME`].
    None,
    /// The driver lists a process that has ended, and may release its memory at any moment.
    Listed,
    /// A process has ended, and the driver has not been queried since.
    Unchecked,
}

impl Exit {
    /// Exit at this time, which the driver has not been queried about.
    pub(super) fn at(now_ns: u64) -> Self {
        let usually = u64::try_from(MAX_LISTED_TIME.as_nanos()).unwrap_or(u64::MAX);
        Self { until_ns: now_ns.saturating_add(usually), listed: false }
    }

    /// Prospect of the process's memory.
    pub(super) const fn departure(self, now_ns: u64) -> Departure {
        match self.listed {
            false => Departure::Unchecked,
            true if now_ns < self.until_ns => Departure::Listed,
            true => Departure::None,
        }
    }
}
