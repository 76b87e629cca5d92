//! Links and distances between GPUs.
#![forbid(unsafe_code)]

use simgpu::{Gpu, Node};

use crate::device::Device;
use crate::status::{Answer, Failure};

const TOPOLOGY_SELF: u32 = 0;
const TOPOLOGY_SWITCH: u32 = 10;
const TOPOLOGY_SOCKET: u32 = 40;
const TOPOLOGY_SYSTEM: u32 = 50;

/// `NVML_NVLINK_DEVICE_TYPE_GPU`.
pub(crate) const REMOTE_GPU: u32 = 0;
/// Lanes of each GPU's link on PCI Express.
pub(crate) const PCIE_LANES: u32 = 16;

const P2P_OK: u32 = 0;
const P2P_NOT_SUPPORTED: u32 = 5;
/// Read, write, NVLink, atomics.
const P2P_KINDS: u32 = 4;

/// Distance of two GPUs on PCI Express: pairs share a switch, halves of the node a socket.
pub(crate) fn common_ancestor(one: &Device, other: &Device) -> u32 {
    let (first, second) = (one.gpu.index(), other.gpu.index());
    let half = one.session.node.spec().gpus.len().div_ceil(2);
    match () {
        () if first == second => TOPOLOGY_SELF,
        () if first / 2 == second / 2 => TOPOLOGY_SWITCH,
        () if first / half == second / half => TOPOLOGY_SOCKET,
        () => TOPOLOGY_SYSTEM,
    }
}

/// Other GPUs at exactly this distance.
pub(crate) fn nearest(device: &Device, level: u32) -> Vec<Gpu> {
    let other = |gpu: &Gpu| Device { session: device.session.clone(), gpu: *gpu };
    let near = |gpu: &Gpu| *gpu != device.gpu && common_ancestor(device, &other(gpu)) == level;
    device.session.node.gpus().filter(near).collect()
}

/// Half of the node that a GPU is in: each is a socket, and a NUMA node.
pub(crate) fn socket(device: &Device) -> u32 {
    let half = device.session.node.spec().gpus.len().div_ceil(2);
    (device.gpu.index() / half) as u32
}

/// GPUs at a processor's socket: even processors are at the first, odd ones at the second.
pub(crate) fn half(node: &Node, processor: u32) -> Vec<Gpu> {
    let half = node.spec().gpus.len().div_ceil(2);
    node.gpus().filter(|gpu| gpu.index() / half == processor as usize % 2).collect()
}

/// `P2P_OK` if two GPUs reach each other's memory: on the same island, by NVLink.
pub(crate) fn p2p_status(one: &Device, other: &Device, kind: u32) -> Answer<u32> {
    if kind >= P2P_KINDS {
        return Err(Failure::InvalidArgument);
    }
    let linked =
        one.gpu != other.gpu && one.spec().island.is_some() && one.spec().island == other.spec().island;
    Ok(if linked { P2P_OK } else { P2P_NOT_SUPPORTED })
}

/// The GPU at the other end of a link; `None` for a link that is not connected.
///
/// Links go in pairs to the next, the one after it and so on round the island, one forwards and one back, so that
/// both ends agree.
pub(crate) fn remote(device: &Device, link: u32) -> Answer<Option<Gpu>> {
    if link >= device.model().link.nvlinks {
        return Err(Failure::InvalidArgument);
    }
    let island = island(device);
    let Some(place) = island.iter().position(|gpu| *gpu == device.gpu).filter(|_| island.len() > 1) else {
        return Ok(None);
    };
    let distance = (link as usize / 2) % (island.len() - 1) + 1;
    let step = if link.is_multiple_of(2) { distance } else { island.len() - distance };
    Ok(Some(island[(place + step) % island.len()]))
}

fn island(device: &Device) -> Vec<Gpu> {
    let node = &device.session.node;
    let same = |gpu: &Gpu| node.gpu_spec(*gpu).island == device.spec().island;
    if device.spec().island.is_some() { node.gpus().filter(same).collect() } else { Vec::new() }
}
