//! Amounts of GPUs, exact to a thousandth of one: 0.5, 0.3 and 0.2 are one GPU.

use alloc::string::{String, ToString};
use core::fmt;
use core::iter::Sum;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// Thousandths of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MilliGpus(u32);

impl MilliGpus {
    /// An amount of no GPUs.
    pub const ZERO: Self = Self(0);
    /// One whole GPU, a thousand thousandths.
    pub const ONE: Self = Self(1000);
    /// Upper bound of a parsed amount; more than any node has.
    const MOST: u32 = 1_000_000;

    /// An amount in thousandths of a GPU.
    pub const fn new(thousandths: u32) -> Self {
        Self(thousandths)
    }

    /// An amount in whole GPUs, saturating.
    pub const fn whole(gpus: u32) -> Self {
        Self(gpus.saturating_mul(1000))
    }

    /// Thousandths of a GPU.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Saturating `self + other`.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Saturating `self * count`.
    #[must_use]
    pub const fn times(self, count: u32) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// `self - other`, at least zero.
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for MilliGpus {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::plus)
    }
}

impl fmt::Display for MilliGpus {
    /// Decimal form without trailing zeros: `4`, `0.5`, `2.25`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, thousandths) = (self.0 / 1000, self.0 % 1000);
        let decimals = alloc::format!("{thousandths:03}");
        match decimals.trim_end_matches('0') {
            "" => f.pad(&whole.to_string()),
            decimals => f.pad(&alloc::format!("{whole}.{decimals}")),
        }
    }
}

/// Error for a text that is not an amount of GPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no amount of GPUs: write 4, or 2.5, with at most three decimals")]
pub struct BadAmount(pub String);

impl FromStr for MilliGpus {
    type Err = BadAmount;

    fn from_str(text: &str) -> Result<Self, BadAmount> {
        parse(text).map(Self).ok_or_else(|| BadAmount(text.to_string()))
    }
}

fn parse(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let decimals = decimals.trim_end_matches('0');
    if text.len() == text.matches('.').count() || !digits(whole) || !digits(decimals) || decimals.len() > 3 {
        return None;
    }
    let thousandths: u32 = alloc::format!("{decimals:0<3}").parse().ok()?;
    let whole: u32 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    whole.checked_mul(1000)?.checked_add(thousandths).filter(|milli| *milli <= MilliGpus::MOST)
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decimal_amounts_parse_and_others_are_rejected() {
        for (text, milli) in [("4", 4000), ("0.5", 500), (".5", 500), ("2.250", 2250), ("0", 0), ("1.", 1000)]
        {
            assert_eq!(text.parse(), Ok(MilliGpus::new(milli)), "{text}");
        }
        for text in ["", ".", "-1", "x", "1.2.3", "0.0005", "5000000000", "1e3", "+1"] {
            assert_eq!(text.parse::<MilliGpus>(), Err(BadAmount(text.into())), "{text}");
        }
    }

    proptest! {
        #[test]
        fn displayed_amount_parses_back(milli in 0u32..=1_000_000) {
            let amount = MilliGpus::new(milli);
            prop_assert_eq!(amount.to_string().parse(), Ok(amount));
        }

        #[test]
        fn parsing_an_amount_never_panics(text: String) {
            let _ = text.parse::<MilliGpus>();
        }
    }
}
