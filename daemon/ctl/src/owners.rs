//! Users and jobs of slices.

use std::collections::BTreeMap;

use tranche_domain::id::SliceName;
use tranche_domain::jobs::JobView;
use tranche_domain::view::SliceView;

use crate::client::Daemon;
use crate::users::Names;

/// Names of users, and the jobs of slices.
#[derive(Debug, Default)]
pub struct Owners {
    names: Names,
    jobs: BTreeMap<SliceName, String>,
}

impl Owners {
    /// The owners of these slices. A daemon that lists no jobs has none.
    pub fn of(daemon: &mut Daemon, slices: &[SliceView]) -> Self {
        let jobs = if slices.is_empty() { Vec::new() } else { daemon.jobs(None, None).unwrap_or_default() };
        Self::new(Names::default(), &jobs)
    }

    /// The owners by these names of users and these jobs.
    pub fn new(names: Names, jobs: &[JobView]) -> Self {
        let slices = jobs.iter().flat_map(|job| {
            let slices = job.members.iter().filter_map(|member| member.slice.clone());
            slices.map(move |slice| (slice, format!("{}/{}", job.project, job.name)))
        });
        Self { names, jobs: slices.collect() }
    }

    /// Name of a slice's user.
    pub fn user(&self, slice: &SliceView) -> String {
        self.names.of(slice.owner_uid)
    }

    /// Name of a user.
    pub fn name(&self, uid: u32) -> String {
        self.names.of(uid)
    }

    /// Project and job of a slice, or the project alone.
    pub fn purpose(&self, slice: &SliceView) -> Option<String> {
        let project = || slice.project.as_ref().map(ToString::to_string);
        self.jobs.get(&slice.name).cloned().or_else(project)
    }
}

#[cfg(test)]
mod tests {
    use crate::sample;

    #[test]
    fn slice_of_a_job_has_its_name_and_others_their_project() {
        let (owners, node) = (sample::owners(), sample::node());
        let purposes: Vec<_> = node.slices.iter().map(|slice| owners.purpose(slice)).collect();
        assert_eq!(purposes, [None, Some("vision/train".into()), Some("speech".into())]);
        assert_eq!(owners.user(&node.slices[0]), "ann");
    }
}
