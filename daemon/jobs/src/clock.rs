//! The clock of the desk. It shows for how long the machine has been on altogether since there is one: nobody sets it, it never
//! goes back, and what it showed to one daemon means the same to the next, after a reboot too. Limits and ages are by it; the
//! time of day is for people to read.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// What the clocks of the machine show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// In milliseconds since the Unix epoch, as somebody has set it.
    pub unix_ms: u64,
    /// For how long the machine has been on.
    pub uptime: Duration,
}

impl Reading {
    /// Now.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Every Linux has this clock.
        let uptime = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default();
        Self { unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX), uptime }
    }
}

/// What the desk's clock shows at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Moment(pub(crate) Duration);

impl Moment {
    /// How long it has been since then.
    pub(crate) const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The clock, as it was looked at and kept at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Clock {
    /// What it showed.
    pub(crate) showed: Moment,
    /// For how long the machine had been on then.
    uptime: Duration,
}

impl Clock {
    /// Goes on with one that was kept, or begins with nothing.
    pub(crate) fn again(kept: Option<Self>, rebooted: bool, now: Reading) -> Self {
        match kept {
            None => Self { showed: Moment::default(), uptime: now.uptime },
            // What passed from when it was kept to the reboot is not known; that is an hour at most, and the time off.
            Some(kept) if rebooted => Self { uptime: Duration::ZERO, ..kept },
            Some(kept) => kept,
        }
    }

    /// Looks at it.
    pub(crate) fn at(self, now: Reading) -> Now {
        let showed = Moment(self.showed.0 + now.uptime.saturating_sub(self.uptime));
        Now { unix_ms: now.unix_ms, clock: Self { showed, uptime: now.uptime } }
    }
}

/// The present.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// For people, who may set their clocks.
    pub(crate) unix_ms: u64,
    pub(crate) clock: Clock,
}

impl Now {
    pub(crate) const fn moment(&self) -> Moment {
        self.clock.showed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(seconds: u64) -> Reading {
        Reading { unix_ms: 0, uptime: Duration::from_secs(seconds) }
    }

    #[test]
    fn it_goes_on_with_the_next_daemon_and_over_reboots_and_never_back() {
        let shows = |clock: Clock, at: u64| clock.at(up(at)).moment().0.as_secs();
        let first = Clock::again(None, true, up(500));
        assert_eq!((shows(first, 500), shows(first, 530)), (0, 30));
        let kept = first.at(up(530)).clock;
        let second = Clock::again(Some(kept), false, up(600));
        assert_eq!(shows(second, 600), 100);
        let third = Clock::again(Some(kept), true, up(7));
        assert_eq!((shows(third, 7), shows(third, 9)), (37, 39));
        assert_eq!(shows(second, 20), 30, "a machine that cannot say that it was booted again");
    }

    #[test]
    fn the_machine_tells_for_how_long_it_has_been_on() {
        let before = Reading::now();
        assert!(before.uptime > Duration::ZERO && Reading::now().uptime >= before.uptime);
    }
}
