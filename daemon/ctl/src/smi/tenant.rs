//! View of the node from inside a slice: the slice appears as the GPU, and other tenants are left out.

use tranche_domain::id::{HostPid, SliceName};
use tranche_domain::units::Bytes;
use tranche_domain::view::{GpuView, NodeView, ProcessView, SliceDeviceView, SliceView};

/// View of `node` from inside the slice `name`; `None` if there is no such slice.
/// GPUs have the size of its caps and its own numbering, and processes their inner pids.
pub(super) fn project(node: &NodeView, name: &SliceName) -> Option<NodeView> {
    let slice = node.slices.iter().find(|slice| slice.name == *name)?;
    let gpus =
        (0..).zip(&slice.devices).filter_map(|(index, device)| gpu(node, slice, index, device)).collect();
    Some(NodeView {
        gpus,
        slices: vec![inside(slice)],
        waiting: Vec::new(),
        notes: Vec::new(),
        ..node.clone()
    })
}

fn gpu(node: &NodeView, slice: &SliceView, index: u32, device: &SliceDeviceView) -> Option<GpuView> {
    let real = node.gpus.iter().find(|gpu| gpu.uuid == device.gpu_uuid)?;
    Some(GpuView {
        index,
        total: device.cap,
        reserved: Bytes::ZERO,
        capacity: device.cap,
        used: device.used,
        committed: device.cap,
        committed_compute: slice.compute,
        utilization_percent: device.utilization_percent,
        memory_utilization_percent: None,
        faults: Vec::new(),
        foreign: Vec::new(),
        ..real.clone()
    })
}

fn inside(slice: &SliceView) -> SliceView {
    let devices = (0..).zip(&slice.devices);
    let devices = devices.map(|(gpu_index, device)| SliceDeviceView { gpu_index, ..device.clone() });
    SliceView {
        devices: devices.collect(),
        processes: slice.processes.iter().map(as_it_knows_itself).collect(),
        root_pids: Vec::new(),
        waits_for: None,
        ..slice.clone()
    }
}

/// Replaces the host's pid by the inner one.
/// Inside another namespace the host's pid is meaningless, and private.
fn as_it_knows_itself(process: &ProcessView) -> ProcessView {
    let pid = process.inner_pid.map_or(process.pid, |inner| HostPid::new(inner.get()));
    ProcessView { pid, inner_pid: None, ..process.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn seen(name: &str) -> NodeView {
        project(&sample::node(), &name.parse().unwrap()).unwrap()
    }

    #[test]
    fn the_slice_looks_like_the_gpu() {
        let node = seen("frac05");
        assert_eq!(node.gpus.len(), 1);
        assert_eq!((node.gpus[0].total, node.gpus[0].used), (Bytes::mib(16255), Bytes::mib(8500)));
        assert_eq!(node.gpus[0].reserved, Bytes::ZERO);
    }

    #[test]
    fn other_tenants_are_invisible() {
        let text = serde_json::to_string(&seen("pair")).unwrap();
        for foreign in ["frac03", "frac05", "Xorg", "python3", "state.json", "26008"] {
            assert!(!text.contains(foreign), "{foreign} shows in {text}");
        }
    }

    #[test]
    fn gpus_are_numbered_from_zero_inside() {
        let node = seen("pair");
        assert_eq!(node.gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(node.slices[0].devices[1].gpu_index, 1);
    }

    #[test]
    fn processes_have_their_own_pids() {
        assert_eq!(seen("frac05").slices[0].processes[0].pid.get(), 7);
    }

    #[test]
    fn missing_slice_has_no_view() {
        assert_eq!(project(&sample::node(), &"gone".parse().unwrap()), None);
    }
}
