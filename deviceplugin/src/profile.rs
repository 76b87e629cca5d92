//! Profiles: sizes of devices, each a resource of its own.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use tranche_domain::request::{Share, SliceRequest};
use tranche_domain::word::is_part;

/// Name of a profile, and part of its resource's name.
/// It is 1 to 16 of `a-z 0-9 -`, beginning and ending with a letter or digit. The limit keeps device ids within 63
/// characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileName(String);

/// Error for a text that is not a profile name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot name a profile: use 1 to 16 of a-z, 0-9 and '-', beginning and ending with a letter or digit"
)]
pub struct BadProfileName(pub String);

impl FromStr for ProfileName {
    type Err = BadProfileName;

    fn from_str(text: &str) -> Result<Self, BadProfileName> {
        let good = text.len() <= 16 && is_part(text);
        if good { Ok(Self(text.to_owned())) } else { Err(BadProfileName(text.to_owned())) }
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Parameters of a profile's slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Name, which is part of the resource's name.
    pub name: ProfileName,
    /// Request for a slice on one GPU that the daemon chooses, without a name.
    pub request: SliceRequest,
}

impl Profile {
    /// Tests if a device is a whole GPU, which requires an unused one.
    pub const fn is_whole(&self) -> bool {
        matches!(self.request.share, Share::Whole(_))
    }

    /// Share of one whole GPU.
    pub const WHOLE: Share = Share::Whole(NonZeroU32::MIN);
}
