//! Devices of the pool: each GPU is one that any number of claims may share.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceAttribute, DeviceCapacity, DeviceTaint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use tranche_domain::id::GpuUuid;
use tranche_domain::units::{Bytes, MIB, Permille};
use tranche_domain::view::{GpuView, NodeView};

use crate::quantity;

/// Capacity of memory, in bytes, and of compute, in thousandths of the GPU's time.
pub(crate) const MEMORY: &str = "memory";
pub(crate) const COMPUTE: &str = "compute";

/// Name of a GPU's device; UUIDs outlive the indices of GPUs.
pub(crate) fn name(uuid: GpuUuid) -> String {
    uuid.to_string().to_lowercase()
}

/// The GPU of a device.
pub(crate) fn gpu(device: &str) -> Option<GpuUuid> {
    let body = device.strip_prefix("gpu-")?;
    format!("GPU-{body}").parse().ok()
}

/// Memory of a GPU that claims may have: whole MiB, as every request is rounded to one.
pub(crate) fn memory(gpu: &GpuView) -> Bytes {
    Bytes::mib(gpu.capacity.get() / MIB.get())
}

/// The device of a GPU.
pub(crate) fn device(node: &NodeView, gpu: &GpuView, taint: Option<DeviceTaint>) -> Device {
    let memory = memory(gpu).get();
    let capacity = [
        (MEMORY, shared(memory, MIB.get(), MIB.get(), quantity::of_bytes)),
        // Nothing is a part of it, too: a claim without compute runs when others do not.
        (COMPUTE, shared(Permille::WHOLE.get().into(), 0, 1, quantity::of)),
    ];
    Device {
        name: name(gpu.uuid),
        allow_multiple_allocations: Some(true),
        attributes: Some(attributes(node, gpu)),
        capacity: Some(capacity.into_iter().map(|(name, capacity)| (name.to_owned(), capacity)).collect()),
        taints: taint.map(|taint| vec![taint]),
        ..Device::default()
    }
}

/// A capacity that claims have parts of: all of it by default.
fn shared(value: u64, min: u64, step: u64, written: impl Fn(u64) -> Quantity) -> DeviceCapacity {
    let range = CapacityRequestPolicyRange {
        min: written(min),
        max: Some(written(value)),
        step: Some(written(step)),
    };
    let policy =
        CapacityRequestPolicy { default: Some(written(value)), valid_range: Some(range), valid_values: None };
    DeviceCapacity { value: written(value), request_policy: Some(policy) }
}

/// An attribute, cut to the API's limit for text.
pub(crate) fn text(text: &str) -> DeviceAttribute {
    let string = text.chars().take(64).collect::<String>();
    DeviceAttribute { string: Some(string), ..DeviceAttribute::default() }
}

fn attributes(node: &NodeView, gpu: &GpuView) -> BTreeMap<String, DeviceAttribute> {
    let number = |int: i64| DeviceAttribute { int: Some(int), ..DeviceAttribute::default() };
    let version = |version| DeviceAttribute { version: Some(version), ..DeviceAttribute::default() };
    let is = |bool| DeviceAttribute { bool: Some(bool), ..DeviceAttribute::default() };
    let cuda = format!("{}.{}", node.cuda_version / 1000, node.cuda_version % 1000 / 10);
    let mut all = BTreeMap::from([
        ("uuid", text(&gpu.uuid.to_string())),
        ("index", number(gpu.index.into())),
        ("productName", text(&gpu.name)),
        ("pciBusID", text(&gpu.pci_bus_id)),
        ("enforcement", text(&keyword(&node.compute_enforcement))),
        ("simulated", is(node.simulated)),
    ]);
    all.extend(gpu.numa_node.map(|numa| ("numaNode", number(numa.get().into()))));
    let versions = [
        ("driverVersion", &node.driver_version),
        ("cudaDriverVersion", &cuda),
        ("cudaComputeCapability", &gpu.compute_capability),
    ];
    all.extend(versions.into_iter().filter_map(|(name, given)| Some((name, version(semantic(given)?)))));
    all.into_iter().map(|(name, attribute)| (name.to_owned(), attribute)).collect()
}

/// The part of a description before its first comma, as a word for selectors: `gpu-time`.
fn keyword(description: &str) -> String {
    let first = description.split(',').next().unwrap_or_default();
    first.trim().to_lowercase().replace(' ', "-")
}

/// A version of up to three numbers as semantic versioning has it: three, without leading zeros.
fn semantic(version: &str) -> Option<String> {
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok()).collect::<Option<Vec<_>>>()?;
    (numbers.len() <= 3).then(|| {
        numbers.resize(3, 0);
        format!("{}.{}.{}", numbers[0], numbers[1], numbers[2])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::node;

    #[test]
    fn gpu_is_a_device_that_is_found_again() {
        let node = node(2);
        let device = device(&node, &node.gpus[1], None);
        assert_eq!(gpu(&device.name), Some(node.gpus[1].uuid));
        assert_eq!(gpu("gpu-1"), None);
        let capacity = device.capacity.unwrap();
        assert_eq!(quantity::whole(&capacity[MEMORY].value), Some(Bytes::mib(32510).get()));
        assert_eq!(quantity::whole(&capacity[COMPUTE].value), Some(1000));
        assert_eq!((device.allow_multiple_allocations, device.taints), (Some(true), None));
    }

    #[test]
    fn enforcement_is_a_word() {
        assert_eq!(keyword("GPU time, by a gate before each launch; a running kernel"), "gpu-time");
        assert_eq!((keyword("none"), keyword("")), ("none".into(), String::new()));
    }

    #[test]
    fn versions_are_semantic() {
        assert_eq!(semantic("535.104.05").as_deref(), Some("535.104.5"));
        assert_eq!(semantic("12.4").as_deref(), Some("12.4.0"));
        assert_eq!((semantic("simulated"), semantic("1.2.3.4")), (None, None));
    }
}
