//! The offer: all devices that the configuration derives from the node's GPUs.

use std::collections::BTreeMap;
use std::fmt;

use tranche_domain::id::{GpuSelector, GpuUuid, NumaNode};
use tranche_domain::node::{Gpu, Refusal};
use tranche_domain::units::Bytes;
use tranche_domain::view::GpuView;

use crate::config::{Config, Division};
use crate::device::{DeviceId, MOST_ALIKE};
use crate::profile::{Claim, Profile, ProfileName};

/// Division of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The GPUs that it applies to.
    pub of: Which,
    /// Profiles of its devices; a name may occur several times.
    pub profiles: Vec<ProfileName>,
}

/// GPUs that a layout applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// All without a more specific layout.
    Any,
    /// All of a model.
    Model(Model),
    /// One GPU, by index or UUID.
    Gpu(GpuSelector),
}

/// Product name of a GPU, as in NVML and `tranche smi`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model(pub String);

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("all GPUs"),
            Self::Model(Model(model)) => write!(f, "model {model:?}"),
            Self::Gpu(gpu) => write!(f, "GPU {gpu}"),
        }
    }
}

/// Properties of a GPU that determine its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuDevice {
    /// Index of the GPU in NVML.
    pub index: u32,
    /// UUID, which is part of the ids of its devices.
    pub uuid: GpuUuid,
    /// Product name, by which layouts select it.
    pub model: String,
    /// Memory available to slices.
    pub capacity: Bytes,
    /// The NUMA node next to it, if known.
    pub numa_node: Option<NumaNode>,
}

impl GpuDevice {
    /// Extracts the properties from the daemon's view.
    pub fn of(gpu: &GpuView) -> Self {
        Self {
            index: gpu.index,
            uuid: gpu.uuid,
            model: gpu.name.clone(),
            capacity: gpu.capacity,
            numa_node: gpu.numa_node,
        }
    }
}

/// A GPU cannot be divided as configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("GPU {index} ({model}, {capacity}) cannot be divided as configured: {refusal}")]
pub struct DoesNotFit {
    /// Index of the GPU in NVML.
    pub index: u32,
    /// Product name of the GPU.
    pub model: String,
    /// Memory available to slices.
    pub capacity: Bytes,
    /// Rejection by the daemon's placement.
    pub refusal: Refusal,
}

/// All devices, in use or not, with the resources of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Resources by device id.
    pub devices: BTreeMap<DeviceId, Claim>,
    /// True if more devices are offered than fit at the same time.
    pub dynamic: bool,
}

/// Memory beyond any GPU's, for checks of shares alone.
const BOUNDLESS: Bytes = Bytes::mib(1 << 40);

impl Offer {
    /// The offer for these GPUs.
    ///
    /// # Errors
    /// If a GPU is too small for its layout.
    pub fn of(config: &Config, gpu_devices: &[GpuDevice]) -> Result<Self, DoesNotFit> {
        let mut offer = Self { devices: BTreeMap::new(), dynamic: config.division == Division::Dynamic };
        for gpu_device in
            gpu_devices.iter().filter(|gpu_device| config.is_ours(gpu_device.index, gpu_device.uuid))
        {
            let made = match config.layout(gpu_device.index, gpu_device.uuid, &gpu_device.model) {
                Some(layout) => config.divide(layout, gpu_device)?,
                None if offer.dynamic => config.all_that_fit(gpu_device),
                None => Vec::new(),
            };
            offer.devices.extend(made);
        }
        Ok(offer)
    }

    /// Devices of a profile.
    pub fn of_profile(&self, name: &ProfileName) -> impl Iterator<Item = &DeviceId> {
        self.devices.keys().filter(move |device| device.profile == *name)
    }

    /// Checks a profile on a GPU of unlimited memory.
    pub(crate) fn try_profile(profile: &Profile) -> Result<Claim, Refusal> {
        let gpu_device = boundless();
        let device = DeviceId { gpu: gpu_device.uuid, profile: profile.name.clone(), ordinal: 0 };
        let claims = Profile::place(&empty(&gpu_device), [(profile, &device)])?;
        Ok(claims[0])
    }

    /// Checks that the shares of a layout fit one GPU.
    pub(crate) fn try_layout(config: &Config, layout: &Layout) -> Result<(), Refusal> {
        config.divide(layout, &boundless()).map(drop).map_err(|error| error.refusal)
    }
}

impl Config {
    fn divide(&self, layout: &Layout, gpu_device: &GpuDevice) -> Result<Vec<(DeviceId, Claim)>, DoesNotFit> {
        let mut counts = BTreeMap::<&ProfileName, u16>::new();
        let devices = layout.profiles.iter().filter_map(|name| {
            let next = counts.entry(name).or_default();
            let device = DeviceId { gpu: gpu_device.uuid, profile: name.clone(), ordinal: *next };
            *next += 1;
            Some((self.profile(name)?, device))
        });
        let devices: Vec<_> = devices.collect();
        let claims =
            Profile::place(&empty(gpu_device), devices.iter().map(|(profile, device)| (*profile, device)));
        let claims = claims.map_err(|refusal| DoesNotFit {
            index: gpu_device.index,
            model: gpu_device.model.clone(),
            capacity: gpu_device.capacity,
            refusal,
        })?;
        Ok(devices.into_iter().map(|(_, device)| device).zip(claims).collect())
    }

    /// As many devices of each profile as an empty GPU has room for.
    fn all_that_fit(&self, gpu_device: &GpuDevice) -> Vec<(DeviceId, Claim)> {
        self.profiles.iter().flat_map(|profile| alike(profile, gpu_device)).collect()
    }
}

fn alike(profile: &Profile, gpu_device: &GpuDevice) -> Vec<(DeviceId, Claim)> {
    let device = |ordinal| DeviceId { gpu: gpu_device.uuid, profile: profile.name.clone(), ordinal };
    let first = device(0);
    let Ok(claims) = Profile::place(&empty(gpu_device), [(profile, &first)]) else { return Vec::new() };
    let claim = claims[0];
    let times = |whole: u64, part: u64| whole.checked_div(part).unwrap_or(u64::MAX);
    let by_memory = times(gpu_device.capacity.get(), claim.memory.get());
    let by_compute = times(1000, claim.compute.get().into());
    let most = by_memory.min(by_compute).min(MOST_ALIKE.into());
    let most = u16::try_from(most).unwrap_or(MOST_ALIKE);
    (0..most).map(|ordinal| (device(ordinal), claim)).collect()
}

fn empty(gpu_device: &GpuDevice) -> Gpu {
    Gpu {
        index: gpu_device.index,
        uuid: gpu_device.uuid,
        island: 0,
        capacity: gpu_device.capacity,
        obstacle: None,
    }
}

fn boundless() -> GpuDevice {
    let uuid = GpuUuid::from_bytes([0; 16]);
    GpuDevice { index: 0, uuid, model: "any".into(), capacity: BOUNDLESS, numa_node: None }
}

#[cfg(test)]
mod tests;
