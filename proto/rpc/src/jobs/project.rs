//! Projects and their changes: domain to wire and back.

use std::collections::BTreeSet;
use std::time::Duration;

use tranche_domain::jobs::{
    Affinity, BadTimeLimit, IdlePolicy, JobKind, MilliGpus, Project, ProjectChange, ProjectName, ProjectView,
    time_limit,
};

use crate::bad_message::BadMessage;
use crate::mirror::{Field, enumeration, field, mirror};
use crate::v1;

/// A project to create or to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectWish {
    /// Name of the project.
    pub name: ProjectName,
    /// Fields to set; absent ones keep their values, or get defaults in a new project.
    pub change: ProjectChange,
    /// Lets the sum of all quotas exceed the node's GPUs.
    pub beyond_capacity: bool,
}

impl ProjectWish {
    /// The project to create.
    ///
    /// # Errors
    /// If it has no quota.
    pub fn project(self) -> Result<Project, BadMessage> {
        let mut project = Project::new(self.name, self.change.quota.ok_or(BadMessage::NoQuota)?);
        self.change.apply(&mut project);
        Ok(project)
    }
}

impl Field<Option<v1::ProjectChange>> for ProjectChange {
    fn into_wire(self) -> Option<v1::ProjectChange> {
        Some(self.into())
    }

    fn from_wire(wire: Option<v1::ProjectChange>) -> Result<Self, BadMessage> {
        let change: Self = wire.unwrap_or_default().try_into()?;
        // Zero removes a limit.
        let check = |limit: Option<Duration>, bad: fn(BadTimeLimit) -> BadMessage| {
            limit.filter(|limit| !limit.is_zero()).map(time_limit).transpose().map_err(bad)
        };
        check(change.interactive_limit, BadMessage::InteractiveLimit)?;
        check(change.idle_limit, BadMessage::IdleLimit)?;
        Ok(change)
    }
}

fn changes_something(wish: &ProjectWish) -> Result<(), BadMessage> {
    if wish.change.is_nothing() { Err(BadMessage::NoProjectChange) } else { Ok(()) }
}

enumeration! { IdlePolicy = v1::IdlePolicy, IdlePolicy: Report, Alert, PreemptFirst, End }

field! {
    Duration = u64: |time| millis(time), Self::from_millis(time);
    BTreeSet<u32> = Vec<u32>: |numbers| numbers.into_iter().collect(), numbers.into_iter().collect();
    Affinity = v1::GpuIndices: |gpus| v1::GpuIndices { indices: gpus.into_wire() }, Self::from_wire(gpus.indices)?;
}

