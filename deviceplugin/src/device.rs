//! Device ids: each names its GPU, its profile and which of several alike it is.

use std::fmt;
use std::str::FromStr;

use tranche_domain::id::GpuUuid;

use crate::profile::ProfileName;

/// The most devices of one profile on one GPU.
pub const MOST_ALIKE: u16 = 999;

/// One device as the kubelet knows it: `GPU-…::gpu-50::0`, at most 63 characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// The GPU that it is a part of.
    pub gpu: GpuUuid,
    /// How large that part is.
    pub profile: ProfileName,
    /// Which of those alike; below [`MOST_ALIKE`].
    pub ordinal: u16,
}

/// A text that is no device id of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a device of this plugin; its devices look like GPU-<uuid>::gpu-50::0")]
pub struct BadDevice(pub String);

impl DeviceId {
    /// The device of a profile on a GPU whose ordinal is written so.
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

    /// Only the one way in which an id is printed is read: two texts never mean the same device.
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
    fn an_id_says_which_gpu_which_profile_and_which_of_them() {
        let text = "GPU-00000000-0000-0000-0000-000000000007::gpu-50::1";
        let device: DeviceId = text.parse().unwrap();
        assert_eq!((device.profile.to_string(), device.ordinal), ("gpu-50".into(), 1));
    }

    #[test]
    fn what_is_no_id_of_ours_is_refused() {
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
        fn ids_read_back_and_are_short_enough(device in any_device()) {
            prop_assert_eq!(device.to_string().parse(), Ok(device.clone()));
            prop_assert!(device.to_string().len() <= 63);
        }

        #[test]
        fn reading_an_id_never_panics(text: String) {
            let _ = text.parse::<DeviceId>();
        }
    }
}
