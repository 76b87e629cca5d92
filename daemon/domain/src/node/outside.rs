//! Parts of GPUs that are unavailable to jobs.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::Node;
use crate::id::GpuUuid;
use crate::jobs::{MemberId, MilliGpus, PoolGpu, Size, UserSlice};
use crate::request::Fraction;
use crate::slice::{Part, Slice};
use crate::units::Bytes;

impl Node {
    /// The GPUs as the quota scheduler uses them. Slices of pods, of other jobs than these members', and rotating ones are
    /// unavailable, and so is a GPU that cannot be used. Users' slices are in [`Node::user_slices`].
    pub fn for_jobs(&self, members: &BTreeSet<MemberId>) -> Vec<PoolGpu> {
        let gpu = |gpu: &super::Gpu| PoolGpu {
            index: gpu.index,
            uuid: gpu.uuid,
            island: gpu.island,
            capacity: gpu.capacity,
            outside: match &gpu.obstacle {
                Some(_) => MilliGpus::ONE,
                None => self.outside(gpu.uuid, gpu.capacity, members),
            },
            cordon: self.cordons.get(&gpu.uuid).cloned(),
            targets: {
                let others = self.latencies(gpu.uuid).filter(|(slice, _)| !is_of(slice.job, members));
                others.filter(|(slice, _)| !is_users(slice)).map(|(_, latency)| latency).collect()
            },
        };
        self.gpus.iter().map(gpu).collect()
    }

    /// Slices of users that no job and no pod owns.
    pub fn user_slices(&self) -> Vec<UserSlice> {
        let slices =
            self.slices.values().filter(|slice| is_users(slice) && !slice.is_away() && !slice.rotates);
        let of = |slice: &Slice| UserSlice {
            name: slice.name.clone(),
            owner_uid: slice.owner_uid,
            created_unix_ms: slice.created_unix_ms,
            project: slice.project.clone(),
            gpus: slice.parts.iter().map(|part| part.gpu).collect(),
            size: self.size_of(slice),
            latency: slice.latency,
        };
        slices.map(of).collect()
    }

    /// All slices with the parts of GPUs that they take, the larger of memory and compute.
    pub fn holdings(&self) -> impl Iterator<Item = (&Slice, Vec<(GpuUuid, MilliGpus)>)> {
        self.slices.values().filter(|slice| !slice.is_away()).map(|slice| {
            let gpus = slice.parts.iter().map(|part| {
                let gpu = self.gpus.iter().find(|gpu| gpu.uuid == part.gpu);
                let taken = self.taken([slice], part.gpu, gpu.map_or(part.cap, |gpu| gpu.capacity));
                (part.gpu, MilliGpus::new(taken.get().clamp(1, 1_000)))
            });
            (slice, gpus.collect())
        })
    }

    /// The part of each GPU that a slice takes, the larger of memory and compute.
    fn size_of(&self, slice: &Slice) -> Size {
        let part = |part: &Part| {
            let gpu = self.gpus.iter().find(|gpu| gpu.uuid == part.gpu);
            self.taken([slice], part.gpu, gpu.map_or(part.cap, |gpu| gpu.capacity)).get()
        };
        let most = slice.parts.iter().map(part).max().unwrap_or_default().max(1);
        match (Fraction::try_from(most), slice.parts.len()) {
            (Ok(fraction), 1) => Size::Part(fraction),
            (_, count) => {
                Size::Whole(u32::try_from(count).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN))
            }
        }
    }

    /// Part of a GPU that slices take which are neither these members' nor users'.
    fn outside(&self, gpu: GpuUuid, capacity: Bytes, members: &BTreeSet<MemberId>) -> MilliGpus {
        let present = self.slices.values().filter(|slice| !slice.is_away());
        let others = present.filter(|slice| !is_of(slice.job, members) && !is_users(slice) && !slice.rotates);
        let taken = self.taken(others, gpu, capacity).get() + self.rotating_part(gpu, capacity).get();
        MilliGpus::new(taken.min(MilliGpus::ONE.get()))
    }

    /// The larger of the memory and compute fractions that slices take of a GPU.
    fn taken<'a>(
        &self,
        slices: impl IntoIterator<Item = &'a Slice>,
        gpu: GpuUuid,
        capacity: Bytes,
    ) -> MilliGpus {
        let parts = slices.into_iter().filter_map(|slice| Some((slice, slice.part_of(gpu)?.cap)));
        let (memory, compute) = parts.fold((0u128, 0u32), |(memory, compute), (slice, cap)| {
            let held = cap.saturating_add(self.excess(&slice.name, gpu));
            (memory + u128::from(held.get()), compute + slice.compute.get())
        });
        let memory = (memory * 1000).div_ceil(u128::from(capacity.get().max(1)));
        MilliGpus::new(u32::try_from(memory).unwrap_or(u32::MAX).max(compute).min(MilliGpus::ONE.get()))
    }
}

