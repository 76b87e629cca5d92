//! Users of a GPU without a shim: processes of a pod that has the whole GPU, and foreign ones.
//!
//! A container with a whole GPU needs no shim, so its processes attach to nothing. Their pod is known from their
//! cgroups, and that of a slice from its label.

use std::collections::{BTreeMap, BTreeSet};

use tranche_domain::id::{GpuUuid, HostPid, SliceName};
use tranche_domain::pod::PodUid;
use tranche_domain::request::Share;
use tranche_domain::slice::Slice;
use tranche_slices::pod_cgroup::PodCgroups;
use tranche_slices::slice_runtime::SliceRuntime;

/// Attached processes and pods' whole GPUs, for the classification of what the driver lists.
#[derive(Debug)]
pub(crate) struct GpuUsers {
    members: BTreeSet<HostPid>,
    whole: WholeGpus,
    cgroups: PodCgroups,
}

/// Classification of a process that the driver lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GpuUserKind {
    /// Attached to a slice.
    Member,
    /// Not attached, and of the pod that has this slice with all of the GPU.
    Unattached(SliceName),
    /// A process without a slice.
    Foreign,
}

impl GpuUsers {
    pub(crate) fn of<'a>(slices: impl Iterator<Item = (&'a Slice, &'a SliceRuntime)>) -> Self {
        let (mut members, mut whole) = (BTreeSet::new(), WholeGpus::default());
        for (slice, runtime) in slices {
            members.extend(runtime.occupants().members.into_values().map(|member| member.pid));
            whole.add(slice);
        }
        let cgroups = if whole.is_empty() { PodCgroups::default() } else { PodCgroups::of_this_process() };
        Self { members, whole, cgroups }
    }

    /// True for a slice with whole GPUs for a pod, whose programs have no shim.
    pub(crate) fn has_whole_gpus(&self, slice: &Slice) -> bool {
        let of = |gpu: &GpuUuid| self.whole.0.get(gpu).into_iter().flatten();
        slice.parts.iter().any(|part| of(&part.gpu).any(|its| its.whole && its.name == slice.name))
    }

    /// Classifies a process that the driver lists for a GPU. Reads a cgroup file where a pod has the whole GPU.
    pub(crate) fn classify(&self, gpu: GpuUuid, pid: HostPid) -> GpuUserKind {
        if self.members.contains(&pid) {
            return GpuUserKind::Member;
        }
        let pod = || self.cgroups.pod_of(pid);
        self.whole.slice_of(gpu, pod).cloned().map_or(GpuUserKind::Foreign, GpuUserKind::Unattached)
    }
}

/// Slices of pods on each GPU.
#[derive(Debug, Default)]
struct WholeGpus(BTreeMap<GpuUuid, Vec<PodSlice>>);

#[derive(Debug)]
struct PodSlice {
    pod: PodUid,
    name: SliceName,
    whole: bool,
}

impl WholeGpus {
    fn add(&mut self, slice: &Slice) {
        let Some(pod) = slice.pod.as_ref().and_then(|pod| pod.uid.as_ref()) else { return };
        let whole = matches!(slice.share, Share::Whole(_)) && !slice.ephemeral;
        for part in &slice.parts {
            let its = PodSlice { pod: pod.clone(), name: slice.name.clone(), whole };
            self.0.entry(part.gpu).or_default().push(its);
        }
    }

    /// True if no slice has a whole GPU for a pod.
    fn is_empty(&self) -> bool {
        !self.0.values().flatten().any(|slice| slice.whole)
    }

    /// The slice of a process's pod on a GPU, if it is the pod's only one there and has all of the GPU.
    fn slice_of(&self, gpu: GpuUuid, pod: impl FnOnce() -> Option<PodUid>) -> Option<&SliceName> {
        let there = self.0.get(&gpu)?;
        if !there.iter().any(|slice| slice.whole) {
            return None;
        }
        let pod = pod()?;
        let mut its = there.iter().filter(|slice| slice.pod == pod);
        let only = its.next().filter(|slice| slice.whole)?;
        its.next().is_none().then_some(&only.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GPU: &str = "GPU-00000000-0000-0000-0000-000000000001";
    const OTHER_GPU: &str = "GPU-00000000-0000-0000-0000-000000000002";

    fn gpus(slices: &[(&str, &str, &str, bool)]) -> WholeGpus {
        let mut gpus = WholeGpus::default();
        for (gpu, name, pod, whole) in slices {
            let slice = PodSlice { pod: pod.parse().unwrap(), name: name.parse().unwrap(), whole: *whole };
            gpus.0.entry(gpu.parse().unwrap()).or_default().push(slice);
        }
        gpus
    }

    fn owner(gpus: &WholeGpus, gpu: &str, pod: Option<&str>) -> Option<String> {
        let pod = pod.map(|pod| pod.parse().unwrap());
        gpus.slice_of(gpu.parse().unwrap(), || pod).map(ToString::to_string)
    }

    #[test]
    fn process_is_of_the_only_slice_of_its_own_pod() {
        let node = gpus(&[(GPU, "a", "pod-a", true), (OTHER_GPU, "b", "pod-b", true)]);
        assert_eq!(owner(&node, GPU, Some("pod-a")).as_deref(), Some("a"));
        for (gpu, pod) in
            [(GPU, Some("pod-b")), (OTHER_GPU, Some("pod-a")), (GPU, Some("pod-c")), (GPU, None)]
        {
            assert_eq!(owner(&node, gpu, pod), None, "{gpu} {pod:?}");
        }
    }

    #[test]
    fn ambiguous_or_partial_slices_own_no_process() {
        let two = gpus(&[(GPU, "a", "pod-a", true), (GPU, "b", "pod-a", true)]);
        assert_eq!(owner(&two, GPU, Some("pod-a")), None);
        let part = gpus(&[(GPU, "a", "pod-a", false)]);
        assert!(part.is_empty());
        assert_eq!(owner(&part, GPU, Some("pod-a")), None);
        let node = gpus(&[(GPU, "a", "pod-a", false)]);
        node.slice_of(GPU.parse().unwrap(), || panic!("a cgroup is read for parts of GPUs"));
    }

    proptest! {
        #[test]
        fn owner_has_the_pod_of_the_process(
            slices in prop::collection::vec((0..2usize, 0..4u8, any::<bool>()), 0..6),
            gpu in 0..2usize,
            pod in 0..4u8,
        ) {
            let mut node = WholeGpus::default();
            for (at, (gpu, pod, whole)) in slices.iter().enumerate() {
                let name = format!("s{at}").parse().unwrap();
                let its = PodSlice { pod: format!("pod-{pod}").parse().unwrap(), name, whole: *whole };
                node.0.entry([GPU, OTHER_GPU][*gpu].parse().unwrap()).or_default().push(its);
            }
            let found = owner(&node, [GPU, OTHER_GPU][gpu], Some(&format!("pod-{pod}")));
            let its: Vec<_> =
                slices.iter().enumerate().filter(|(_, (on, of, _))| (*on, *of) == (gpu, pod)).collect();
            let expected = match its.as_slice() {
                [(at, (_, _, true))] => Some(format!("s{at}")),
                _ => None,
            };
            prop_assert_eq!(found, expected);
        }
    }
}
