//! Requests to create slices, at once or when there is room.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tranche_domain::node::Refusal;
use tranche_domain::request::SliceRequest;
use tranche_domain::slice::Slice;

use crate::access::Caller;
use crate::agent::Agent;
use crate::failure::{RequestFailure, Requested};
use crate::queue::QueuedAct;

use super::waiting::InLine;

/// Creates a slice at once, or waits for capacity. A client that disconnects drops this future and its entry in the
/// queue.
pub(super) async fn create(
    agent: &Arc<Agent>,
    wanted: &SliceRequest,
    caller: &Caller,
    wait: Duration,
) -> Requested<Slice> {
    let wanted = &with_project(agent, wanted, caller)?;
    let (creating, of, by) = (Arc::clone(agent), wanted.clone(), caller.clone());
    let refusal = match tokio::task::spawn_blocking(move || creating.create(&of, &by)).await? {
        Err(RequestFailure::Refused(refusal)) if refusal.may_pass() && !wait.is_zero() => refusal,
        answer => return answer,
    };
    let begun = Instant::now();
    let mut room = agent.room.subscribe();
    let place = InLine::join(agent, QueuedAct::Creation(wanted.clone().into()), caller)?;
    let pid = caller.process()?.pid;
    tracing::info!(share = %wanted.share, %pid, %refusal, "waits for room");
    let mut last = refusal;
    loop {
        // Checked after subscribing, so capacity that appears in between is not missed.
        let is_granted = place.is_granted();
        if is_granted || place.is_first_to_fit() {
            let (creating, of, by, ticket) =
                (Arc::clone(agent), wanted.clone(), caller.clone(), place.ticket);
            let created = tokio::task::spawn_blocking(move || creating.create_waiting(&of, &by, ticket));
            match created.await? {
                Err(RequestFailure::Refused(refusal)) if refusal.may_pass() => last = refusal,
                // The GPUs that were granted take no slices any more, but others may.
                Err(RequestFailure::Refused(refusal @ Refusal::Unplaceable(_))) if is_granted => {
                    last = refusal;
                }
                answer => {
                    drop(place);
                    agent.notify_capacity(); // the next request may fit
                    return answer;
                }
            }
        }
        if !matches!(timeout_at(begun + wait, room.changed()).await, Ok(Ok(()))) {
            let waited_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            return Err(RequestFailure::TimedOut { refusal: last, waited_ms });
        }
    }
}

/// The request with the project that it counts for, also when that changes while it waits.
fn with_project(agent: &Agent, wanted: &SliceRequest, caller: &Caller) -> Requested<SliceRequest> {
    let project = agent.core().claims.project_for(caller.requester(), wanted.project.as_ref())?;
    Ok(SliceRequest { project, ..wanted.clone() })
}
