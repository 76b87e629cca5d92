//! Parts of GPUs that are unavailable to jobs.

use alloc::collections::BTreeSet;

use super::Node;
use crate::id::GpuUuid;
use crate::jobs::{MemberId, MilliGpus, PoolGpu};
use crate::units::Bytes;

impl Node {
    /// The GPUs as the quota scheduler uses them. Slices of anything but these members are unavailable, and
    /// so is a GPU that takes no slices.
    pub fn for_jobs(&self, members: &BTreeSet<MemberId>) -> alloc::vec::Vec<PoolGpu> {
        let gpu = |gpu: &super::Gpu| PoolGpu {
            index: gpu.index,
            uuid: gpu.uuid,
            island: gpu.island,
            outside: match gpu.obstacle.as_ref().map(drop).or(self.cordons.get(&gpu.uuid).map(drop)) {
                Some(_) => MilliGpus::ONE,
                None => self.outside(gpu.uuid, gpu.capacity, members),
            },
            targets: {
                let others = self.latencies(gpu.uuid).filter(|(slice, _)| !is_of(slice.job, members));
                others.map(|(_, latency)| latency).collect()
            },
        };
        self.gpus.iter().map(gpu).collect()
    }

    /// The larger of the memory and compute fractions that other slices take.
    fn outside(&self, gpu: GpuUuid, capacity: Bytes, members: &BTreeSet<MemberId>) -> MilliGpus {
        let others = self.slices.values().filter(|slice| !is_of(slice.job, members));
        let parts = others.filter_map(|slice| Some((slice, slice.part_of(gpu)?.cap)));
        let (memory, compute) = parts.fold((0u128, 0u32), |(memory, compute), (slice, cap)| {
            let held = cap.saturating_add(self.excess(&slice.name, gpu));
            (memory + u128::from(held.get()), compute + slice.compute.get())
        });
        let memory = (memory * 1000).div_ceil(u128::from(capacity.get().max(1)));
        MilliGpus::new(u32::try_from(memory).unwrap_or(u32::MAX).max(compute).min(MilliGpus::ONE.get()))
    }
}

fn is_of(job: Option<MemberId>, members: &BTreeSet<MemberId>) -> bool {
    job.is_some_and(|member| members.contains(&member))
}

#[cfg(test)]
mod tests {
    use super::super::{Gpu, Node, Origin};
    use super::*;
    use crate::compute::Priority;
    use crate::jobs::JobId;
    use crate::request::{ComputeMode, SliceRequest};
    use alloc::vec;

    const MEMBER: MemberId = MemberId { job: JobId(7), index: 0 };

    fn make(node: &mut Node, name: &str, share: &str, memory: Option<Bytes>, job: Option<MemberId>) {
        let request = SliceRequest {
            name: Some(name.parse().unwrap()),
            share: share.parse().unwrap(),
            memory,
            compute: None,
            limit: None,
            priority: Priority::DEFAULT,
            latency: None,
            gang: None,
            mode: ComputeMode::Fair,
            gpus: vec![],
            ephemeral: false,
            pod: None,
        };
        node.create(&request, Origin { uid: 0, now_unix_ms: 0, job }).unwrap();
    }

    #[test]
    fn other_slices_are_unavailable_to_jobs() {
        let gpu = |index: u32, obstacle: Option<&str>| Gpu {
            index,
            uuid: GpuUuid::from_bytes([index as u8; 16]),
            island: 0,
            capacity: Bytes::mib(1001),
            obstacle: obstacle.map(Into::into),
        };
        let mut node = Node::new(vec![gpu(0, None), gpu(1, Some("broken"))]);
        make(&mut node, "ours", "0.3", None, Some(MEMBER));
        make(&mut node, "theirs", "0.2", None, None);
        let seen = |node: &Node, index: usize| node.for_jobs(&[MEMBER].into())[index].outside.get();
        assert_eq!((seen(&node, 0), seen(&node, 1)), (200, 1000));
        node.delete(&"theirs".parse().unwrap()).unwrap();
        make(&mut node, "wide", "0.1", Some(Bytes::mib(500)), None);
        assert_eq!(seen(&node, 0), 500, "500 of 1001 MiB, rounded up");
    }
}
