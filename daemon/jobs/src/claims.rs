//! Claims of jobs on users' slices. GPUs that are kept for jobs, and the project of each slice.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use tranche_domain::jobs::{MilliGpus, ProjectName, ProjectRefusal, QuotaScheduler};
use tranche_domain::node::KeptGpus;

use crate::error::JobsError;
use crate::requester::Requester;

/// Claims of jobs, and the projects that slices can count for, at the last decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobClaims {
    /// GPUs that are kept for jobs.
    pub kept: KeptGpus,
    projects: Vec<ProjectRoom>,
}

/// Members of a project, and what is left of its quota.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ProjectRoom {
    name: ProjectName,
    members: BTreeSet<u32>,
    left: MilliGpus,
}

impl JobClaims {
    pub(crate) fn of(scheduler: &QuotaScheduler) -> Self {
        let room = |project: &tranche_domain::jobs::Project| ProjectRoom {
            name: project.name.clone(),
            members: project.members.clone(),
            left: project.quota.less(scheduler.used(&project.name)),
        };
        Self { kept: scheduler.kept(), projects: scheduler.projects().map(room).collect() }
    }

    /// Project that a slice of this user counts for. The requested one, or else the one of the user's that has most of
    /// its quota left, or else the default project. `None` on a node without projects.
    ///
    /// # Errors
    /// If the requested project does not exist, or the user is neither a member nor an administrator.
    pub fn project_for(
        &self,
        requester: Requester,
        requested: Option<&ProjectName>,
    ) -> Result<Option<ProjectName>, JobsError> {
        let Requester { uid, admin } = requester;
        let default = ProjectName::default_project();
        match requested {
            None if self.projects.is_empty() => Ok(None),
            None => {
                let own = self.projects.iter().filter(|project| project.members.contains(&uid));
                let roomiest = own.max_by_key(|project| (project.left, Reverse(&project.name)));
                Ok(Some(roomiest.map_or(default, |project| project.name.clone())))
            }
            Some(name) if *name == default => Ok(Some(default)),
            Some(name) => {
                let project = self.projects.iter().find(|project| project.name == *name);
                let project = project.ok_or_else(|| ProjectRefusal::Unknown(name.clone()))?;
                match admin || project.members.contains(&uid) {
                    true => Ok(Some(name.clone())),
                    false => Err(JobsError::NotAMember { uid, project: name.clone() }),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(name: &str, members: &[u32], left: &str) -> ProjectRoom {
        let (name, left) = (name.parse().unwrap(), left.parse().unwrap());
        ProjectRoom { name, members: members.iter().copied().collect(), left }
    }

    #[test]
    fn slice_counts_for_the_roomiest_of_its_owner_s_projects() {
        let projects = vec![room("a", &[1, 2], "1"), room("b", &[1], "2"), room("c", &[1], "2")];
        let claims = JobClaims { projects, ..JobClaims::default() };
        let of = |uid, admin, wish: Option<&str>| {
            let wish = wish.map(|wish| wish.parse().unwrap());
            claims.project_for(Requester { uid, admin }, wish.as_ref()).map(|name| name.unwrap().to_string())
        };
        assert_eq!(of(1, false, None).unwrap(), "b");
        assert_eq!(of(2, false, None).unwrap(), "a");
        assert_eq!(of(9, false, None).unwrap(), "default");
        assert_eq!(of(9, true, Some("a")).unwrap(), "a");
        assert!(matches!(of(2, false, Some("b")), Err(JobsError::NotAMember { uid: 2, .. })));
        assert!(matches!(of(2, false, Some("d")), Err(JobsError::Project(_))));
        let none = JobClaims::default().project_for(Requester { uid: 1, admin: false }, None);
        assert_eq!(none.unwrap(), None);
    }
}
