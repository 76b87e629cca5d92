//! Points in time and lengths of time, as people read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Clock of the user, by which times are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The time zone of this process.
    #[default]
    Local,
    /// UTC, which has no summer time.
    Utc,
}

impl Clock {
    /// A point in RFC 3339, in seconds and with the zone's offset: `2026-01-02T04:04:50+01:00`.
    pub fn seconds(self, time: SystemTime) -> String {
        self.shown(time, "%Y-%m-%dT%H:%M:%S")
    }

    /// Like [`Clock::seconds`], in minutes.
    pub fn minutes(self, time: SystemTime) -> String {
        self.shown(time, "%Y-%m-%dT%H:%M")
    }

    /// Like [`Clock::seconds`], in milliseconds.
    pub fn millis(self, time: SystemTime) -> String {
        self.shown(time, "%Y-%m-%dT%H:%M:%S%.3f")
    }

    fn shown(self, time: SystemTime, format: &str) -> String {
        let zone = match self {
            Self::Local => TimeZone::system(),
            Self::Utc => TimeZone::UTC,
        };
        let moment = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH).to_zoned_datetime(zone);
        let offset = if moment.offset().is_zero() { "Z" } else { "%:z" };
        moment.strftime(&format!("{format}{offset}")).to_string()
    }
}

/// Duration in its two largest units: `3d 4h`, `5m 6s`.
pub fn short(duration: Duration) -> String {
    units(Duration::from_secs(duration.as_secs()), 2)
}

/// Time without use of a GPU: `idle 12m`.
pub fn idle(idle_ms: u64) -> String {
    format!("idle {}", length(idle_ms))
}

/// Length in minutes, or in seconds below one.
pub fn length(length_ms: u64) -> String {
    let seconds = length_ms / 1000;
    // Seconds change too often to be worth the room.
    let rounded = if seconds < 60 { seconds } else { seconds / 60 * 60 };
    units(Duration::from_secs(rounded), 2)
}

/// Time since a point in milliseconds since the Unix epoch; zero if the clock was set back.
pub fn since(unix_ms: u64, now: SystemTime) -> Duration {
    now.duration_since(at(unix_ms)).unwrap_or_default()
}

/// A length in whole milliseconds; the largest number for one that has more.
pub fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// This moment in milliseconds since the Unix epoch; zero before it.
pub fn now_unix_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A point in milliseconds since the Unix epoch.
pub fn at(unix_ms: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms)).unwrap_or(UNIX_EPOCH)
}

fn units(duration: Duration, most: usize) -> String {
    let seconds = duration.as_secs();
    let amounts =
        [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let some = amounts.iter().filter(|(amount, _)| *amount > 0).take(most);
    let text: Vec<_> = some.map(|(amount, unit)| format!("{amount}{unit}")).collect();
    if text.is_empty() { "0s".into() } else { text.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        assert_eq!(short(Duration::from_secs(3 * 3600 + 62)), "3h 1m");
        assert_eq!(short(Duration::from_millis(5_900)), "5s");
        assert_eq!(short(Duration::from_secs(400 * 86_400)), "400d");
        assert_eq!(short(Duration::ZERO), "0s");
    }

    #[test]
    fn times_have_the_offset_of_their_zone() {
        let time = at(1_767_323_090_007);
        assert_eq!(Clock::Utc.seconds(time), "2026-01-02T03:04:50Z");
        assert_eq!(Clock::Utc.minutes(time), "2026-01-02T03:04Z");
        assert_eq!(Clock::Utc.millis(time), "2026-01-02T03:04:50.007Z");
        let berlin = TimeZone::fixed(jiff::tz::offset(1));
        let moment = Timestamp::try_from(time).unwrap().to_zoned_datetime(berlin);
        assert_eq!(moment.strftime("%H:%M%:z").to_string(), "04:04+01:00");
        assert!(Clock::Local.seconds(time).starts_with("2026-01-0"));
    }

    #[test]
    fn idle_time_is_in_minutes() {
        assert_eq!(idle(45_678), "idle 45s");
        assert_eq!(idle(12 * 60_000 + 59_000), "idle 12m");
        assert_eq!(idle(26 * 3_600_000), "idle 1d 2h");
    }
}
