//! Device ids: GPU, profile and ordinal.

use std::fmt;
use std::str::FromStr;

use tranche_domain::id::GpuUuid;

use crate::profile::ProfileName;

/// Maximum number of devices of one profile on one GPU.
pub const MOST_ALIKE: u16 = 999;

/// Id of a device, as `GPU-…::gpu-50::0` of at most 63 characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// The GPU that it is a part of.
    pub gpu: GpuUuid,
    /// Profile of the device.
    pub profile: ProfileName,
    /// Number among devices of the same profile and GPU; below [`MOST_ALIKE`].
    pub ordinal: u16,
}

/// Error for a text that is not a device id of this plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a device of this plugin; its devices look like GPU-<uuid>::gpu-50::0")]
pub struct BadDevice(pub String);

impl DeviceId {
    /// The id with this ordinal as text.
    pub(crate) fn new(gpu: GpuUuid, profile: &ProfileName, ordinal: &str) -> Option<Self> {
        let ordinal = ordinal.parse().ok().filter(|ordinal| *ordinal < MOST_ALIKE)?;
        Some(Self { gpu, profile: profile.clone(), ordinal })
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}::{}", self.gpu, self.profile, self.ordinal)
    }
}

impl FromStr for DeviceId {
    type Err = BadDevice;

    /// Accepts the canonical form only, so that ids are unique as texts.
    fn from_str(text: &str) -> Result<Self, BadDevice> {
        let read = || {
            let mut parts = text.splitn(3, "::");
            let (gpu, profile) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            Self::new(gpu, &profile, parts.next()?)
        };
        read().filter(|device| device.to_string() == text).ok_or_else(|| BadDevice(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::any_device;

    #[test]
    fn device_id_contains_gpu_profile_and_ordinal() {
        let text = "GPU-00000000-0000-0000-0000-000000000007::gpu-50::1";
        let device: DeviceId = text.parse().unwrap();
        assert_eq!((device.profile.to_string(), device.ordinal), ("gpu-50".into(), 1));
    }

    #[test]
    fn foreign_device_id_is_rejected() {
        let uuid = "GPU-0000000a-0000-0000-0000-000000000007";
        let bad = ["", "::", uuid, "GPU-1::gpu-50::0"].map(String::from);
        let worse =
            ["gpu-50::00", "gpu-50::-1", "gpu-50::999", "gpu-50::+1", "Gpu::0", "::0", "gpu-50::0::0"];
        let worse = worse.map(|rest| format!("{uuid}::{rest}"));
        let shouting = [format!("{}::gpu-50::0", uuid.to_uppercase())];
        for text in bad.into_iter().chain(worse).chain(shouting) {
            assert_eq!(text.parse::<DeviceId>(), Err(BadDevice(text.clone())));
        }
    }

    proptest! {
        #[test]
        fn device_ids_parse_back_within_63_characters(device in any_device()) {
            prop_assert_eq!(device.to_string().parse(), Ok(device.clone()));
            prop_assert!(device.to_string().len() <= 63);
        }

        #[test]
        fn parsing_a_device_id_never_panics(text: String) {
            let _ = text.parse::<DeviceId>();
        }
    }
}
