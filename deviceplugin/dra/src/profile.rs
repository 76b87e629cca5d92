//! Profiles: sizes in which a GPU is offered, for pods that request one by a resource name.
//!
//! All parts of a GPU draw on its memory and compute as counters. So each profile is offered as often as it fits alone, and
//! what fits beside the others is the scheduler's to add up.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Counter, CounterSet, Device, DeviceCapacity, DeviceCounterConsumption};
use tranche_domain::id::GpuUuid;
use tranche_domain::units::{Bytes, MIB, Permille};
use tranche_domain::view::GpuView;
use tranche_domain::word::is_part;

use crate::device::{self, COMPUTE, MEMORY};
use crate::quantity;

/// Longest name of a profile: with a GPU's name and a number it is the name of a device, a DNS label.
const LONGEST_NAME: usize = 16;

/// Size of parts: a fraction of a GPU's memory and compute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartProfile {
    pub(crate) name: String,
    /// 1 to 1000.
    pub(crate) fraction: Permille,
}

impl PartProfile {
    /// Checks a name and a fraction of 1 to 1000 permille.
    pub(crate) fn new(name: String, permille: u32) -> Result<Self, String> {
        if name.len() > LONGEST_NAME || !is_part(&name) {
            return Err(format!(
                "profile {name:?} is no name of 1 to {LONGEST_NAME} of a-z, 0-9 and '-', such as gpu-50"
            ));
        }
        match Permille::try_from(permille) {
            Ok(fraction) if permille > 0 => Ok(Self { name, fraction }),
            _ => Err(format!("profile {name}: {permille} permille of a GPU are none; 1 to 1000 are")),
        }
    }

    /// Memory and compute of a part of a GPU with this memory, in whole MiB.
    pub(crate) fn size(&self, memory: Bytes) -> (Bytes, Permille) {
        (memory.part(self.fraction), self.fraction)
    }

    /// Number of parts of one GPU.
    fn count(&self) -> u32 {
        u32::from(Permille::WHOLE) / u32::from(self.fraction)
    }
}

/// Name of a part's device.
fn name(gpu: GpuUuid, profile: &str, ordinal: u32) -> String {
    format!("{}-{profile}-{ordinal}", device::name(gpu))
}

/// Names of a GPU's parts.
pub(crate) fn names(gpu: GpuUuid, profiles: &[PartProfile]) -> impl Iterator<Item = String> {
    profiles.iter().flat_map(move |one| (0..one.count()).map(move |at| name(gpu, &one.name, at)))
}

/// GPU and profile of a part's device.
pub(crate) fn parse<'a>(device: &str, profiles: &'a [PartProfile]) -> Option<(GpuUuid, &'a PartProfile)> {
    /// Characters of a GPU's name.
    const GPU: usize = 40;
    let (gpu, rest) = (device::gpu(device.get(..GPU)?)?, device.get(GPU..)?);
    let (profile, ordinal) = rest.strip_prefix('-')?.rsplit_once('-')?;
    let profile = profiles.iter().find(|one| one.name == profile)?;
    let ordinal: u32 = ordinal.parse().ok()?;
    (ordinal < profile.count()).then_some((gpu, profile))
}

/// Parts of a GPU, of each profile as many as fit alone; `whole` is the GPU's own device.
pub(crate) fn parts(whole: &Device, gpu: &GpuView, profiles: &[PartProfile]) -> Vec<Device> {
    let memory = device::memory(gpu);
    let part = |profile: &PartProfile, ordinal: u32| {
        let (memory, compute) = profile.size(memory);
        let amounts =
            [(MEMORY, quantity::of_bytes(memory.get())), (COMPUTE, quantity::of(compute.get().into()))];
        let mut attributes = whole.attributes.clone().unwrap_or_default();
        attributes.insert("profile".into(), device::text(&profile.name));
        let capacity = amounts
            .clone()
            .map(|(name, value)| (name.to_owned(), DeviceCapacity { value, request_policy: None }));
        let counters = amounts.map(|(name, value)| (name.to_owned(), Counter { value }));
        Device {
            name: name(gpu.uuid, &profile.name, ordinal),
            allow_multiple_allocations: None,
            attributes: Some(attributes),
            capacity: Some(BTreeMap::from(capacity)),
            consumes_counters: Some(vec![DeviceCounterConsumption {
                counter_set: whole.name.clone(),
                counters: BTreeMap::from(counters),
            }]),
            ..whole.clone()
        }
    };
    let fits = |profile: &&PartProfile| profile.size(memory).0 >= MIB;
    profiles
        .iter()
        .filter(fits)
        .flat_map(|profile| (0..profile.count()).map(|at| part(profile, at)))
        .collect()
}

/// Counters of a GPU, on which its parts draw.
pub(crate) fn counters(gpu: &GpuView) -> CounterSet {
    let memory = Counter { value: quantity::of_bytes(device::memory(gpu).get()) };
    let compute = Counter { value: quantity::of(Permille::WHOLE.get().into()) };
    CounterSet {
        name: device::name(gpu.uuid),
        counters: BTreeMap::from([(MEMORY.to_owned(), memory), (COMPUTE.to_owned(), compute)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::node;
    use proptest::prelude::*;

    fn profile(name: &str, permille: u32) -> PartProfile {
        PartProfile::new(name.into(), permille).unwrap()
    }

    #[test]
    fn gpu_is_offered_in_each_profile_as_often_as_it_fits() {
        let node = node(1);
        let gpu = &node.gpus[0];
        let whole = device::device(&node, gpu, None);
        let profiles = [profile("gpu-50", 500), profile("gpu-30", 300), profile("gpu", 1000)];
        let parts = parts(&whole, gpu, &profiles);
        let names: Vec<_> = parts.iter().map(|part| part.name.rsplit("0000-").next().unwrap()).collect();
        assert_eq!(names.len(), 2 + 3 + 1);
        for (part, found) in parts.iter().map(|part| (part, parse(&part.name, &profiles))) {
            let (uuid, profile) = found.expect("a part is found again");
            assert_eq!(uuid, gpu.uuid);
            let memory = quantity::whole(&part.capacity.as_ref().unwrap()[MEMORY].value);
            assert_eq!(memory, Some(profile.size(device::memory(gpu)).0.get()));
            assert!(part.name.len() <= 63);
        }
        assert_eq!(parse(&format!("{}-gpu-50-2", whole.name), &profiles), None);
        assert_eq!(parse(&whole.name, &profiles), None);
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        for (name, permille) in
            [("", 1), ("-a", 1), ("A", 1), ("a-name-that-is-long", 1), ("a", 0), ("a", 1001)]
        {
            assert!(PartProfile::new(name.into(), permille).is_err(), "{name} {permille}");
        }
    }

    proptest! {
        #[test]
        fn parts_of_a_profile_never_exceed_a_gpu(mib in 1..200_000u64, permille in 1..=1000u32) {
            let (profile, memory) = (profile("p", permille), Bytes::mib(mib));
            let count = u64::from(profile.count());
            prop_assert!(profile.size(memory).0.get() * count <= memory.get());
            prop_assert!(count * u64::from(permille) <= 1000);
        }

        #[test]
        fn any_device_name_is_survived(text: String) {
            let profiles = [profile("p", 500)];
            prop_assert_eq!(parse(&text, &profiles), None);
        }
    }
}
