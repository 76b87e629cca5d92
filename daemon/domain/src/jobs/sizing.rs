//! Size that counts for a member of a new job, and the GPUs that could hold it or its gang.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::job::JobSpec;
use super::pool::GpuConstraints;
use super::project::{Project, ProjectAccount, ProjectRefusal};
use super::refusal::JobRefusal;
use super::scheduler::QuotaScheduler;
use super::size::Size;

impl QuotaScheduler {
    /// Size that counts for each member of a job, on whichever GPU it runs.
    pub(super) fn size_of(&self, account: &ProjectAccount, spec: &JobSpec) -> Result<Size, JobRefusal> {
        let Some((part, memory)) = spec.part.and_then(|part| Some((part, part.memory()?))) else {
            return Ok(spec.size);
        };
        let affinity = account.project.affinity(spec.kind);
        let reach = GpuConstraints { affinity, reserved: &[], latency: None, memory: None, only: None };
        let capacities = || self.pool.reachable(&reach).map(|(_, entry)| entry.gpu.capacity);
        let largest =
            capacities().filter_map(|capacity| part.size_on(capacity)).max_by_key(|size| size.total());
        match (largest, capacities().max()) {
            (Some(size), _) => Ok(size),
            (None, Some(most)) => Err(JobRefusal::TooMuchMemory { memory, most }),
            (None, None) => Ok(spec.size),
        }
    }

    /// Number of GPUs on the largest island that the job's project may use.
    pub(super) fn most_gpus(&self, account: &ProjectAccount, spec: &JobSpec) -> u32 {
        let affinity = account.project.affinity(spec.kind);
        let memory = spec.shape().memory;
        let reach = GpuConstraints { affinity, reserved: &[], latency: None, memory, only: None };
        let most = self.pool.islands(&reach).values().map(Vec::len).max();
        most.and_then(|most| u32::try_from(most).ok()).unwrap_or(0)
    }

    /// Checks that the node has the GPUs of a project's jobs. Kinds whose GPUs are as before are not checked.
    ///
    /// # Errors
    /// If it lacks one.
    pub fn check_gpus(&self, project: &Project, before: Option<&Project>) -> Result<(), ProjectRefusal> {
        let known: BTreeSet<u32> = self.pool.gpus().map(|gpu| gpu.index).collect();
        for (kind, gpus) in &project.affinity {
            let is_as_before = before.is_some_and(|before| before.affinity(*kind) == Some(gpus));
            let unknown: Vec<u32> = gpus.difference(&known).copied().collect();
            if !is_as_before && !unknown.is_empty() {
                let (kind, known) = (*kind, known.into_iter().collect());
                return Err(ProjectRefusal::NoSuchGpus { kind, unknown, known });
            }
        }
        Ok(())
    }

    /// Number of a gang's members, at most all, that fit on the GPUs that its project may use.
    pub(super) fn most_mates(&self, account: &ProjectAccount, spec: &JobSpec) -> u32 {
        let affinity = account.project.affinity(spec.kind);
        let (memory, latency) = (spec.shape().memory, spec.latency);
        let reach = GpuConstraints { affinity, reserved: &[], latency, memory, only: None };
        self.pool.unused().room_for(spec.size, &reach, spec.completions.get())
    }
}
