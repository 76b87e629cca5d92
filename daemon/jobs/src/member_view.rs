//! Views of single members.

use std::collections::BTreeMap;

use tranche_domain::id::GpuUuid;
use tranche_domain::jobs::{JobState, MemberId, MemberView, Phase};

use crate::record::{JobRecord, StoredMember};
use crate::sight::Sight;
use crate::state::ControllerState;

/// The member without its reason.
pub(crate) fn member(
    state: &ControllerState,
    id: MemberId,
    entry: &JobRecord,
    known: &StoredMember,
    gpus: &BTreeMap<GpuUuid, u32>,
) -> MemberView {
    let seat = state.scheduler.binding(id);
    let is = member_state(state, id, known, seat.as_ref().map(|(phase, _)| *phase));
    let has = !matches!(is, JobState::Pending) && !is.is_final();
    let indices = seat.filter(|_| has).map(|(_, uuids)| uuids).unwrap_or_default();
    MemberView {
        index: id.index,
        state: is,
        reason: String::new(),
        gpus: indices.iter().filter_map(|uuid| gpus.get(uuid).copied()).collect(),
        slice: has.then(|| entry.slice(id)),
        pid: state
            .supervised
            .get(&id)
            .and_then(|supervised| supervised.shepherd.get())
            .map(|shepherd| shepherd.pid),
        starts: known.starts,
        started_unix_ms: (known.starts > 0).then_some(known.started_unix_ms),
        idle_ms: None,
    }
}

/// Reason for the member's state, within the requester's rights.
pub(crate) fn reason(state: &ControllerState, id: MemberId, known: &StoredMember, sight: Sight) -> String {
    let refused = || state.refused.get(&id).map(ToString::to_string);
    let unseen =
        || state.scheduler.has_missing_gpu(id).then(|| "the driver does not tell of its GPU now".into());
    match &known.end {
        Some(end) if sight >= Sight::Project => end.why.clone(),
        Some(end) => end.public().into(),
        None => {
            let farewell = known.farewell.as_ref().map(ToString::to_string);
            farewell.or_else(refused).or_else(unseen).unwrap_or_default()
        }
    }
}

fn member_state(
    state: &ControllerState,
    id: MemberId,
    known: &StoredMember,
    phase: Option<Phase>,
) -> JobState {
    match (&known.end, phase) {
        (Some(end), _) if end.success => JobState::Succeeded,
        (Some(_), _) => JobState::Failed,
        (None, None | Some(Phase::Claimed)) => JobState::Pending,
        (None, Some(Phase::Stopping)) => JobState::Stopping,
        (None, Some(Phase::Running)) if known.farewell.is_some() => JobState::Stopping,
        (None, Some(Phase::Running)) => {
            let runs =
                state.supervised.get(&id).is_some_and(|supervised| supervised.shepherd.get().is_some());
            if runs { JobState::Running } else { JobState::Creating }
        }
    }
}
