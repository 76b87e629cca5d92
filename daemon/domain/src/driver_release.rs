//! Releases of the NVIDIA driver, by the numbers with which their versions begin.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

/// Releases of the driver: `595.71.05` alone, or all whose versions begin with the numbers of `595`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DriverRelease(String);

impl DriverRelease {
    /// Releases on which the end of a restored process takes the host down, as far as that is known.
    ///
    /// 595.71.05 with open kernel modules did in four of four attempts (NVIDIA/cuda-checkpoint issue 53), and no later
    /// release of its branch is known to be better.
    pub fn known_to_hang() -> Vec<Self> {
        vec![Self("595".into())]
    }

    /// Tests if a version of the driver belongs to these releases.
    pub fn covers(&self, version: &str) -> bool {
        version.strip_prefix(self.0.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

impl fmt::Display for DriverRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<DriverRelease> for String {
    fn from(release: DriverRelease) -> Self {
        release.0
    }
}

impl TryFrom<String> for DriverRelease {
    type Error = BadDriverRelease;

    fn try_from(text: String) -> Result<Self, BadDriverRelease> {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let is_one = text.len() <= 32 && text.split('.').all(is_number);
        if is_one { Ok(Self(text)) } else { Err(BadDriverRelease(text)) }
    }
}

/// Error for a text that is no [`DriverRelease`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a release of the driver is written as the numbers with which its version begins, such as \"595\" or \"595.71.05\", not {0:?}"
)]
pub struct BadDriverRelease(pub String);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn release_covers_versions_by_whole_numbers() {
        for (release, version, covers) in [
            ("595", "595.71.05", true),
            ("595.71", "595.71.05", true),
            ("595.71.05", "595.71.05", true),
            ("595.7", "595.71.05", false),
            ("59", "595.71.05", false),
            ("595.71.05", "595.71", false),
            ("595", "", false),
        ] {
            let parsed = DriverRelease::try_from(release.to_string()).unwrap();
            assert_eq!(parsed.covers(version), covers, "{release} {version}");
        }
        for wrong in ["", ".", "595.", ".595", "595.x", "r595", "595 ", "-1"] {
            assert!(DriverRelease::try_from(wrong.to_string()).is_err(), "{wrong:?}");
        }
    }
}
