//! Times and durations in words.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::element::{Element, element};

/// The time now, in milliseconds since the Unix epoch.
pub(crate) fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Duration in one or two units, such as `50 s`, `12 min`, `3 h 10 min`.
///
/// It is coarse, so that a row seldom changes.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    let two = |large: u64, one: &str, small: u64, other: &str| match small {
        0 => format!("{large} {one}"),
        small => format!("{large} {one} {small} {other}"),
    };
    match seconds {
        0..60 => format!("{} s", seconds / 10 * 10),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => two(seconds / 3600, "h", seconds / 60 % 60, "min"),
        _ => two(seconds / 86_400, "d", seconds / 3600 % 24, "h"),
    }
}

/// Time as an element: UTC as text, which the script replaces by the browser's own time.
pub(crate) fn moment(unix_ms: u64) -> Element {
    let text = rfc3339(unix_ms);
    let shown = format!("{} UTC", text[..text.len().min(16)].replace('T', " "));
    element("time").with("datetime", text).text(shown)
}

/// Time in RFC 3339 to the second; the last that can be written for those beyond.
fn rfc3339(unix_ms: u64) -> String {
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    let since = Duration::from_millis(unix_ms).min(LAST);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + since).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let cases = [(9_999, "0 s"), (59_000, "50 s"), (90_000, "1 min"), (3_600_000, "1 h")];
        for (ms, text) in cases.into_iter().chain([(11_400_000, "3 h 10 min"), (353_000_000, "4 d 2 h")]) {
            assert_eq!(duration(ms), text);
        }
    }

    #[test]
    fn times_are_utc_until_the_script_runs() {
        let html = moment(1_767_323_045_000).to_string();
        assert_eq!(html, "<time datetime=\"2026-01-02T03:04:05Z\">2026-01-02 03:04 UTC</time>");
        assert!(moment(u64::MAX).to_string().contains("9999-12-31"));
    }
}
