//! What somebody asks for: how much of which GPU, under which name.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::compute::Priority;
use crate::id::{GpuSelector, SliceName};
use crate::pod::PodContainer;
use crate::units::{Bytes, Permille};

/// How much of which GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// A part of one GPU: 1 to 999 permille of its memory and compute.
    Fraction(Fraction),
    /// Whole GPUs, each given entirely.
    Whole(NonZeroU32),
    /// A part of one GPU named by its memory alone; compute follows in proportion.
    Memory(Bytes),
}

impl Share {
    /// How many GPUs it takes.
    pub fn gpus(self) -> u32 {
        match self {
            Self::Whole(count) => count.get(),
            Self::Fraction(_) | Self::Memory(_) => 1,
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fraction(fraction) => fraction.fmt(f),
            Self::Whole(count) => count.fmt(f),
            Self::Memory(bytes) => bytes.fmt(f),
        }
    }
}

/// A proper part of one GPU: 1 to 999 permille.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Fraction(Permille);

impl Fraction {
    /// The part as a share.
    pub const fn permille(self) -> Permille {
        self.0
    }
}

impl TryFrom<u32> for Fraction {
    type Error = BadShare;

    fn try_from(permille: u32) -> Result<Self, BadShare> {
        match Permille::try_from(permille) {
            Ok(share) if (1..=999).contains(&permille) => Ok(Self(share)),
            _ => Err(BadShare::FractionRange(permille)),
        }
    }
}

impl From<Fraction> for u32 {
    fn from(fraction: Fraction) -> Self {
        fraction.0.get()
    }
}

impl fmt::Display for Fraction {
    /// As a person writes it: `0.5`, `0.333`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut thousandths = self.0.get();
        let mut digits = 3;
        while thousandths.is_multiple_of(10) {
            thousandths /= 10;
            digits -= 1;
        }
        write!(f, "0.{thousandths:0digits$}")
    }
}

/// Why a text or number is no share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadShare {
    /// Not a number.
    NotANumber(String),
    /// Zero or less.
    Nothing(String),
    /// More than one GPU, but not a whole number of them.
    NotWhole(String),
    /// More precise than a thousandth.
    TooFine(String),
    /// A fraction outside 1 to 999 permille.
    FractionRange(u32),
    /// The wire named no form of share at all.
    Missing,
}

impl fmt::Display for BadShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANumber(text) => {
                write!(
                    f,
                    "{text:?} is not a number of GPUs: write a fraction such as 0.5, or whole GPUs such as 2"
                )
            }
            Self::Nothing(text) => write!(f, "{text:?} is no part of a GPU: the smallest fraction is 0.001"),
            Self::NotWhole(text) => write!(
                f,
                "{text:?} is more than one GPU but not a whole number: a fraction never straddles GPUs; \
                 ask for 0.001 to 0.999 of one, or for whole GPUs such as 2"
            ),
            Self::TooFine(text) => {
                write!(f, "{text:?} is finer than a thousandth of a GPU: use at most three decimals")
            }
            Self::FractionRange(permille) => {
                write!(f, "{permille} permille is not a fraction of one GPU: 1 to 999 are")
            }
            Self::Missing => f.write_str("the request does not say how much of a GPU is wanted"),
        }
    }
}

impl core::error::Error for BadShare {}

impl FromStr for Share {
    type Err = BadShare;

    fn from_str(text: &str) -> Result<Self, BadShare> {
        let not_a_number = || BadShare::NotANumber(text.to_string());
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if let Some(amount) = text.strip_prefix('-') {
            let number = amount.parse::<f64>().is_ok();
            return Err(if number { BadShare::Nothing(text.to_string()) } else { not_a_number() });
        }
        if whole.is_empty() && decimals.is_empty() || !digits(whole) || !digits(decimals) {
            return Err(not_a_number());
        }
        let decimals = decimals.trim_end_matches('0');
        let count = if whole.is_empty() { 0 } else { whole.parse::<u32>().map_err(|_| not_a_number())? };
        match (NonZeroU32::new(count), decimals) {
            (Some(count), "") => Ok(Self::Whole(count)),
            (Some(_), _) => Err(BadShare::NotWhole(text.to_string())),
            (None, "") => Err(BadShare::Nothing(text.to_string())),
            (None, long) if long.len() > 3 => Err(BadShare::TooFine(text.to_string())),
            (None, short) => {
                let scale = [100, 10, 1][short.len() - 1];
                let number: u32 = short.parse().map_err(|_| not_a_number())?;
                Fraction::try_from(number * scale).map(Self::Fraction)
            }
        }
    }
}