/// Start of the names of the device plugin's slices, which are for pods and labelled with them later.
pub const DEVICE_PLUGIN_PREFIX: &str = "k8s-";

/// Tests if a slice is a user's. An orchestrator's slices are root's, and it has quotas of its own. Neither name nor
/// label alone decides anything, as each user can set them.
fn is_users(slice: &Slice) -> bool {
    let is_labelled = slice.pod.is_some() || slice.name.as_str().starts_with(DEVICE_PLUGIN_PREFIX);
    slice.job.is_none() && !(slice.owner_uid == 0 && is_labelled)
}

fn is_of(job: Option<MemberId>, members: &BTreeSet<MemberId>) -> bool {
    job.is_some_and(|member| members.contains(&member))
}

#[cfg(test)]
mod tests {
    use super::super::{Gpu, KeptGpus, Node, Origin};
    use super::*;
    use crate::jobs::JobId;
    use crate::pod::PodContainer;
    use crate::request::{Resize, SliceRequest};
    use alloc::string::ToString;
    use alloc::vec;

    const MEMBER: MemberId = MemberId { job: JobId(7), index: 0 };

    fn request(name: &str, share: &str, memory: Option<Bytes>, pod: Option<PodContainer>) -> SliceRequest {
        SliceRequest {
            name: Some(name.parse().unwrap()),
            memory,
            pod,
            ..SliceRequest::of(share.parse().unwrap())
        }
    }

    fn make(node: &mut Node, request: &SliceRequest, job: Option<MemberId>) {
        node.create(request, Origin { uid: 0, now_unix_ms: 0, job }).unwrap();
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
        let pod = "a/b/c".parse::<PodContainer>().unwrap();
        make(&mut node, &request("ours", "0.3", None, None), Some(MEMBER));
        make(&mut node, &request("theirs", "0.2", None, Some(pod.clone())), None);
        let seen = |node: &Node, index: usize| node.for_jobs(&[MEMBER].into())[index].outside.get();
        assert_eq!((seen(&node, 0), seen(&node, 1)), (200, 1000));
        node.delete(&"theirs".parse().unwrap()).unwrap();
        make(&mut node, &request("wide", "0.1", Some(Bytes::mib(500)), Some(pod)), None);
        assert_eq!(seen(&node, 0), 500, "500 of 1001 MiB, rounded up");
        make(&mut node, &request("user", "0.1", Some(Bytes::mib(121)), None), None);
        assert_eq!(seen(&node, 0), 500, "a user's slice counts for its project");
        make(&mut node, &request("k8s-0.half.0", "0.01", None, None), None);
        assert_eq!(seen(&node, 0), 510, "a slice of the device plugin, whose pod is not known yet");
        let sizes: Vec<_> = node.user_slices().iter().map(|slice| slice.size.total().get()).collect();
        assert_eq!(sizes, [121], "121 of 1001 MiB, rounded up");
    }

    #[test]
    fn part_kept_for_a_job_is_the_job_s() {
        let gpu = Gpu {
            index: 0,
            uuid: GpuUuid::from_bytes([0; 16]),
            island: 0,
            capacity: Bytes::mib(1000),
            obstacle: None,
        };
        let mut node = Node::new(vec![gpu.clone()]);
        node.set_kept(KeptGpus {
            parts: [(gpu.uuid, 200.try_into().unwrap())].into(),
            starting: vec![(MEMBER, vec![gpu.uuid], 400.try_into().unwrap())],
        });
        let refusal = node.check(&request("a", "0.5", None, None)).unwrap_err();
        assert!(refusal.to_string().contains("kept for a job") && refusal.may_pass(), "{refusal}");
        make(&mut node, &request("user", "0.4", None, None), None);
        let grown = Resize { memory: Some(Bytes::mib(401)), ..Resize::default() };
        assert!(node.resize(&"user".parse().unwrap(), grown).is_err());
        make(&mut node, &request("job", "0.4", None, None), Some(MEMBER));
        assert!(node.check(&request("b", "0.1", None, None)).is_err(), "the rest is kept as well");
        node.delete(&"user".parse().unwrap()).unwrap();
        assert!(node.check(&request("b", "0.4", None, None)).is_ok(), "the member has its slice");
    }
}
