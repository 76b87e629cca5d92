//! Limits of a job's members on the host: processors and memory.

use alloc::string::{String, ToString};
use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use super::amount::MilliGpus;
use crate::units::{Bytes, MIB};

/// Limits of each member on the host; what is absent is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostLimits {
    /// Processors whose time all processes of a member can use together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Memory of all processes of a member together, without swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

impl HostLimits {
    /// Smallest limit of memory.
    pub const LEAST_MEMORY: Bytes = MIB;

    /// Tests if nothing is limited.
    pub const fn is_none(&self) -> bool {
        self.cpus.is_none() && self.memory.is_none()
    }
}

/// Processors in thousandths, at least ten: 1 ms in the kernel's period of 100 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Cpus(NonZeroU32);

impl Cpus {
    /// Bounds in thousandths of a processor.
    const RANGE: core::ops::RangeInclusive<u32> = 10..=1_000_000;

    /// Thousandths of a processor.
    pub const fn milli(self) -> u32 {
        self.0.get()
    }
}

/// Error for an amount of processors that no limit can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no number of processors: write 4, or 2.5, from 0.01 to 1000, with at most three decimals")]
pub struct BadCpus(pub String);

impl TryFrom<u32> for Cpus {
    type Error = BadCpus;

    fn try_from(milli: u32) -> Result<Self, BadCpus> {
        let some = NonZeroU32::new(milli).filter(|_| Self::RANGE.contains(&milli));
        some.map(Self).ok_or_else(|| BadCpus(MilliGpus::new(milli).to_string()))
    }
}

impl From<Cpus> for u32 {
    fn from(cpus: Cpus) -> Self {
        cpus.milli()
    }
}

impl FromStr for Cpus {
    type Err = BadCpus;

    fn from_str(text: &str) -> Result<Self, BadCpus> {
        let bad = || BadCpus(text.to_string());
        let amount: MilliGpus = text.parse().map_err(|_| bad())?;
        Self::try_from(amount.get()).map_err(|_| bad())
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        MilliGpus::new(self.milli()).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_processors_parse_and_others_are_refused() {
        for (text, milli) in [("4", 4000), ("2.5", 2500), (".25", 250), ("0.01", 10), ("1000", 1_000_000)] {
            assert_eq!(text.parse::<Cpus>().unwrap().milli(), milli, "{text}");
        }
        for text in ["0", "", "-1", "x", "0.009", "1000.001", "2.5555", "4k"] {
            assert_eq!(text.parse::<Cpus>(), Err(BadCpus(text.into())), "{text}");
        }
        assert_eq!("2.50".parse::<Cpus>().unwrap().to_string(), "2.5");
    }
}