/// How a slice's compute is bounded, in the words users know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComputeMode {
    /// At least the request; idle time is shared.
    #[default]
    Fair,
    /// The request and never more.
    Strict,
    /// Only what is idle.
    BestEffort,
}

impl fmt::Display for ComputeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fair => "fair",
            Self::Strict => "strict",
            Self::BestEffort => "best-effort",
        })
    }
}

/// A number that is no priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPriority(pub i32);

impl fmt::Display for BadPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no priority: -128 to 127 are, the higher goes first, and 0 is the usual one", self.0)
    }
}

impl core::error::Error for BadPriority {}

impl TryFrom<i32> for Priority {
    type Error = BadPriority;

    fn try_from(number: i32) -> Result<Self, BadPriority> {
        i8::try_from(number).map(Self::new).map_err(|_| BadPriority(number))
    }
}

/// A slice that somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceRequest {
    /// Its name, or nothing to have one chosen.
    pub name: Option<SliceName>,
    /// How much of which GPUs.
    pub share: Share,
    /// Replaces the memory that the share implies.
    pub memory: Option<Bytes>,
    /// Replaces the compute that the share implies.
    pub compute: Option<Permille>,
    /// The most compute it may have of each GPU; nothing lets the mode say it.
    pub limit: Option<Permille>,
    /// How compute is bounded.
    pub mode: ComputeMode,
    /// Who goes first.
    pub priority: Priority,
    /// The GPUs it must be on; none lets the daemon choose. A part of several GPUs is an equal part of each.
    pub gpus: Vec<GpuSelector>,
    /// Whether it ends with its last process.
    pub ephemeral: bool,
    /// Whom it is for, where that is known already.
    pub pod: Option<PodContainer>,
}

/// A change to a slice; what is absent stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resize {
    /// New fraction: memory and compute together, where not given apart.
    pub fraction: Option<Fraction>,
    /// New memory.
    pub memory: Option<Bytes>,
    /// New compute.
    pub compute: Option<Permille>,
    /// New ceiling of compute.
    pub limit: Option<Permille>,
    /// New priority.
    pub priority: Option<Priority>,
    /// Whether its programs' launches are held from now on.
    pub frozen: Option<bool>,
}

impl Resize {
    /// Whether what the slice is promised of its GPU changes, and so may not fit.
    pub const fn concerns_size(&self) -> bool {
        self.fraction.is_some() || self.memory.is_some() || self.compute.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn people_write_shares_in_these_ways() {
        for (text, permille) in [("0.5", 500), (".5", 500), ("0.50", 500), ("0.333", 333), ("0.001", 1)] {
            let fraction = Fraction::try_from(permille).unwrap();
            assert_eq!(text.parse(), Ok(Share::Fraction(fraction)), "{text}");
        }
        assert_eq!("2".parse(), Ok(Share::Whole(NonZeroU32::new(2).unwrap())));
        assert_eq!("1.0".parse(), Ok(Share::Whole(NonZeroU32::new(1).unwrap())));
    }

    #[test]
    fn bad_shares_say_why() {
        let refused = |text: &str| text.parse::<Share>().unwrap_err();
        assert_eq!(refused("abc"), BadShare::NotANumber("abc".into()));
        assert_eq!(refused(""), BadShare::NotANumber("".into()));
        assert_eq!(refused("."), BadShare::NotANumber(".".into()));
        assert_eq!(refused("0"), BadShare::Nothing("0".into()));
        assert_eq!(refused("-0.5"), BadShare::Nothing("-0.5".into()));
        assert_eq!(refused("1.5"), BadShare::NotWhole("1.5".into()));
        assert_eq!(refused("0.0005"), BadShare::TooFine("0.0005".into()));
    }

    #[test]
    fn a_priority_has_a_range_and_an_order() {
        let priority = |number| Priority::try_from(number);
        assert_eq!(priority(0), Ok(Priority::DEFAULT));
        assert!(priority(-128).unwrap() < Priority::DEFAULT && Priority::DEFAULT < priority(127).unwrap());
        for number in [-129, 128, i32::MIN, i32::MAX] {
            assert_eq!(priority(number), Err(BadPriority(number)));
        }
    }

    proptest! {
        #[test]
        fn a_printed_fraction_reads_back(permille in 1u32..=999) {
            let fraction = Fraction::try_from(permille).unwrap();
            prop_assert_eq!(fraction.to_string().parse(), Ok(Share::Fraction(fraction)));
        }

        #[test]
        fn reading_a_share_never_panics(text: String) {
            let _ = text.parse::<Share>();
        }
    }
}
