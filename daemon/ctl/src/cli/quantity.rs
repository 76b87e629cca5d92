//! Parsers of quantities on the command line.

use std::num::NonZeroU32;
use std::time::Duration;

use bytesize::ByteSize;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use tranche_domain::compute::{BadLatency, Latency, Priority};
use tranche_domain::id::{BadUuid, GpuSelector};
use tranche_domain::jobs::time_limit;
use tranche_domain::park::IdleTime;
use tranche_domain::request::{BadShare, Fraction, Share};
use tranche_domain::units::{Bytes, Permille};

/// One of several words, each with its help and its value.
pub(super) fn choice<T: Copy + Send + Sync>(
    words: &'static [(&'static str, &'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let known = words.iter().map(|(word, help, _)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(known).map(|given| {
        let chosen = words.iter().find(|(word, ..)| *word == given);
        chosen.map(|(.., value)| *value).expect("the parser knows these words alone")
    })
}

/// Memory: `16Gi`, `16GiB`, `16G`, `512M`, or bytes. At least 1 MiB.
///
/// G means gibibyte, since memory is sold and displayed in powers of two; a decimal 16G would be 15258 MiB.
pub(super) fn memory(text: &str) -> Result<Bytes, String> {
    memory_of(text, "any GPU has", "the smallest slice of memory")
}

/// Memory on the host, as [`memory`].
pub(super) fn host_memory(text: &str) -> Result<Bytes, String> {
    memory_of(text, "any node has", "the least that a job can have")
}

fn memory_of(text: &str, most: &str, least: &str) -> Result<Bytes, String> {
    let binary = as_binary(text.trim());
    let size: ByteSize = binary
        .parse()
        .map_err(|_| format!("{text:?} is not an amount of memory: write it as 16Gi, 512Mi or 1.5Gi"))?;
    match Bytes::new(size.as_u64()) {
        bytes if bytes > MOST_MEMORY => Err(format!("{text:?} is more memory than {most}")),
        bytes if bytes.whole_mib() == 0 => Err(format!("{text:?} is less than 1 MiB, {least}")),
        bytes => Ok(bytes),
    }
}

/// Amount of GPUs: `0.5`, `2`, `50%` or `1/2`; a fraction is rounded down to a thousandth.
pub(super) fn share(text: &str) -> Result<Share, String> {
    let text = text.trim();
    let decimal = match (text.strip_suffix('%'), text.split_once('/')) {
        (Some(percent), _) => of_percent(percent.trim_end()),
        (None, Some((part, whole))) => of_parts(part.trim(), whole.trim()),
        (None, None) => Some(text.to_owned()),
    };
    let decimal = decimal.ok_or_else(|| {
        format!(
            "{text:?} is no part of a GPU: write 0.5, 50% or 1/2, below a whole one, or whole GPUs such as 2"
        )
    })?;
    decimal.parse().map_err(|bad: BadShare| bad.to_string())
}

/// `0.5` from `50`; `None` if it is not above 0 and at most 100, or has more than one decimal.
fn of_percent(percent: &str) -> Option<String> {
    let permille = compute(&format!("{percent}%")).ok()?.get();
    let is_exact =
        percent.split_once('.').is_none_or(|(_, decimals)| decimals.trim_end_matches('0').len() <= 1);
    is_exact.then(|| of_permille(permille))
}

/// `0.333` from `1` and `3`; `None` if it is not above 0 and at most 1.
fn of_parts(part: &str, whole: &str) -> Option<String> {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (part, whole) = (
        part.parse::<u32>().ok().filter(|_| digits(part))?,
        whole.parse::<u32>().ok().filter(|_| digits(whole))?,
    );
    let permille = (u64::from(part) * 1000).checked_div(whole.into())?;
    u32::try_from(permille).ok().filter(|permille| (1..=1000).contains(permille)).map(of_permille)
}

fn of_permille(permille: u32) -> String {
    format!("{}.{:03}", permille / 1000, permille % 1000)
}

/// Upper bound on memory; more than any GPU has, and far below overflow of sums.
const MOST_MEMORY: Bytes = Bytes::mib(1 << 30);

/// Duration: `90s`, `15m`, `12h`, `1h 30m`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let bad = |_| format!("{text:?} is no length of time: write 90s, 15m, 12h or 1h 30m");
    humantime::parse_duration(text).map_err(bad)
}

/// Limit of a job's runtime: as [`time`], from 1 s to 3650 days.
pub(super) fn runtime(text: &str) -> Result<Duration, String> {
    time_limit(time(text)?).map_err(|bad| bad.to_string())
}

/// Limit of a project: as [`runtime`], or zero for none.
pub(super) fn project_limit(text: &str) -> Result<Duration, String> {
    let limit = time(text)?;
    if limit.is_zero() { Ok(limit) } else { runtime(text) }
}

/// Least time between two looks.
const LEAST_INTERVAL: Duration = Duration::from_millis(100);

/// Interval of a display: `1`, `0.5`, `2s`, `500ms`; 100 ms to 1 h.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    interval_up_to(text, Duration::from_secs(3600), "from 100ms to 1h")
}

