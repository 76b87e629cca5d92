//! Bundles: the devices of one container, which form one slice.
//!
//! A process is in one slice at a time, so several devices of a container form one slice on as many GPUs. No
//! state has to be saved for a restart: a slice's name contains profile and ordinals, and the daemon reports
//! its GPUs.

use std::fmt;
use std::num::NonZeroU32;

use tranche_domain::id::{GpuSelector, GpuUuid, SliceName};
use tranche_domain::request::{Share, SliceRequest};

use crate::device::DeviceId;
use crate::profile::{Profile, ProfileName};

/// Devices of one profile on different GPUs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bundle {
    /// Sorted by GPU UUID; at least one.
    devices: Vec<DeviceId>,
    slice: SliceName,
}

/// Reason for which devices cannot form a slice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum BadBundle {
    #[error("no device is asked for")]
    Nothing,
    #[error("{a} and {b} are of different profiles, and a container gets one slice: ask for one profile")]
    Unlike { a: DeviceId, b: DeviceId },
    #[error(
        "{a} and {b} are parts of one GPU: a container that asks for several devices gets them on as many GPUs; \
         ask for one of a larger profile, or for fewer"
    )]
    SameGpu { a: DeviceId, b: DeviceId },
    #[error(
        "{count} devices of {profile} are too many for the name of one slice: ask for fewer, or give the profile \
         a shorter name"
    )]
    TooMany { count: usize, profile: ProfileName },
}

/// Prefix of slice names that belong to devices.
const SLICE_PREFIX: &str = tranche_domain::node::DEVICE_PLUGIN_PREFIX;

impl Bundle {
    /// A bundle of these devices, in any order.
    ///
    /// # Errors
    /// See [`BadBundle`].
    pub fn of(mut devices: Vec<DeviceId>) -> Result<Self, BadBundle> {
        devices.sort();
        let first = devices.first().ok_or(BadBundle::Nothing)?;
        for pair in devices.windows(2) {
            let (a, b) = (pair[0].clone(), pair[1].clone());
            if a.gpu == b.gpu {
                return Err(BadBundle::SameGpu { a, b });
            }
            if a.profile != b.profile {
                return Err(BadBundle::Unlike { a, b });
            }
        }
        let too_many = || BadBundle::TooMany { count: devices.len(), profile: first.profile.clone() };
        let slice = name(first, &devices).parse().map_err(|_| too_many())?;
        Ok(Self { devices, slice })
    }

    /// The bundle of an existing slice, if its name is one of a bundle.
    pub fn of_slice(name: &SliceName, gpus: impl IntoIterator<Item = GpuUuid>) -> Option<Self> {
        let mut parts = name.as_str().strip_prefix(SLICE_PREFIX)?.splitn(3, '.');
        let (_, profile, ordinals) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
        let mut gpus: Vec<GpuUuid> = gpus.into_iter().collect();
        gpus.sort_unstable();
        let device = |(gpu, ordinal): (GpuUuid, &str)| DeviceId::new(gpu, &profile, ordinal);
        let devices = gpus.into_iter().zip(ordinals.split('-')).map(device).collect::<Option<_>>()?;
        Self::of(devices).ok().filter(|bundle| bundle.slice == *name)
    }

    /// The devices, sorted by GPU UUID.
    pub fn devices(&self) -> &[DeviceId] {
        &self.devices
    }

    /// Profile of all devices.
    pub fn profile(&self) -> &ProfileName {
        &self.devices[0].profile
    }

    /// Name of the slice for these devices.
    pub const fn slice(&self) -> &SliceName {
        &self.slice
    }

    /// Request for the slice, with the sizes of this profile: the same part of each GPU.
    pub fn request(&self, profile: &Profile) -> SliceRequest {
        let gpus = self.devices.iter().map(|device| GpuSelector::Uuid(device.gpu)).collect::<Vec<_>>();
        let count = u32::try_from(gpus.len()).ok().and_then(NonZeroU32::new);
        let whole = count.filter(|_| profile.is_whole()).map(Share::Whole);
        SliceRequest {
            name: Some(self.slice.clone()),
            share: whole.unwrap_or(profile.request.share),
            gpus,
            // The plugin does not know which pods wait for each other (docs/decisions/0026-gangs-are-named.md).
            gang: None,
            ..profile.request.clone()
        }
    }

    /// Tests if the bundles share a device.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.devices.iter().any(|device| other.devices.contains(device))
    }
}

