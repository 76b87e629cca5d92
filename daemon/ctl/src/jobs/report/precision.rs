//! Unit and precision of the amounts of a report.
//!
//! Law: an amount is shown as zero only if it is zero, and a total is the sum of the amounts as they are shown.

/// Amount of GPU time in microseconds of a whole GPU.
pub(super) type GpuMicros = u64;

/// Unit of all amounts of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Seconds,
    Minutes,
    Hours,
}

/// Unit and number of decimals, the same for all amounts of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Precision {
    unit: Unit,
    decimals: u32,
}

/// Usual and greatest number of decimals.
const DECIMALS: u32 = 2;
const MOST_DECIMALS: u32 = 4;

impl Precision {
    /// Unit by the largest amount, and decimals by the smallest.
    pub(super) fn of(amounts: impl Iterator<Item = GpuMicros> + Clone) -> Self {
        let largest = amounts.clone().max().unwrap_or_default();
        let unit = match largest {
            0 | 3_600_000_000.. => Unit::Hours,
            60_000_000.. => Unit::Minutes,
            _ => Unit::Seconds,
        };
        let smallest = amounts.filter(|amount| *amount > 0).min().unwrap_or(unit.micros());
        let shows = |decimals: &u32| Self { unit, decimals: *decimals }.nearest(smallest) > 0;
        let decimals = (DECIMALS..MOST_DECIMALS).find(shows).unwrap_or(MOST_DECIMALS);
        Self { unit, decimals }
    }

    /// The amount in units of the last decimal; an amount that is not zero has one at least.
    pub(super) fn rounded(self, amount: GpuMicros) -> u64 {
        if amount == 0 { 0 } else { self.nearest(amount).max(1) }
    }

    /// Text of an amount that was rounded.
    pub(super) fn text(self, rounded: u64) -> String {
        let scale = 10_u64.pow(self.decimals);
        format!("{}.{:0width$}", rounded / scale, rounded % scale, width = self.decimals as usize)
    }

    /// Title of the amounts, such as `GPU-hours`.
    pub(super) const fn title(self) -> &'static str {
        match self.unit {
            Unit::Seconds => "GPU-seconds",
            Unit::Minutes => "GPU-minutes",
            Unit::Hours => "GPU-hours",
        }
    }

    fn nearest(self, amount: GpuMicros) -> u64 {
        let (scale, unit) = (10_u128.pow(self.decimals), u128::from(self.unit.micros()));
        u64::try_from((u128::from(amount) * scale + unit / 2) / unit).unwrap_or(u64::MAX)
    }
}

impl Unit {
    const fn micros(self) -> u64 {
        match self {
            Self::Seconds => 1_000_000,
            Self::Minutes => 60_000_000,
            Self::Hours => 3_600_000_000,
        }
    }
}

/// A share in percent; one that is not zero is not shown as such.
pub(super) fn percent(part: GpuMicros, whole: GpuMicros) -> Option<String> {
    let percent = 100.0 * part as f64 / whole as f64;
    (whole > 0).then(|| match percent {
        _ if part == 0 || percent >= 0.5 => format!("{percent:.0} %"),
        _ if percent >= 0.005 => format!("{percent:.2} %"),
        _ => "< 0.01 %".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000;
    const HOUR: u64 = 3600 * SECOND;

    fn shown(amounts: &[u64]) -> (&'static str, Vec<String>) {
        let precision = Precision::of(amounts.iter().copied());
        (precision.title(), amounts.iter().map(|amount| precision.text(precision.rounded(*amount))).collect())
    }

    #[test]
    fn unit_and_decimals_follow_the_amounts() {
        assert_eq!(
            shown(&[3 * HOUR, HOUR / 4, 0]),
            ("GPU-hours", vec!["3.00".into(), "0.25".into(), "0.00".into()])
        );
        assert_eq!(shown(&[HOUR, SECOND]), ("GPU-hours", vec!["1.0000".into(), "0.0003".into()]));
        assert_eq!(shown(&[90 * SECOND, 1]), ("GPU-minutes", vec!["1.5000".into(), "0.0001".into()]));
        assert_eq!(shown(&[SECOND / 4]), ("GPU-seconds", vec!["0.25".into()]));
        assert_eq!(shown(&[]).0, "GPU-hours");
    }

    #[test]
    fn share_that_is_not_zero_is_not_shown_as_zero() {
        let shares = [(0, 9), (1, 1_000_000), (1, 1_000), (6, 1_000), (1, 2), (2, 2)];
        let texts = shares.map(|(part, whole)| percent(part, whole).unwrap());
        assert_eq!(texts, ["0 %", "< 0.01 %", "0.10 %", "1 %", "50 %", "100 %"]);
        assert_eq!(percent(0, 0), None);
    }

    proptest! {
        #[test]
        fn amounts_that_are_not_zero_are_shown(amounts in proptest::collection::vec(0u64..10_000_000 * HOUR, 1..9)) {
            let (_, texts) = shown(&amounts);
            for (amount, text) in amounts.iter().zip(texts) {
                prop_assert_eq!(*amount == 0, text.chars().all(|c| c == '0' || c == '.'), "{}", text);
            }
        }
    }
}
