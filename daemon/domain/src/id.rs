//! Identifiers of slices, GPUs, NUMA nodes and processes.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::number::number;
use crate::word::as_text;

/// Name of a slice: 1 to 63 of `a-z 0-9 - . _`, beginning and ending with a letter or digit, so that it is
/// valid as a file name, a label and a CDI device name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SliceName(String);

impl SliceName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Error for a text that is not a slice name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot name a slice: use 1 to 63 of a-z, 0-9, '-', '.' and '_', beginning and ending with a letter or digit"
)]
pub struct BadName(pub String);

impl FromStr for SliceName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = text.as_bytes();
        let good = (1..=63).contains(&bytes.len())
            && bytes.iter().all(|b| alphanumeric(b) || b"-._".contains(b))
            && bytes.first().is_some_and(alphanumeric)
            && bytes.last().is_some_and(alphanumeric);
        if good { Ok(Self(text.to_string())) } else { Err(BadName(text.to_string())) }
    }
}

as_text!(SliceName, BadName);

impl fmt::Display for SliceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A GPU's UUID as NVIDIA writes it: `GPU-` and a UUID of 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GpuUuid([u8; 16]);

impl GpuUuid {
    /// The UUID with these bytes, as `cuDeviceGetUuid` returns them.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes, in the order of the text form.
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }
}

/// Error for a text that is not a GPU's UUID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a GPU UUID (GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx)")]
pub struct BadUuid(pub String);

impl FromStr for GpuUuid {
    type Err = BadUuid;

    fn from_str(text: &str) -> Result<Self, BadUuid> {
        parse_uuid(text).map(Self).ok_or_else(|| BadUuid(text.to_string()))
    }
}

/// Positions of the dashes in the 36 characters of a UUID.
const DASHES: [usize; 4] = [8, 13, 18, 23];

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let body = text.strip_prefix("GPU-")?.as_bytes();
    if body.len() != 36 || DASHES.iter().any(|&at| body[at] != b'-') {
        return None;
    }
    let mut nibbles = body.iter().enumerate().filter(|(at, _)| !DASHES.contains(at)).map(|(_, &b)| b);
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        let high = char::from(nibbles.next()?).to_digit(16)?;
        let low = char::from(nibbles.next()?).to_digit(16)?;
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    Some(bytes)
}

as_text!(GpuUuid, BadUuid);

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU-")?;
        for (at, byte) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&at) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// A user's selection of a GPU, by NVML index or UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuSelector {
    /// Index as NVML counts GPUs.
    Index(u32),
    /// UUID as NVML reports it.
    Uuid(GpuUuid),
}

impl GpuSelector {
    /// Tests if it names the GPU with this index, and with this UUID as far as that is known.
    pub fn names(self, index: u32, uuid: impl Into<Option<GpuUuid>>) -> bool {
        match self {
            Self::Index(named) => named == index,
            Self::Uuid(named) => uuid.into() == Some(named),
        }
    }
}

impl FromStr for GpuSelector {
    type Err = BadUuid;

    fn from_str(text: &str) -> Result<Self, BadUuid> {
        match text.parse() {
            Ok(index) => Ok(Self::Index(index)),
            Err(_) => text.parse().map(Self::Uuid),
        }
    }
}

impl fmt::Display for GpuSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Uuid(uuid) => write!(f, "{uuid}"),
        }
    }
}

number! {
    /// A NUMA node in Linux' numbering.
    NumaNode(u32)
}

number! {
    /// A process id in the host's initial pid namespace.
    HostPid(u32), Display
}

number! {
    /// A process id in the process's own pid namespace.
    InnerPid(u32), Display
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn slice_name_rejects_path_traversal() {
        for bad in ["", "..", "a/b", "-a", "a-", "A", "ä", ".a", &"a".repeat(64)] {
            assert!(bad.parse::<SliceName>().is_err(), "{bad:?}");
        }
        assert!("train-7.b_2".parse::<SliceName>().is_ok());
    }

    #[test]
    fn gpu_selector_parses_index_and_uuid() {
        assert_eq!("3".parse(), Ok(GpuSelector::Index(3)));
        assert!("GPU-3".parse::<GpuSelector>().is_err());
    }

    proptest! {
        #[test]
        fn displayed_uuid_parses_back(bytes: [u8; 16]) {
            let uuid = GpuUuid::from_bytes(bytes);
            prop_assert_eq!(uuid.to_string().parse(), Ok(uuid));
        }

        #[test]
        fn parsing_a_uuid_never_panics(text: String) {
            let _ = text.parse::<GpuUuid>();
        }
    }
}