/// Interval of a repetition: as [`interval`], without an upper bound.
pub(super) fn repetition(text: &str) -> Result<Duration, String> {
    interval_up_to(text, Duration::MAX, "at least 100ms")
}

fn interval_up_to(text: &str, most: Duration, bounds: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let length = seconds.or_else(|| humantime::parse_duration(text).ok());
    length
        .filter(|length| (LEAST_INTERVAL..=most).contains(length))
        .ok_or_else(|| format!("{text:?} is no time between two looks: write 1, 0.5, 2s or 500ms, {bounds}"))
}

/// Number of members of a job: from 1.
pub(super) fn members(text: &str) -> Result<NonZeroU32, String> {
    text.parse::<NonZeroU32>()
        .map_err(|_| format!("{text:?} is no number of members: write a whole number such as 4, at least 1"))
}

/// Number of things, from 0.
pub(super) fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text:?} is no number: write a whole number such as 3"))
}

/// Length of a period in hours: from 1.
pub(super) fn hours(text: &str) -> Result<u32, String> {
    let bad = |_| format!("{text:?} is no number of hours: write a whole number such as 24, at least 1");
    text.parse::<NonZeroU32>().map(NonZeroU32::get).map_err(bad)
}

/// Latency target: `5ms`, `2500us`, `1s`; 2 ms to 10 s.
pub(super) fn latency(text: &str) -> Result<Latency, String> {
    let length = humantime::parse_duration(text)
        .map_err(|_| format!("{text:?} is no length of time: write 5ms, 2500us or 1s"))?;
    let micros = u32::try_from(length.as_micros()).unwrap_or(u32::MAX);
    Latency::try_from(micros).map_err(|bad: BadLatency| bad.to_string())
}

/// Time without use after which a slice is parked: `15m`, `1h`; 2 s to 30 days, rounded up to seconds.
pub(super) fn idle_time(text: &str) -> Result<IdleTime, String> {
    let length = humantime::parse_duration(text)
        .map_err(|_| format!("{text:?} is no length of time: write 15m or 1h"))?;
    let seconds = length.as_secs().saturating_add(u64::from(length.subsec_nanos() > 0));
    IdleTime::try_from(u32::try_from(seconds).unwrap_or(u32::MAX)).map_err(|bad| bad.to_string())
}

/// Latency target that replaces another, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewLatency(pub Option<Latency>);

/// New latency target: as [`latency`], or `none`.
pub(super) fn new_latency(text: &str) -> Result<NewLatency, String> {
    if text == "none" { Ok(NewLatency(None)) } else { latency(text).map(|target| NewLatency(Some(target))) }
}

/// Turns `16G`, `16GB` and `16Gi` into `16GiB`; other text is unchanged.
fn as_binary(text: &str) -> String {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[number.len()..].to_ascii_lowercase();
    match unit.trim_end_matches('b').trim_end_matches('i') {
        prefix @ ("k" | "m" | "g" | "t") => format!("{}{}iB", number.trim_end(), prefix.to_ascii_uppercase()),
        _ => text.to_owned(),
    }
}

/// Compute: `30%`, `12.5%` or `0.3`; above zero, at most one.
pub(super) fn compute(text: &str) -> Result<Permille, String> {
    let bad =
        || format!("{text:?} is not a share of a GPU's compute: write 30% or 0.3, above 0 and at most 100%");
    let (number, scale) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 10.0),
        None => (text.trim(), 1000.0),
    };
    if !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(bad());
    }
    let permille = (number.parse::<f64>().map_err(|_| bad())? * scale).round();
    match permille {
        // In range, so the cast truncates nothing.
        inside if (1.0..=1000.0).contains(&inside) => Permille::try_from(inside as u32).map_err(|_| bad()),
        _ => Err(bad()),
    }
}

/// Priority: an integer from -128 to 127.
pub(super) fn priority(text: &str) -> Result<Priority, String> {
    let bad = || {
        format!("{text:?} is not a priority: write a whole number from -128 to 127, the higher goes first")
    };
    let number: i32 = text.trim().parse().map_err(|_| bad())?;
    Priority::try_from(number).map_err(|_| bad())
}

/// New share of a slice: a fraction only, since whole GPUs cannot be resized.
pub(super) fn fraction(text: &str) -> Result<Fraction, String> {
    match share(text)? {
        Share::Fraction(fraction) => Ok(fraction),
        _ => Err(format!(
            "{text:?} is whole GPUs: a slice is resized within its GPU, to 0.001 to 0.999 of it; \
             for whole GPUs, create another slice"
        )),
    }
}

