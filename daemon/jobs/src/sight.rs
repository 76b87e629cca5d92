//! Parts of a job that its owner, members of its project and other users see.

use tranche_domain::jobs::JobId;

use crate::controller::permit;
use crate::requester::Requester;
use crate::state::ControllerState;

/// Visibility of a job for a requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sight {
    /// Existence and progress, for every user.
    Public,
    /// Command and output also, for members of the project.
    Project,
    /// Everything, for the owner and administrators.
    Own,
}

/// The parts of a job that this requester sees.
pub(crate) fn sight(state: &ControllerState, id: JobId, requester: Requester) -> Sight {
    let Some(entry) = state.entries.get(&id) else { return Sight::Public };
    let project = state.scheduler.project(&entry.spec.project);
    match project {
        _ if requester.admin || requester.uid == entry.owner.uid => Sight::Own,
        Ok(project) if permit(requester, project, None).is_ok() => Sight::Project,
        _ => Sight::Public,
    }
}
