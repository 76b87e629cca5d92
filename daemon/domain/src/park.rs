//! Parking: a slice's device memory lies in host memory, and its part of the GPUs is free for others.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;
use crate::word::named;

named! {
    /// Stage of a slice that leaves its GPUs, is away from them, or comes back.
    ///
    /// Its part of the GPUs is free in [`ParkStage::Parked`] alone.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum ParkStage {
        /// Its processes are being checkpointed; some may hold device memory.
        Parking = "parking",
        /// None of its processes holds device memory.
        Parked = "parked",
        /// Its processes are being restored; some may hold device memory.
        Unparking = "unparking",
    }
}

/// State of a slice that is not simply on its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Park {
    /// Stage that was recorded last.
    pub stage: ParkStage,
    /// Host memory that is set aside for the contents of its device memory.
    pub host: Bytes,
    /// Time of the request to park it, in milliseconds since the Unix epoch.
    pub since_unix_ms: u64,
    /// True if it was parked for its idleness, and so returns at the next call of its programs.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub wakes: bool,
}

/// Time without use of its GPUs after which a slice is parked, in whole seconds: 2 s to 30 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct IdleTime(u32);

impl IdleTime {
    /// Shortest time, in seconds: the use of a GPU is sampled each second.
    pub const LEAST: u32 = 2;
    /// Longest time, in seconds.
    pub const MOST: u32 = 30 * 24 * 60 * 60;

    /// The time in seconds.
    pub const fn seconds(self) -> u32 {
        self.0
    }

    /// Length as a duration.
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0 as u64)
    }
}

impl From<IdleTime> for u32 {
    fn from(time: IdleTime) -> Self {
        time.0
    }
}

impl TryFrom<u32> for IdleTime {
    type Error = BadIdleTime;

    fn try_from(seconds: u32) -> Result<Self, BadIdleTime> {
        if (Self::LEAST..=Self::MOST).contains(&seconds) {
            Ok(Self(seconds))
        } else {
            Err(BadIdleTime(seconds))
        }
    }
}

/// Error for a number of seconds outside the range of [`IdleTime`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a slice is parked after 2 s to 30 days without use of its GPUs, not after {0} s")]
pub struct BadIdleTime(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_has_a_range() {
        for (seconds, is_one) in [(0, false), (1, false), (2, true), (2_592_000, true), (2_592_001, false)] {
            assert_eq!(IdleTime::try_from(seconds).is_ok(), is_one, "{seconds} s");
        }
        assert_eq!(IdleTime::try_from(900).unwrap().duration(), Duration::from_secs(900));
    }
}
