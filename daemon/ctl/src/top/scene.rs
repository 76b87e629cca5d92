//! The node at one instant, with users and jobs resolved.

use std::collections::BTreeMap;

use tranche_domain::id::{HostPid, SliceName};
use tranche_domain::jobs::{JobName, JobState, JobView, ProjectName};
use tranche_domain::view::{NodeView, SliceView};

/// The node with its jobs, and what the views name by number only.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) node: NodeView,
    pub(super) jobs: Vec<JobView>,
    /// User names by uid, or the uid of a user without one.
    users: BTreeMap<u32, String>,
    /// Uids of the processes that wait for slices.
    requesters: BTreeMap<HostPid, u32>,
    /// Jobs by the slices of their members.
    owners: BTreeMap<SliceName, (ProjectName, JobName)>,
}

impl Scene {
    /// A scene from views of the daemon, with the users of `names`.
    pub(super) fn new(
        node: NodeView,
        jobs: Vec<JobView>,
        requesters: BTreeMap<HostPid, u32>,
        mut name: impl FnMut(u32) -> String,
    ) -> Self {
        let slices = node.slices.iter().map(|slice| slice.owner_uid);
        let uids = slices.chain(jobs.iter().map(|job| job.uid)).chain(requesters.values().copied());
        let uids: std::collections::BTreeSet<u32> = uids.collect();
        let users = uids.into_iter().map(|uid| (uid, name(uid))).collect();
        let owners = jobs
            .iter()
            .flat_map(|job| {
                let slices = job.members.iter().filter_map(|member| member.slice.clone());
                slices.map(|slice| (slice, (job.project.clone(), job.name.clone())))
            })
            .collect();
        Self { node, jobs, users, requesters, owners }
    }

    /// Name of a user, or the uid.
    pub(super) fn user(&self, uid: u32) -> String {
        self.users.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }

    /// Uid of the process behind a request.
    pub(super) fn requester(&self, pid: HostPid) -> Option<u32> {
        self.requesters.get(&pid).copied()
    }

    /// Project and job that a slice belongs to, if it is a job's.
    pub(super) fn job_of(&self, slice: &SliceName) -> Option<&(ProjectName, JobName)> {
        self.owners.get(slice)
    }

    /// Project and job, pod or project that a slice is for.
    pub(super) fn purpose(&self, slice: &SliceView) -> String {
        match (self.job_of(&slice.name), &slice.pod, &slice.project) {
            (Some((project, job)), ..) => format!("{project}/{job}"),
            (None, Some(pod), _) => format!("{}/{}", pod.namespace, pod.name),
            (None, None, Some(project)) => project.to_string(),
            (None, None, None) => String::new(),
        }
    }

    /// Number of running jobs, and of jobs and requests that wait.
    pub(super) fn running_and_pending(&self) -> (usize, usize) {
        let count = |state| self.jobs.iter().filter(|job| job.state == state).count();
        (count(JobState::Running), count(JobState::Pending) + self.node.waiting.len())
    }
}
