//! Views of single members.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use tranche_domain::id::GpuUuid;
use tranche_domain::jobs::{HealthCheck, JobState, MemberId, MemberView, Phase};

use crate::record::{JobRecord, StopReason, StoredMember};
use crate::sight::Sight;
use crate::state::{ControllerState, Supervised};

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
        pid: running(state, id).and_then(|supervised| supervised.shepherd.get()).map(|shepherd| shepherd.pid),
        starts: known.starts,
        started_unix_ms: (known.starts > 0).then_some(known.started_unix_ms),
        idle_ms: None,
        last_end: None,
        overdue: known.end.as_ref().is_some_and(|end| end.overdue),
        healthy: (is == JobState::Running && health_check(state, id).is_some())
            .then(|| is_healthy(state, id)),
    }
}

/// Reason for the member's state, within the requester's rights.
pub(crate) fn reason(state: &ControllerState, id: MemberId, known: &StoredMember, sight: Sight) -> String {
    let paused = || state.paused.get(&id).map(|paused| paused.reason(sight >= Sight::Project));
    let unseen =
        || state.scheduler.has_missing_gpu(id).then(|| "the driver does not tell of its GPU now".into());
    let unhealthy = || {
        let target = health_check(state, id).filter(|_| !is_healthy(state, id))?;
        Some(match sight >= Sight::Project {
            true => format!("its check of health at port {target} has not passed yet"),
            false => "its check of health has not passed yet".into(),
        })
    };
    match &known.end {
        Some(end) if sight >= Sight::Project => end.why.clone(),
        Some(end) => end.public().into(),
        None => {
            let farewell = known.farewell.as_ref().filter(|farewell| !is_past(state, id, farewell));
            let farewell = farewell.map(ToString::to_string);
            farewell.or_else(paused).or_else(unseen).or_else(unhealthy).unwrap_or_default()
        }
    }
}

/// Tests if a member waits that was suspended, and its job is resumed.
fn is_past(state: &ControllerState, id: MemberId, farewell: &StopReason) -> bool {
    let is_resumed = state.scheduler.jobs().get(&id.job).is_some_and(|job| !job.suspended);
    let phase = state.scheduler.binding(id).map(|(phase, _)| phase);
    *farewell == StopReason::Suspended && is_resumed && matches!(phase, None | Some(Phase::Claimed))
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
        (None, None | Some(Phase::Claimed)) if state.scheduler.is_parked(id) => JobState::Parked,
        (None, None | Some(Phase::Claimed)) => JobState::Pending,
        (None, Some(Phase::Stopping)) => JobState::Stopping,
        (None, Some(Phase::Running)) if known.farewell.is_some() => JobState::Stopping,
        (None, Some(Phase::Running)) => {
            let runs = running(state, id).is_some_and(|supervised| supervised.shepherd.get().is_some());
            if runs { JobState::Running } else { JobState::Creating }
        }
    }
}

/// Supervision of a member that is not paused.
fn running(state: &ControllerState, id: MemberId) -> Option<&Supervised> {
    let supervised = state.supervised.get(&id).filter(|_| !state.paused.contains_key(&id));
    supervised.map(AsRef::as_ref)
}

/// Check of a running service's health.
fn health_check(state: &ControllerState, id: MemberId) -> Option<&HealthCheck> {
    running(state, id)?;
    state.entries.get(&id.job)?.spec.service.as_ref()?.health.as_ref()
}

fn is_healthy(state: &ControllerState, id: MemberId) -> bool {
    running(state, id).is_some_and(|supervised| supervised.healthy.load(Ordering::Relaxed))
}