/// Name of a slice, from the GPU's UUID, profile and ordinals.
/// For several devices only the end of the first UUID is in it, which suffices, as bundles share no device.
fn name(first: &DeviceId, devices: &[DeviceId]) -> String {
    let uuid = first.gpu.to_string();
    let uuid = uuid.trim_start_matches("GPU-");
    let plain: String = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    let gpu = if devices.len() == 1 { uuid } else { &plain[plain.len() / 2..] };
    let ordinals: Vec<_> = devices.iter().map(|device| device.ordinal.to_string()).collect();
    format!("{SLICE_PREFIX}{gpu}.{}.{}", first.profile, ordinals.join("-"))
}

impl fmt::Display for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, device) in self.devices.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { ", " })?;
            device.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::{any_device, bundle, device};

    #[test]
    fn single_device_name_has_the_gpu_uuid() {
        let one = bundle([device(7, "gpu-50", 1)]);
        assert_eq!(one.slice().to_string(), "k8s-07070707-0707-0707-0707-070707070707.gpu-50.1");
    }

    #[test]
    fn device_order_does_not_matter() {
        let (a, b) = (device(7, "gpu-50", 1), device(9, "gpu-50", 0));
        assert_eq!(bundle([a.clone(), b.clone()]), bundle([b.clone(), a.clone()]));
        let name = bundle([a.clone(), b.clone()]).slice().clone();
        assert_eq!(name.to_string(), "k8s-0707070707070707.gpu-50.1-0");
        assert_eq!(Bundle::of_slice(&name, [b.gpu, a.gpu]), Some(bundle([a.clone(), b])));
        assert_eq!(Bundle::of_slice(&name, [a.gpu]), None, "another slice of that name");
    }

    #[test]
    fn invalid_bundles_are_rejected() {
        let (a, b, c) = (device(1, "p", 0), device(1, "p", 1), device(2, "q", 0));
        assert_eq!(Bundle::of(vec![]), Err(BadBundle::Nothing));
        assert_eq!(Bundle::of(vec![b.clone(), a.clone()]), Err(BadBundle::SameGpu { a: a.clone(), b }));
        assert_eq!(Bundle::of(vec![a.clone(), c.clone()]), Err(BadBundle::Unlike { a, b: c }));
        let eight = |profile: &str| (0..8).map(|gpu| device(gpu, profile, 998)).collect::<Vec<_>>();
        assert!(Bundle::of(eight("p")).is_ok());
        let refused = Bundle::of(eight("sixteen-letters0")).unwrap_err().to_string();
        assert!(refused.contains("8 devices of sixteen-letters0"), "{refused}");
    }

    #[test]
    fn sixteen_gpus_have_a_valid_name() {
        assert!(Bundle::of((0..16).map(|gpu| device(gpu, "whole-gpu", 0)).collect()).is_ok());
    }

    #[test]
    fn foreign_slices_are_not_bundles() {
        let (gpu, uuid) = (device(7, "p", 0).gpu, "07070707-0707-0707-0707-070707070707");
        for name in
            ["a", "k8s-a", "k8s-a.b.c", "k8s-a.p.0", &format!("{uuid}.p.0"), &format!("k8s-{uuid}.p.00")]
        {
            assert_eq!(Bundle::of_slice(&name.parse().unwrap(), [gpu]), None, "{name}");
        }
        assert_eq!(Bundle::of_slice(&format!("k8s-{uuid}.p.0").parse().unwrap(), []), None);
    }

    proptest! {
        #[test]
        fn slice_name_parses_back(devices in prop::collection::vec(any_device(), 1..6)) {
            let profile = devices[0].profile.clone();
            let apart: BTreeMap<_, _> = devices.into_iter().map(|device| (device.gpu, device)).collect();
            let alike = apart.into_values().map(|device| DeviceId { profile: profile.clone(), ..device });
            let Ok(bundle) = Bundle::of(alike.collect()) else { return Ok(()) };
            let gpus = bundle.devices().iter().rev().map(|device| device.gpu);
            prop_assert_eq!(Bundle::of_slice(bundle.slice(), gpus), Some(bundle.clone()));
        }

        #[test]
        fn disjoint_bundles_have_different_names(
            ordinals in prop::collection::vec((0u16..3, 0u16..3), 2..5),
        ) {
            let of = |pick: fn(&(u16, u16)) -> u16| {
                let devices = ordinals.iter().enumerate();
                bundle(devices.map(|(gpu, both)| device(gpu as u8, "p", pick(both))))
            };
            let (one, other) = (of(|both| both.0), of(|both| both.1));
            prop_assert!(one.overlaps(&other) || one.slice() != other.slice());
        }
    }
}
