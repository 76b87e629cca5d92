//! The job that room is made for, and the members that can be preempted for it.

use crate::jobs::amount::MilliGpus;
use crate::jobs::job::{Job, JobShape, MemberId};
use crate::jobs::name::ProjectName;
use crate::jobs::pool::{GpuPool, PoolIndex};
use crate::jobs::project::ProjectAccount;
use crate::jobs::scheduler::{Binding, Phase, QuotaScheduler};

/// The job that room is made for.
pub(crate) struct Preemptor<'a> {
    pub(crate) account: &'a ProjectAccount,
    pub(crate) shape: JobShape,
}

impl Preemptor<'_> {
    fn used_after(&self, own: MilliGpus) -> MilliGpus {
        self.account.used.plus(self.shape.total()).less(own)
    }

    pub(super) fn is_within_quota(&self, own: MilliGpus) -> bool {
        self.used_after(own) <= self.account.project.quota
    }

    /// Tests if the job displaces training of its own project.
    pub(crate) fn displaces_its_own(&self) -> bool {
        self.shape.non_preemptible
            && !self.is_within_quota(MilliGpus::ZERO)
            && self.account.fits_non_preemptible(self.shape.total())
    }

    pub(super) fn is(&self, project: &ProjectName) -> bool {
        self.account.project.name == *project
    }
}

/// A member that can be preempted, or a gang, which is preempted as a whole.
#[derive(Clone, Copy)]
pub(crate) struct Victim<'a> {
    pub(super) scheduler: &'a QuotaScheduler,
    /// The member, or the first one of a gang.
    pub(super) id: MemberId,
    pub(super) binding: &'a Binding,
    pub(super) job: &'a Job,
    pub(super) account: &'a ProjectAccount,
    /// True if it is idle, and its project's policy is to preempt such members first.
    pub(super) is_idle: bool,
}

impl<'a> Victim<'a> {
    pub(super) fn project(&self) -> &'a ProjectName {
        &self.job.spec.project
    }

    /// Tests if it is a user's slice.
    pub(super) const fn is_slice(&self) -> bool {
        self.id.job.is_slice()
    }

    /// The members that leave with it, those that are leaving already not counted.
    pub(crate) fn members(&self) -> impl Iterator<Item = (MemberId, &'a Binding)> {
        let is_gang = self.job.spec.is_gang();
        let mates = is_gang.then(|| self.scheduler.staying_members(self.id.job)).into_iter().flatten();
        mates.chain((!is_gang).then_some((self.id, self.binding)))
    }

    pub(super) fn total(&self) -> MilliGpus {
        self.members().map(|_| self.job.spec.size.total()).sum()
    }

    pub(super) fn is_on(&self, index: PoolIndex) -> bool {
        let is_there = |binding: &Binding| binding.indices.contains(&index);
        // Searches test each member on each GPU.
        is_there(self.binding) || self.job.spec.is_gang() && self.members().any(|(_, mate)| is_there(mate))
    }

    /// Part of a GPU that it frees.
    pub(super) fn part_of(&self, index: PoolIndex) -> MilliGpus {
        let here = self.members().filter(|(_, binding)| binding.indices.contains(&index));
        here.map(|_| self.job.spec.size.of_each()).sum()
    }

    /// Enters in a pool that its members leave their GPUs.
    pub(crate) fn leave(&self, pool: &mut GpuPool) {
        let part = self.job.spec.size.of_each();
        for (_, binding) in self.members() {
            for index in &binding.indices {
                let entry = pool.entry_mut(*index);
                match binding.phase {
                    Phase::Claimed => entry.claimed = entry.claimed.less(part),
                    Phase::Running => {
                        entry.running = entry.running.less(part);
                        entry.stopping = entry.stopping.plus(part);
                    }
                    Phase::Stopping => {}
                }
            }
        }
    }
}
