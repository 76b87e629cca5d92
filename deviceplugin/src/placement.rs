//! Placement of devices on an empty GPU, as the daemon places slices.

use std::collections::BTreeMap;

use tranche_domain::compute::Latency;
use tranche_domain::id::{GpuUuid, NumaNode};
use tranche_domain::node::{Gpu, Node, Origin, Refusal};
use tranche_domain::slice::Slice;
use tranche_domain::units::{Bytes, Permille};
use tranche_domain::view::GpuView;

use crate::bundle::Bundle;
use crate::device::{DeviceId, MOST_ALIKE};
use crate::layout::Layout;
use crate::profile::{Profile, ProfileName};

/// Memory beyond any GPU's, for checks of shares alone.
const BOUNDLESS: Bytes = Bytes::mib(1 << 40);

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

    /// A GPU of unlimited memory, for checks of shares alone.
    fn boundless() -> Self {
        let uuid = GpuUuid::from_bytes([0; 16]);
        Self { index: 0, uuid, model: "any".into(), capacity: BOUNDLESS, numa_node: None }
    }

    /// The GPU without slices.
    fn empty(&self) -> Gpu {
        Gpu { index: self.index, uuid: self.uuid, island: 0, capacity: self.capacity, obstacle: None }
    }
}

/// Resources of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Memory; whole MiB unless it is the whole GPU.
    pub memory: Bytes,
    /// Guaranteed compute, in permille of a GPU.
    pub compute: Permille,
    /// Latency target of its slice, if any.
    pub latency: Option<Latency>,
}

impl Claim {
    fn of(slice: &Slice) -> Self {
        let memory = slice.parts.iter().map(|part| part.cap).sum();
        Self { memory, compute: slice.guaranteed(), latency: slice.latency }
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

/// Checks a profile on a GPU of unlimited memory.
pub(crate) fn check_profile(profile: &Profile) -> Result<(), Refusal> {
    let gpu_device = GpuDevice::boundless();
    let device = DeviceId { gpu: gpu_device.uuid, profile: profile.name.clone(), ordinal: 0 };
    place(&gpu_device, [(profile, &device)]).map(drop)
}

/// Checks that the shares of a layout fit one GPU.
pub(crate) fn check_layout(profiles: &[Profile], layout: &Layout) -> Result<(), Refusal> {
    divide(&GpuDevice::boundless(), profiles, layout).map(drop).map_err(|error| error.refusal)
}

/// Devices of a layout on a GPU, with their resources.
pub(crate) fn divide(
    gpu_device: &GpuDevice,
    profiles: &[Profile],
    layout: &Layout,
) -> Result<Vec<(DeviceId, Claim)>, DoesNotFit> {
    let mut counts = BTreeMap::<&ProfileName, u16>::new();
    let devices = layout.profiles.iter().filter_map(|name| {
        let next = counts.entry(name).or_default();
        let device = DeviceId { gpu: gpu_device.uuid, profile: name.clone(), ordinal: *next };
        *next += 1;
        Some((profiles.iter().find(|profile| profile.name == *name)?, device))
    });
    let devices: Vec<_> = devices.collect();
    let claims = place(gpu_device, devices.iter().map(|(profile, device)| (*profile, device)));
    let claims = claims.map_err(|refusal| DoesNotFit {
        index: gpu_device.index,
        model: gpu_device.model.clone(),
        capacity: gpu_device.capacity,
        refusal,
    })?;
    Ok(devices.into_iter().map(|(_, device)| device).zip(claims).collect())
}

/// As many devices of a profile as the empty GPU has room for.
pub(crate) fn all_that_fit(gpu_device: &GpuDevice, profile: &Profile) -> Vec<(DeviceId, Claim)> {
    let device = |ordinal| DeviceId { gpu: gpu_device.uuid, profile: profile.name.clone(), ordinal };
    let first = device(0);
    let Ok(claims) = place(gpu_device, [(profile, &first)]) else { return Vec::new() };
    let claim = claims[0];
    let times = |whole: u64, part: u64| whole.checked_div(part).unwrap_or(u64::MAX);
    let by_memory = times(gpu_device.capacity.get(), claim.memory.get());
    let by_compute = times(1000, claim.compute.get().into());
    let by_latency =
        claim.latency.map_or(u64::MAX, |target| u64::from(target.micros() / Latency::LEAST.micros()));
    let most = by_memory.min(by_compute).min(by_latency).min(MOST_ALIKE.into());
    let most = u16::try_from(most).unwrap_or(MOST_ALIKE);
    (0..most).map(|ordinal| (device(ordinal), claim)).collect()
}

/// Places devices on an empty GPU in turn; returns the resources of each.
///
/// # Errors
/// The rejection of the first device that does not fit.
fn place<'a>(
    gpu_device: &GpuDevice,
    devices: impl IntoIterator<Item = (&'a Profile, &'a DeviceId)>,
) -> Result<Vec<Claim>, Refusal> {
    let mut node = Node::new(vec![gpu_device.empty()]);
    let claims = devices.into_iter().map(|(profile, device)| {
        let alone = Bundle::of(vec![device.clone()]).expect("one device always has a name");
        node.create(&alone.request(profile), Origin { uid: 0, now_unix_ms: 0, job: None }).map(Claim::of)
    });
    claims.collect()
}
