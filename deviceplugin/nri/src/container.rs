//! A container, its slice, and the request for it.

use std::path::Path;

use tranche_cdi::SOCKET_FOLDER;
use tranche_domain::id::SliceName;
use tranche_domain::pod::PodContainer;
use tranche_domain::request::{Share, SliceRequest};
use tranche_domain::view::{GpuView, NodeView, SliceDeviceView, SliceView};
use tranche_domain::word::BadWord;
use tranche_nri::api;

use crate::name;
use crate::record::LastContainer;
use crate::wanted::{BadAnnotation, WantedPart};

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

/// Relation of a container to the slice that its pod requests; `runtime` is the daemon's folder.
///
/// The mount of the slice's folder is decisive: a pod may set any variable.
pub(crate) fn fence(pod: &api::PodSandbox, container: &api::Container, runtime: &Path) -> Fence {
    let runs = [api::ContainerState::ContainerCreated, api::ContainerState::ContainerRunning];
    let of_slice = |mount: &api::Mount| {
        mount.destination == SOCKET_FOLDER && Path::new(&mount.source).starts_with(runtime)
    };
    if container.mounts.iter().any(of_slice) {
        Fence::Slice
    } else if !runs.contains(&container.state())
        || matches!(WantedPart::of(&pod.annotations, &container.name, &container.env), Ok(None))
    {
        Fence::NotNeeded
    } else {
        Fence::Missing
    }
}

/// The container as the last one of its slice.
pub(crate) fn last(pod: &api::PodSandbox, container: &api::Container) -> Option<LastContainer> {
    Some(LastContainer {
        pod: pod.uid.parse().ok()?,
        sandbox: pod.id.clone(),
        id: container.id.clone(),
        created_at: container.created_at,
        stopped: container.state() == api::ContainerState::ContainerStopped,
    })
}

/// Refuses memory beyond the fraction that a scheduler has counted.
///
/// A hundredth of a GPU more is permitted: KAI rounds to it.
pub(crate) fn check_memory(wanted: &WantedPart, node: &NodeView) -> Result<(), BadAnnotation> {
    let (Share::Fraction(fraction), Some(memory)) = (wanted.share, wanted.memory) else { return Ok(()) };
    let is_chosen = |gpu: &&GpuView| {
        wanted.gpus.is_empty() || wanted.gpus.iter().any(|one| one.names(gpu.index, gpu.uuid))
    };
    let permille = u64::from(fraction.permille().get()) + 10;
    let counted = node.gpus.iter().filter(is_chosen).map(|gpu| gpu.capacity.get() / 1000 * permille).max();
    match counted {
        Some(most) if memory.get() > most => Err(BadAnnotation::More { memory, fraction }),
        _ => Ok(()),
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
        memory: wanted.memory,
        compute: wanted.compute,
        gpus: wanted.gpus,
        pod: Some(pod),
        ..SliceRequest::of(wanted.share)
    }
}

/// Tests if a slice is this part.
pub(crate) fn is_part(slice: &SliceView, wanted: &WantedPart) -> bool {
    let on =
        |device: &SliceDeviceView| wanted.gpus.iter().any(|one| one.names(device.gpu_index, device.gpu_uuid));
    let gpus =
        wanted.gpus.is_empty() || wanted.gpus.len() == slice.devices.len() && slice.devices.iter().all(on);
    let memory = wanted.memory.is_none_or(|memory| slice.devices.iter().all(|device| device.cap == memory));
    slice.share == wanted.share
        && gpus
        && memory
        && wanted.compute.is_none_or(|compute| compute == slice.compute)
}
