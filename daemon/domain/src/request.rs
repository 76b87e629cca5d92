//! Requests for slices and changes to them.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::compute::{GangName, Latency, Priority};
use crate::id::{GpuSelector, SliceName};
use crate::jobs::ProjectName;
use crate::park::IdleTime;
use crate::pod::PodContainer;
use crate::units::{Bytes, Permille};

pub use crate::compute::{BadPriority, ComputeMode};

/// Amount of GPUs requested for a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// A part of one GPU: 1 to 999 permille of its memory and compute.
    Fraction(Fraction),
    /// Whole GPUs, each given entirely.
    Whole(NonZeroU32),
    /// A part of one GPU given by its memory; compute follows in proportion.
    Memory(Bytes),
}

impl Share {
    /// Number of GPUs that it spans.
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
    /// The fraction as a share.
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
    /// Decimal form without trailing zeros: `0.5`, `0.333`.
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

/// Reason for which a text or number is not a share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadShare {
    /// The text is no number.
    #[error(
        "{0:?} is not a number of GPUs: write a fraction such as 0.5, or whole GPUs such as 2; memory has an option of its own"
    )]
    NotANumber(String),
    /// The number is zero or less.
    #[error("{0:?} is no part of a GPU: the smallest fraction is 0.001")]
    Nothing(String),
    /// More than one GPU, but not a whole number of them.
    #[error(
        "{0:?} is more than one GPU but not a whole number: a fraction never straddles GPUs; \
         ask for 0.001 to 0.999 of one, or for whole GPUs such as 2"
    )]
    NotWhole(String),
    /// More precise than a thousandth.
    #[error("{0:?} is finer than a thousandth of a GPU: use at most three decimals")]
    TooFine(String),
    /// A fraction outside 1 to 999 permille.
    #[error("{0} permille is not a fraction of one GPU: 1 to 999 are")]
    FractionRange(u32),
    /// The message contains no form of share.
    #[error("the request does not say how much of a GPU is wanted")]
    Missing,
}

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

/// Parameters of a slice to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceRequest {
    /// Name; `None` lets the daemon choose one.
    pub name: Option<SliceName>,
    /// Part of one GPU, or whole GPUs.
    pub share: Share,
    /// Memory that replaces that of the share.
    pub memory: Option<Bytes>,
    /// Compute request that replaces that of the share.
    pub compute: Option<Permille>,
    /// Compute limit on each GPU; `None` leaves it to the mode.
    pub limit: Option<Permille>,
    /// Mode that bounds its compute.
    pub mode: ComputeMode,
    /// Scheduling priority; higher first.
    pub priority: Priority,
    /// Longest wait for the GPU that it should have while it is within its share, if any.
    pub latency: Option<Latency>,
    /// The owner's gang with whose slices it has its turns, if any.
    pub gang: Option<GangName>,
    /// Project that the slice counts for; `None` lets the daemon choose one of the owner's.
    pub project: Option<ProjectName>,
    /// GPUs to use; if empty, the daemon chooses. A part on several GPUs is an equal part of each.
    pub gpus: Vec<GpuSelector>,
    /// True if the slice ends with its last process.
    pub ephemeral: bool,
    /// Time without use of its GPUs after which it is parked until its next call, if any.
    pub park_idle: Option<IdleTime>,
    /// True if it may be created without room: it is parked while others that rotate have their stay.
    pub rotates: bool,
    /// True if several containers may use it at a time.
    pub several_containers: bool,
    /// The pod that the slice is for, if known.
    pub pod: Option<PodContainer>,
}

impl SliceRequest {
    /// Request for a share of GPUs that the daemon chooses, with the defaults for all else.
    pub const fn of(share: Share) -> Self {
        Self {
            name: None,
            share,
            memory: None,
            compute: None,
            limit: None,
            mode: ComputeMode::Fair,
            priority: Priority::DEFAULT,
            latency: None,
            gang: None,
            project: None,
            gpus: Vec::new(),
            ephemeral: false,
            park_idle: None,
            rotates: false,
            several_containers: false,
            pod: None,
        }
    }
}

/// A change to a slice; absent fields stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resize {
    /// New fraction, for memory and compute unless these are given.
    pub fraction: Option<Fraction>,
    /// Memory cap from now on.
    pub memory: Option<Bytes>,
    /// Compute request from now on.
    pub compute: Option<Permille>,
    /// Compute limit from now on.
    pub limit: Option<Permille>,
    /// Priority from now on.
    pub priority: Option<Priority>,
    /// Latency target from now on; `Some(None)` takes it away.
    pub latency: Option<Option<Latency>>,
    /// Hold launches, or let them pass again.
    pub frozen: Option<bool>,
}

impl Resize {
    /// Tests if the slice's commitment on its GPU changes, and so may not fit.
    pub const fn concerns_size(&self) -> bool {
        self.fraction.is_some() || self.memory.is_some() || self.compute.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn valid_shares_parse() {
        for (text, permille) in [("0.5", 500), (".5", 500), ("0.50", 500), ("0.333", 333), ("0.001", 1)] {
            let fraction = Fraction::try_from(permille).unwrap();
            assert_eq!(text.parse(), Ok(Share::Fraction(fraction)), "{text}");
        }
        assert_eq!("2".parse(), Ok(Share::Whole(NonZeroU32::new(2).unwrap())));
        assert_eq!("1.0".parse(), Ok(Share::Whole(NonZeroU32::new(1).unwrap())));
    }

    #[test]
    fn invalid_shares_are_rejected_with_a_reason() {
        let refused = |text: &str| text.parse::<Share>().unwrap_err();
        assert_eq!(refused("abc"), BadShare::NotANumber("abc".into()));
        assert_eq!(refused(""), BadShare::NotANumber("".into()));
        assert_eq!(refused("."), BadShare::NotANumber(".".into()));
        assert_eq!(refused("0"), BadShare::Nothing("0".into()));
        assert_eq!(refused("-0.5"), BadShare::Nothing("-0.5".into()));
        assert_eq!(refused("1.5"), BadShare::NotWhole("1.5".into()));
        assert_eq!(refused("0.0005"), BadShare::TooFine("0.0005".into()));
    }

    proptest! {
        #[test]
        fn displayed_fraction_parses_back(permille in 1u32..=999) {
            let fraction = Fraction::try_from(permille).unwrap();
            prop_assert_eq!(fraction.to_string().parse(), Ok(Share::Fraction(fraction)));
        }

        #[test]
        fn parsing_a_share_never_panics(text: String) {
            let _ = text.parse::<Share>();
        }
    }
}
