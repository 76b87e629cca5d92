//! Quantities as people write them on the command line.

use std::time::Duration;

use bytesize::ByteSize;
use tranche_domain::compute::Priority;
use tranche_domain::request::{Fraction, Share};
use tranche_domain::units::{Bytes, Permille};

/// Memory: `16Gi`, `16GiB`, `16G`, `512M`, or bytes. At least 1 MiB.
///
/// A G here is a gibibyte: memory is sold and shown in powers of two, and 16G that came out as 15258 MiB
/// would surprise everybody.
pub(super) fn memory(text: &str) -> Result<Bytes, String> {
    let binary = as_binary(text.trim());
    let size: ByteSize = binary
        .parse()
        .map_err(|_| format!("{text:?} is not an amount of memory: write it as 16Gi, 512Mi or 1.5Gi"))?;
    match Bytes::new(size.as_u64()) {
        bytes if bytes > MOST_MEMORY => Err(format!("{text:?} is more memory than any GPU has")),
        bytes if bytes.whole_mib() == 0 => {
            Err(format!("{text:?} is less than 1 MiB, the smallest slice of memory"))
        }
        bytes => Ok(bytes),
    }
}

/// No GPU has as much, and sums of it are far from too large for their type.
const MOST_MEMORY: Bytes = Bytes::mib(1 << 30);

/// A time: `90s`, `15m`, `12h`, `1h 30m`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let bad = |_| format!("{text:?} is no length of time: write 90s, 15m, 12h or 1h 30m");
    humantime::parse_duration(text).map_err(bad)
}

/// `16G`, `16GB` and `16Gi` all become `16GiB`; a text in no such form stays as it is.
fn as_binary(text: &str) -> String {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[number.len()..].to_ascii_lowercase();
    match unit.trim_end_matches('b').trim_end_matches('i') {
        prefix @ ("k" | "m" | "g" | "t") => format!("{}{}iB", number.trim_end(), prefix.to_ascii_uppercase()),
        _ => text.to_owned(),
    }
}

/// Compute: `30%`, `12.5%` or `0.3`; above nothing, at most the whole.
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
        // In range, so nothing is cut off.
        inside if (1.0..=1000.0).contains(&inside) => Permille::try_from(inside as u32).map_err(|_| bad()),
        _ => Err(bad()),
    }
}

/// A priority: a whole number from -128 to 127.
pub(super) fn priority(text: &str) -> Result<Priority, String> {
    let bad = || {
        format!("{text:?} is not a priority: write a whole number from -128 to 127, the higher goes first")
    };
    let number: i32 = text.trim().parse().map_err(|_| bad())?;
    Priority::try_from(number).map_err(|_| bad())
}

/// A slice's new share: a fraction, as whole GPUs have no other size.
pub(super) fn fraction(text: &str) -> Result<Fraction, String> {
    match text.parse::<Share>().map_err(|bad| bad.to_string())? {
        Share::Fraction(fraction) => Ok(fraction),
        _ => Err(format!(
            "{text:?} is whole GPUs: a slice is resized within its GPU, to 0.001 to 0.999 of it; \
             for whole GPUs, create another slice"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_memory_is_binary() {
        for text in ["16Gi", "16GiB", "16G", "16GB", "16gi", "16 GiB", "17179869184"] {
            assert_eq!(memory(text), Ok(Bytes::mib(16 * 1024)), "{text}");
        }
        assert_eq!(memory("1.5Gi"), Ok(Bytes::mib(1536)));
        assert_eq!(memory("512Mi"), Ok(Bytes::mib(512)));
    }

    #[test]
    fn memory_that_is_none_is_refused() {
        for text in ["", "Gi", "-1Gi", "lots", "0", "1023Ki", "16Xi", "ä"] {
            assert!(memory(text).is_err(), "{text}");
        }
    }

    #[test]
    fn compute_is_a_percentage_or_a_part() {
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
    fn a_priority_is_a_whole_number_in_range() {
        assert_eq!(priority("-7").map(Priority::get), Ok(-7));
        for text in ["", "128", "-129", "1.5", "high", "99999999999"] {
            assert!(priority(text).unwrap_err().contains("-128 to 127"), "{text}");
        }
    }

    #[test]
    fn a_resize_to_whole_gpus_says_what_to_do() {
        assert!(fraction("2").unwrap_err().contains("create another slice"));
        assert!(fraction("0.3").is_ok());
    }
}
