//! Parts of GPUs that jobs and slices have at one instant.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::jobs::{MemberId, MilliGpus, Phase};

use crate::account::{GpuHolder, HeldPart, MeterId};
use crate::history::slice_entry;
use crate::site::SliceUse;
use crate::state::ControllerState;

impl ControllerState {
    /// Parts of all jobs and slices. Jobs have theirs from the scheduler, as in the history.
    pub(crate) fn parts(&self) -> Vec<HeldPart> {
        let uses: BTreeMap<&SliceName, &SliceUse> =
            self.node_use.slices.iter().map(|slice| (&slice.name, slice)).collect();
        let mut parts = self.parts_of_jobs(&uses);
        if !self.knows_users {
            parts.extend(self.account.parts_of_slices());
            return parts;
        }
        let has_projects = self.scheduler.projects().next().is_some();
        let mut counted = BTreeSet::new();
        for (project, slice) in self.scheduler.user_slices().filter(|_| has_projects) {
            counted.insert(&slice.name);
            let known = uses.get(&slice.name).filter(|known| known.created_unix_ms == slice.created_unix_ms);
            for (gpu, gpus) in split(slice.size.total(), &slice.gpus) {
                let (project, name) = (Some(project.clone()), slice_entry(&slice.name));
                parts.push(part(
                    GpuHolder { project, uid: slice.owner_uid, name, gpu },
                    gpus,
                    known.copied(),
                ));
            }
        }
        for slice in
            self.node_use.slices.iter().filter(|slice| !slice.is_jobs && !counted.contains(&slice.name))
        {
            for (gpu, gpus) in &slice.gpus {
                let pod = slice.pod.as_ref().map(|pod| format!("pod:{pod}"));
                let name = pod.unwrap_or_else(|| slice_entry(&slice.name));
                parts.push(part(
                    GpuHolder { project: None, uid: slice.owner_uid, name, gpu: *gpu },
                    *gpus,
                    Some(slice),
                ));
            }
        }
        parts
    }

    /// GPU time of all slices at the last round.
    pub(crate) fn meters(&self) -> BTreeMap<MeterId, Duration> {
        let slices = self.node_use.slices.iter();
        let meters =
            slices.flat_map(|slice| slice.used.iter().map(|(gpu, used)| (meter_of(slice, *gpu), *used)));
        meters.collect()
    }

    fn parts_of_jobs(&self, uses: &BTreeMap<&SliceName, &SliceUse>) -> Vec<HeldPart> {
        let mut parts = Vec::new();
        for bound in self.places.values().filter(|bound| bound.phase == Phase::Running) {
            let Some(entry) = self.entries.get(&bound.member.job) else { continue };
            let slice = uses.get(&entry.slice(bound.member)).filter(|slice| slice.is_jobs);
            for (gpu, gpus) in split(entry.spec.size.total(), &bound.gpus) {
                parts.push(part(entry.holder(gpu), gpus, slice.copied()));
            }
        }
        parts
    }

    /// Holder that is preempted with a member, on the first of its GPUs.
    pub(crate) fn preempted_holder(&self, member: MemberId) -> Option<GpuHolder> {
        if let Some(slice) = self.scheduler.user_slice(member) {
            let project = self.scheduler.jobs().get(&member.job).map(|job| job.spec.project.clone());
            let name = slice_entry(&slice.name);
            return Some(GpuHolder { project, uid: slice.owner_uid, name, gpu: *slice.gpus.first()? });
        }
        let gpu = *self.places.get(&member)?.gpus.first()?;
        Some(self.entries.get(&member.job)?.holder(gpu))
    }
}

fn part(holder: GpuHolder, gpus: MilliGpus, slice: Option<&SliceUse>) -> HeldPart {
    let meter = |slice: &SliceUse| {
        let used: Duration = *slice.used.get(&holder.gpu)?;
        Some((meter_of(slice, holder.gpu), used))
    };
    let (idle, meter) = (slice.is_some_and(|slice| slice.idle), slice.and_then(meter));
    HeldPart { holder, gpus, idle, meter }
}

fn meter_of(slice: &SliceUse, gpu: GpuUuid) -> MeterId {
    MeterId { slice: slice.name.clone(), created_unix_ms: slice.created_unix_ms, gpu }
}

/// An amount in equal parts; the first GPU has the rest.
fn split(total: MilliGpus, gpus: &[GpuUuid]) -> impl Iterator<Item = (GpuUuid, MilliGpus)> {
    let count = u32::try_from(gpus.len()).unwrap_or(u32::MAX).max(1);
    let (each, rest) = (total.get() / count, total.get() % count);
    let amount = move |at: usize| MilliGpus::new(if at == 0 { each + rest } else { each });
    gpus.iter().enumerate().map(move |(at, gpu)| (*gpu, amount(at)))
}