/// One of a node's GPUs.
pub(super) fn gpu(text: &str) -> Result<GpuSelector, String> {
    text.parse().map_err(|bad: BadUuid| format!("{bad}, nor an index such as 3; a part of a GPU is -g 0.5"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_suffixes_are_binary() {
        for text in ["16Gi", "16GiB", "16G", "16GB", "16gi", "16 GiB", "17179869184"] {
            assert_eq!(memory(text), Ok(Bytes::mib(16 * 1024)), "{text}");
        }
        assert_eq!(memory("1.5Gi"), Ok(Bytes::mib(1536)));
        assert_eq!(memory("512Mi"), Ok(Bytes::mib(512)));
    }

    #[test]
    fn invalid_memory_is_rejected() {
        for text in ["", "Gi", "-1Gi", "lots", "0", "1023Ki", "16Xi", "ä"] {
            assert!(memory(text).is_err(), "{text}");
        }
    }

    #[test]
    fn compute_parses_percentage_and_fraction() {
        let permille = |n| Ok(Permille::try_from(n).unwrap());
        assert_eq!(compute("30%"), permille(300));
        assert_eq!(compute("12.5 %"), permille(125));
        assert_eq!(compute("0.3"), permille(300));
        assert_eq!(compute("1"), permille(1000));
        for text in ["0", "0%", "101%", "1.01", "30", "-1%", "%", "", "nan", "inf", "1e-1"] {
            assert!(compute(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parts_of_a_gpu_are_decimals_percentages_and_fractions() {
        let as_text = |text: &str| share(text).map(|share| share.to_string());
        for (text, expected) in [
            ("0.5", "0.5"),
            ("50%", "0.5"),
            ("12.5 %", "0.125"),
            ("1/2", "0.5"),
            ("1/3", "0.333"),
            ("100%", "1"),
            ("4/4", "1"),
            ("2", "2"),
        ] {
            assert_eq!(as_text(text).as_deref(), Ok(expected), "{text}");
        }
        for text in [
            "0%", "101%", "150%", "0.01%", "33.33%", "1/0", "3/2", "0/2", "1/2000", "+1/2", "a/b", "/", "%",
            "-1/2", "",
        ] {
            assert!(share(text).is_err(), "{text}");
        }
        assert!(share("1.5").unwrap_err().contains("never straddles"));
    }

    #[test]
    fn priority_is_an_integer_in_range() {
        assert_eq!(priority("-7").map(Priority::get), Ok(-7));
        for text in ["", "128", "-129", "1.5", "high", "99999999999"] {
            assert!(priority(text).unwrap_err().contains("-128 to 127"), "{text}");
        }
    }

    #[test]
    fn limits_of_time_have_bounds_and_only_a_project_has_none_by_zero() {
        assert_eq!((runtime("90s"), project_limit("0s")), (Ok(Duration::from_secs(90)), Ok(Duration::ZERO)));
        for text in ["0", "0s", "999ms", "100us", "11y", "500000000000y"] {
            assert!(runtime(text).unwrap_err().contains("from 1s to 3650 days"), "{text}");
        }
        for text in ["999ms", "100us", "11y"] {
            assert!(project_limit(text).unwrap_err().contains("from 1s to 3650 days"), "{text}");
        }
        assert!(runtime("99999999999999999999y").unwrap_err().contains("no length of time"));
    }

    #[test]
    fn interval_is_seconds_or_a_duration() {
        for (text, ms) in [("1", 1000), ("0.5", 500), ("2s", 2000), ("500ms", 500), ("1h", 3_600_000)] {
            assert_eq!(interval(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "0", "-1", "nan", "inf", "1e300", "99ms", "2h", "soon"] {
            assert!(interval(text).unwrap_err().contains("100ms to 1h"), "{text}");
        }
    }

    #[test]
    fn repetition_has_the_forms_of_an_interval_and_no_upper_bound() {
        for (text, ms) in
            [("1", 1000), ("0.5", 500), ("500ms", 500), ("2h", 7_200_000), ("86400", 86_400_000)]
        {
            assert_eq!(repetition(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "0", "-1", "99ms", "soon"] {
            let why = repetition(text).unwrap_err();
            assert!(why.contains("write 1, 0.5, 2s or 500ms, at least 100ms"), "{why}");
        }
    }

    #[test]
    fn counts_begin_at_one_and_refusals_have_an_example() {
        assert_eq!((members("3").map(NonZeroU32::get), hours("24")), (Ok(3), Ok(24)));
        for text in ["", "0", "-1", "1.5", "many", "4294967296"] {
            let (members, hours) = (members(text).unwrap_err(), hours(text).unwrap_err());
            assert!(members.contains("whole number such as 4, at least 1"), "{members}");
            assert!(hours.contains("whole number such as 24, at least 1"), "{hours}");
        }
    }

    #[test]
    fn latency_is_replaced_or_taken_away() {
        assert_eq!(new_latency("none"), Ok(NewLatency(None)));
        assert_eq!(new_latency("2500us"), Ok(NewLatency(Latency::try_from(2500).ok())));
        assert!(new_latency("0ms").unwrap_err().contains("2 ms to 10 s"));
        assert!(new_latency("never").unwrap_err().contains("5ms"));
    }

    #[test]
    fn resize_to_whole_gpus_is_rejected_with_advice() {
        assert!(fraction("2").unwrap_err().contains("create another slice"));
        assert!(fraction("0.3").is_ok());
    }
}
