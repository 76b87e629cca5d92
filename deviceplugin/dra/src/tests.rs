//! Helpers for the tests of several modules.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaim,
    ResourceClaimStatus, ResourcePool, ResourceSlice, ResourceSliceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tranche_domain::id::GpuUuid;
use tranche_domain::view::NodeView;
use tranche_rpc::v1;

use crate::device::{self, COMPUTE, MEMORY};
use crate::pool::PoolPart;
use crate::quantity;

pub(crate) const DRIVER: &str = "gpu.tranche.dev";
pub(crate) const NODE: &str = "n1";

pub(crate) fn uuid(gpu: u8) -> GpuUuid {
    GpuUuid::from_bytes([gpu; 16])
}

/// A node with this number of V100s.
pub(crate) fn node(gpus: u8) -> NodeView {
    let gpu = |index: u8| v1::GpuView {
        index: index.into(),
        uuid: uuid(index).to_string(),
        name: "Tesla V100-SXM2-32GB".into(),
        pci_bus_id: format!("00000000:{index:02X}:00.0"),
        compute_capability: "7.0".into(),
        total_bytes: 32768 << 20,
        capacity_bytes: (32510 << 20) + 4096,
        ..Default::default()
    };
    let view = v1::NodeView {
        driver_version: "535.104.05".into(),
        cuda_version: 12020,
        gpus: (0..gpus).map(gpu).collect(),
        ..Default::default()
    };
    view.try_into().expect("the test's node makes sense")
}

/// Part of a GPU for a request.
pub(crate) fn result(request: &str, gpu: u8, memory: u64, compute: u64) -> DeviceRequestAllocationResult {
    let consumed = [(MEMORY, memory), (COMPUTE, compute)];
    let consumed = consumed.map(|(name, amount)| (name.to_owned(), quantity::of(amount)));
    DeviceRequestAllocationResult {
        request: request.into(),
        driver: DRIVER.into(),
        pool: NODE.into(),
        device: device::name(uuid(gpu)),
        consumed_capacity: Some(BTreeMap::from(consumed)),
        share_id: Some(format!("share-{request}-{gpu}")),
        ..Default::default()
    }
}

/// A claim that was allocated so.
pub(crate) fn claim(uid: &str, results: Vec<DeviceRequestAllocationResult>) -> ResourceClaim {
    let metadata = ObjectMeta {
        namespace: Some("ns".into()),
        name: Some("c".into()),
        uid: Some(uid.into()),
        ..Default::default()
    };
    let devices = DeviceAllocationResult { results: Some(results), config: None };
    let allocation = AllocationResult { devices: Some(devices), ..Default::default() };
    let status = ResourceClaimStatus { allocation: Some(allocation), ..Default::default() };
    ResourceClaim { metadata, status: Some(status), ..Default::default() }
}

/// A pool of these devices as the API server has it.
pub(crate) fn published(wanted: &[PoolPart], generation: i64) -> Vec<ResourceSlice> {
    let pool = ResourcePool {
        name: NODE.into(),
        generation,
        resource_slice_count: i64::try_from(wanted.len()).expect("a few"),
    };
    let slice = |(index, part): (usize, &PoolPart)| {
        let (devices, shared_counters) = part.clone().fields();
        ResourceSlice {
            metadata: ObjectMeta { name: Some(format!("s{index:03}")), ..Default::default() },
            spec: ResourceSliceSpec {
                driver: DRIVER.into(),
                node_name: Some(NODE.into()),
                pool: pool.clone(),
                devices,
                shared_counters,
                ..Default::default()
            },
        }
    };
    wanted.iter().enumerate().map(slice).collect()
}
