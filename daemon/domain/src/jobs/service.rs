//! Services: jobs whose one member is started again whenever it ends, and the check of its health.

use alloc::string::{String, ToString};
use core::fmt;
use core::num::NonZeroU16;
use core::str::FromStr;
use core::time::Duration;

use serde::{Deserialize, Serialize};

/// Properties of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSpec {
    /// Check of its health; without one it is healthy while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthCheck>,
}

impl ServiceSpec {
    /// Runtime after which earlier failures do not count any more.
    pub const STEADY: Duration = Duration::from_mins(1);
}

/// Periodic check of a service, from its own node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// Port and path that are checked.
    pub target: HealthTarget,
    /// Time between two checks.
    pub interval: Duration,
    /// Time from the start within which the first check has to pass.
    pub start: Duration,
}

impl HealthCheck {
    /// Consecutive failures of a healthy service after which it is ended.
    pub const FAILURES: u32 = 3;
    /// Time within which a check has to pass.
    pub const TIMEOUT: Duration = Duration::from_secs(5);
    /// Interval of checks that name none.
    pub const INTERVAL: Duration = Duration::from_secs(5);
    /// Smallest and largest interval.
    pub const INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_hours(1)];
    /// Time to the first pass of checks that name none.
    pub const START: Duration = Duration::from_mins(10);
    /// Largest time to the first pass.
    pub const LONGEST_START: Duration = Duration::from_hours(24);

    /// A check within the bounds of its times.
    ///
    /// # Errors
    /// If a time is outside of its bounds.
    pub fn new(
        target: HealthTarget,
        interval: Option<Duration>,
        start: Option<Duration>,
    ) -> Result<Self, BadHealthCheck> {
        let (interval, start) = (interval.unwrap_or(Self::INTERVAL), start.unwrap_or(Self::START));
        let [least, most] = Self::INTERVALS;
        match () {
            () if interval < least || interval > most => Err(BadHealthCheck::Interval(interval)),
            () if start > Self::LONGEST_START => Err(BadHealthCheck::Start(start)),
            () => Ok(Self { target, interval, start }),
        }
    }
}

impl fmt::Display for HealthCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)
    }
}

/// Port at 127.0.0.1 that has to accept a connection.
///
/// With a path, a GET of that has to have a status from 200 to 399.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HealthTarget {
    port: NonZeroU16,
    path: Option<String>,
}

impl HealthTarget {
    /// Longest path in bytes.
    pub const LONGEST_PATH: usize = 1024;

    /// Port at 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port.get()
    }

    /// Path and query of the GET; `None` if an accepted connection suffices.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }
}

/// Error for what is no check of a service's health.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHealthCheck {
    /// The text names no port and path.
    #[error(
        "{0:?} is no check of health: write a port from 1 to 65535, such as 8000, which has to accept connections, or a port and a path \
         of visible ASCII characters, such as 8000/health, which has to be answered"
    )]
    Target(String),
    /// The interval is outside of its bounds.
    #[error("a check of health every {} ms is not possible: from 1 s to 1 h", .0.as_millis())]
    Interval(Duration),
    /// The time to the first pass is too long.
    #[error("a service cannot take {} s to become healthy: at most 24 h", .0.as_secs())]
    Start(Duration),
}

impl FromStr for HealthTarget {
    type Err = BadHealthCheck;

    fn from_str(text: &str) -> Result<Self, BadHealthCheck> {
        let bad = || BadHealthCheck::Target(text.chars().take(Self::LONGEST_PATH).collect());
        let (port, path) = match text.find('/') {
            Some(at) => (&text[..at], Some(&text[at..])),
            None => (text, None),
        };
        // A fragment is not part of what is sent to a server.
        let is_sent = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        let fits = |path: &str| path.len() <= Self::LONGEST_PATH && path.bytes().all(is_sent);
        if !port.bytes().all(|byte| byte.is_ascii_digit()) || !path.is_none_or(fits) {
            return Err(bad());
        }
        Ok(Self { port: port.parse().map_err(|_| bad())?, path: path.map(ToString::to_string) })
    }
}

impl fmt::Display for HealthTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.port, self.path().unwrap_or_default())
    }
}

impl TryFrom<String> for HealthTarget {
    type Error = BadHealthCheck;

    fn try_from(text: String) -> Result<Self, BadHealthCheck> {
        text.parse()
    }
}

impl From<HealthTarget> for String {
    fn from(target: HealthTarget) -> Self {
        target.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_and_path_parse_back() {
        for (text, port, path) in [
            ("8000", 8000, None),
            ("1/", 1, Some("/")),
            ("65535/v1/health?full=1", 65535, Some("/v1/health?full=1")),
        ] {
            let target: HealthTarget = text.parse().unwrap();
            assert_eq!((target.port(), target.path()), (port, path));
            assert_eq!(target.to_string(), text);
        }
    }

    #[test]
    fn what_would_be_another_request_is_refused() {
        let long = alloc::format!("80/{}", "a".repeat(HealthTarget::LONGEST_PATH));
        let hostile = [
            "",
            "0",
            "65536",
            "+80",
            "80 /",
            "80/a b",
            "80/\r\nX: y",
            "/health",
            "80/\u{e4}",
            "80/a#b",
            "a:80",
        ];
        for text in hostile.into_iter().chain([long.as_str()]) {
            assert!(matches!(text.parse::<HealthTarget>(), Err(BadHealthCheck::Target(_))), "{text}");
        }
    }

    #[test]
    fn times_of_a_check_are_bounded() {
        let check = |interval, start| {
            HealthCheck::new("80".parse().unwrap(), Some(Duration::from_millis(interval)), Some(start))
        };
        assert!(check(1000, Duration::ZERO).is_ok() && check(3_600_000, HealthCheck::LONGEST_START).is_ok());
        for interval in [0, 999, 3_600_001] {
            assert!(matches!(check(interval, Duration::ZERO), Err(BadHealthCheck::Interval(_))));
        }
        assert!(matches!(check(1000, Duration::MAX), Err(BadHealthCheck::Start(_))));
        let plain = HealthCheck::new("80".parse().unwrap(), None, None).unwrap();
        assert_eq!((plain.interval, plain.start), (HealthCheck::INTERVAL, HealthCheck::START));
    }
}
