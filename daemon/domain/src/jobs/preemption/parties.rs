//! The job that room is made for, and the members that can be preempted for it.

use crate::jobs::amount::MilliGpus;
use crate::jobs::job::{Job, JobShape, MemberId};
use crate::jobs::name::ProjectName;
use crate::jobs::project::ProjectAccount;
use crate::jobs::scheduler::Binding;

/// The job that room is made for.
pub(crate) struct Preemptor<'a> {
    pub(crate) account: &'a ProjectAccount,
    pub(crate) shape: JobShape,
}

impl Preemptor<'_> {
    fn used_after(&self, own: MilliGpus) -> MilliGpus {
        self.account.used.plus(self.shape.size.total()).less(own)
    }

    pub(super) fn is_within_quota(&self, own: MilliGpus) -> bool {
        self.used_after(own) <= self.account.project.quota
    }

    /// Tests if the job displaces training of its own project.
    pub(crate) fn displaces_its_own(&self) -> bool {
        self.shape.non_preemptible
            && !self.is_within_quota(MilliGpus::ZERO)
            && self.account.fits_non_preemptible(self.shape.size.total())
    }

    pub(super) fn is(&self, project: &ProjectName) -> bool {
        self.account.project.name == *project
    }
}

/// A member that can be preempted.
#[derive(Clone, Copy)]
pub(super) struct Victim<'a> {
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

    pub(super) fn total(&self) -> MilliGpus {
        self.job.spec.size.total()
    }

    pub(super) fn of_each(&self) -> MilliGpus {
        self.job.spec.size.of_each()
    }
}
