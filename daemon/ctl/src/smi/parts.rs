//! Arrangement of slices under their GPUs.

use tranche_domain::view::{NodeView, SliceDeviceView, SliceView};

/// Parts of all slices in the order of GPUs, with the index of the part in its slice.
pub(super) fn by_gpu(node: &NodeView) -> Vec<(&SliceView, usize, &SliceDeviceView)> {
    let parts = |slice| parts(slice);
    let mut all: Vec<_> = node.slices.iter().flat_map(parts).collect();
    all.sort_by_key(|(_, _, device)| device.gpu_index);
    all
}

fn parts(slice: &SliceView) -> impl Iterator<Item = (&SliceView, usize, &SliceDeviceView)> {
    slice.devices.iter().enumerate().map(move |(position, device)| (slice, position, device))
}