mirror! {
    ProjectWish = v1::CreateProjectRequest { name, change, beyond_capacity }

    ProjectWish = v1::UpdateProjectRequest { name, change, beyond_capacity => if changes_something }

    ProjectChange = v1::ProjectChange {
        training_gpus, interactive_gpus, idle_policy;
        quota: quota_milligpus, weight: weight_milligpus, interactive_limit: interactive_limit_ms, idle_limit: idle_limit_ms,
        add: add_member_uids, remove: remove_member_uids
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl From<ProjectView> for v1::ProjectView {
    fn from(view: ProjectView) -> Self {
        let ProjectView { project, implicit, allocated, idle, running, queued } = view;
        let gpus = |kind| project.affinity(kind).into_iter().flatten().copied().collect();
        Self {
            training_gpus: gpus(JobKind::Training),
            interactive_gpus: gpus(JobKind::Interactive),
            quota_milligpus: project.quota.get(),
            weight_milligpus: project.weight.map(MilliGpus::get),
            interactive_limit_ms: project.interactive_limit.map(millis),
            idle_limit_ms: project.idle_limit.map(millis),
            idle_policy: project.idle_policy.into_wire(),
            member_uids: project.members.into_iter().collect(),
            name: project.name.into(),
            allocated_milligpus: allocated.get(),
            idle_milligpus: idle.get(),
            running_jobs: running,
            queued_jobs: queued,
            implicit,
        }
    }
}

impl TryFrom<v1::ProjectView> for ProjectView {
    type Error = BadMessage;

    fn try_from(wire: v1::ProjectView) -> Result<Self, BadMessage> {
        let mut project = Project::new(wire.name.parse()?, MilliGpus::new(wire.quota_milligpus));
        project.weight = wire.weight_milligpus.map(MilliGpus::new);
        let gpus = [(JobKind::Training, wire.training_gpus), (JobKind::Interactive, wire.interactive_gpus)];
        let gpus = gpus.into_iter().filter(|(_, gpus)| !gpus.is_empty());
        project.affinity = gpus.map(|(kind, gpus)| (kind, BTreeSet::from_iter(gpus))).collect();
        project.interactive_limit = wire.interactive_limit_ms.map(Duration::from_millis);
        project.idle_limit = wire.idle_limit_ms.map(Duration::from_millis);
        project.idle_policy = Field::from_wire(wire.idle_policy)?;
        project.members = wire.member_uids.into_iter().collect();
        Ok(Self {
            project,
            implicit: wire.implicit,
            allocated: MilliGpus::new(wire.allocated_milligpus),
            idle: MilliGpus::new(wire.idle_milligpus),
            running: wire.running_jobs,
            queued: wire.queued_jobs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change() -> ProjectChange {
        ProjectChange {
            quota: Some(MilliGpus::whole(4)),
            weight: Some(MilliGpus::ONE),
            training_gpus: Some([0, 3].into()),
            interactive_gpus: Some(Affinity::new()),
            interactive_limit: Some(Duration::from_secs(60)),
            idle_limit: Some(Duration::ZERO),
            idle_policy: Some(IdlePolicy::PreemptFirst),
            add: [7].into(),
            remove: [8].into(),
        }
    }

    #[test]
    fn a_wish_and_a_view_survive_the_wire() {
        let wish = ProjectWish { name: "a".parse().unwrap(), change: change(), beyond_capacity: true };
        assert_eq!(ProjectWish::try_from(v1::CreateProjectRequest::from(wish.clone())), Ok(wish.clone()));
        assert_eq!(ProjectWish::try_from(v1::UpdateProjectRequest::from(wish.clone())), Ok(wish.clone()));
        let project = wish.project().unwrap();
        let (allocated, idle) = (MilliGpus::ONE, MilliGpus::new(500));
        let view = ProjectView { project, implicit: true, allocated, idle, running: 2, queued: 3 };
        assert_eq!(ProjectView::try_from(v1::ProjectView::from(view.clone())), Ok(view));
    }

    #[test]
    fn limits_of_a_project_have_bounds_beside_zero() {
        let with = |change| v1::UpdateProjectRequest {
            name: "a".into(),
            change: Some(change),
            ..Default::default()
        };
        for millis in [1, 999, u64::MAX] {
            let runtime = v1::ProjectChange { interactive_limit_ms: Some(millis), ..Default::default() };
            let idle = v1::ProjectChange { idle_limit_ms: Some(millis), ..Default::default() };
            assert!(matches!(ProjectWish::try_from(with(runtime)), Err(BadMessage::InteractiveLimit(_))));
            assert!(matches!(ProjectWish::try_from(with(idle)), Err(BadMessage::IdleLimit(_))));
        }
        let none = v1::ProjectChange { idle_limit_ms: Some(0), ..Default::default() };
        assert!(ProjectWish::try_from(with(none)).is_ok());
    }

    #[test]
    fn project_needs_quota_and_change_needs_a_field() {
        let bare = |name: &str| v1::CreateProjectRequest { name: name.into(), ..Default::default() };
        let wish = ProjectWish::try_from(bare("a")).unwrap();
        assert_eq!(wish.project(), Err(BadMessage::NoQuota));
        assert!(matches!(ProjectWish::try_from(bare("A B")), Err(BadMessage::Word(_))));
        let nothing = v1::UpdateProjectRequest { name: "a".into(), ..Default::default() };
        assert_eq!(ProjectWish::try_from(nothing), Err(BadMessage::NoProjectChange));
    }
}
