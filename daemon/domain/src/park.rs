//! Parking: a slice's device memory lies in host memory, and its part of the GPUs is free for others.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// Stage of a slice that leaves its GPUs, is away from them, or comes back.
///
/// Its part of the GPUs is free in [`ParkStage::Parked`] alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParkStage {
    /// Its processes are being checkpointed; some may hold device memory.
    Parking,
    /// None of its processes holds device memory.
    Parked,
    /// Its processes are being restored; some may hold device memory.
    Unparking,
}

impl ParkStage {
    /// Name in JSON and on the command line, lowercase and stable.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Parking => "parking",
            Self::Parked => "parked",
            Self::Unparking => "unparking",
        }
    }
}

impl fmt::Display for ParkStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
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
}
