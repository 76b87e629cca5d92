//! A container, its slice, and the request for it.

use tranche_domain::id::{GpuSelector, SliceName};
use tranche_domain::pod::PodContainer;
use tranche_domain::request::{ComputeMode, SliceRequest};
use tranche_domain::view::{SliceDeviceView, SliceView};
use tranche_domain::word::BadWord;
use tranche_nri::api;

use crate::name;
use crate::wanted::WantedPart;

/// Variable of each container that has a slice, and of no other.
const ATTACHED: &str = "TRANCHE_SLICE_SOCKET=";

/// Relation of a container to the slice that its pod requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// None is requested, or the container has stopped.
    NotNeeded,
    /// The container has its slice.
    Slice,
    /// The container runs without its slice.
    Missing,
}

/// Name of the slice that a container has, if it has one.
pub(crate) fn slice_name(pod: &api::PodSandbox, container: &api::Container) -> Option<SliceName> {
    name::of(&pod.uid.parse().ok()?, &container.name)
}

/// Relation of a container to the slice that its pod requests.
pub(crate) fn fence(pod: &api::PodSandbox, container: &api::Container) -> Fence {
    let runs = [api::ContainerState::ContainerCreated, api::ContainerState::ContainerRunning];
    if container.env.iter().any(|variable| variable.starts_with(ATTACHED)) {
        Fence::Slice
    } else if !runs.contains(&container.state())
        || matches!(WantedPart::of(&pod.annotations, &container.name, &container.env), Ok(None))
    {
        Fence::NotNeeded
    } else {
        Fence::Missing
    }
}

/// Pod and container as the label of a slice.
pub(crate) fn label(pod: &api::PodSandbox, container: &api::Container) -> Result<PodContainer, BadWord> {
    Ok(PodContainer {
        namespace: pod.namespace.parse()?,
        name: pod.name.parse()?,
        container: container.name.parse()?,
        uid: Some(pod.uid.parse()?),
    })
}

/// Request for the slice of a container.
pub(crate) fn request(slice: &SliceName, wanted: WantedPart, pod: PodContainer) -> SliceRequest {
    SliceRequest {
        name: Some(slice.clone()),
        share: wanted.share,
        memory: wanted.memory,
        compute: wanted.compute,
        limit: None,
        mode: ComputeMode::default(),
        priority: Default::default(),
        latency: None,
        gang: None,
        project: None,
        gpus: wanted.gpus,
        ephemeral: false,
        pod: Some(pod),
    }
}

/// Tests if a slice is this part.
pub(crate) fn is_part(slice: &SliceView, wanted: &WantedPart) -> bool {
    let on = |device: &SliceDeviceView| {
        let names = [GpuSelector::Index(device.gpu_index), GpuSelector::Uuid(device.gpu_uuid)];
        names.into_iter().any(|name| wanted.gpus.contains(&name))
    };
    let gpus =
        wanted.gpus.is_empty() || wanted.gpus.len() == slice.devices.len() && slice.devices.iter().all(on);
    let memory = wanted.memory.is_none_or(|memory| slice.devices.iter().all(|device| device.cap == memory));
    slice.share == wanted.share
        && gpus
        && memory
        && wanted.compute.is_none_or(|compute| compute == slice.compute)
}
