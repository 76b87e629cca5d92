//! Requests to park slices, and to bring them back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tranche_domain::id::SliceName;

use crate::access::Caller;
use crate::agent::Agent;
use crate::failure::{RequestFailure, Requested};
use crate::parking::ParkFailure;
use crate::queue::QueuedAct;

use super::waiting::InLine;

/// Pause before another try, where nothing notifies of a change.
const LOOK: Duration = Duration::from_millis(500);

/// Parks a slice, once no other request moves it. A client that disconnects does not interrupt it.
pub(super) async fn park(agent: &Arc<Agent>, name: &SliceName, caller: &Caller) -> Requested<()> {
    let (name, caller) = (name.clone(), caller.clone());
    agent.once_free(move |agent| agent.park(&name, &caller, None)).await
}

/// Brings a slice back, at once or when its GPUs take it and have room. A client that disconnects drops this future and its
/// entry in the queue.
pub(super) async fn unpark(
    agent: &Arc<Agent>,
    name: &SliceName,
    caller: &Caller,
    wait: Duration,
) -> Requested<()> {
    if wait.is_zero() {
        let (name, caller) = (name.clone(), caller.clone());
        return agent.once_free(move |agent| agent.unpark(&name, &caller)).await;
    }
    let mut last = match unpark_now(agent, name, caller).await {
        Err(failure) if may_pass(&failure) => failure,
        outcome => return outcome,
    };
    let begun = Instant::now();
    let mut room = agent.room.subscribe();
    let place = InLine::join(agent, QueuedAct::Return(name.clone()), caller)?;
    tracing::info!(slice = %name, refusal = %last, "waits for its return");
    loop {
        // Checked after subscribing, so room that appears in between is not missed.
        if place.is_first_to_fit() {
            match unpark_now(agent, name, caller).await {
                Err(failure) if may_pass(&failure) => last = failure,
                outcome => {
                    drop(place);
                    agent.notify_capacity(); // the next request may fit
                    return outcome;
                }
            }
        }
        let hindrance = (!matches!(last, RequestFailure::Refused(_))).then(|| last.to_string());
        if place.hinder(hindrance.clone()) {
            agent.notify_capacity(); // it delays no younger request any more
        }
        let until = begun + wait;
        // Nothing notifies of what others than slices release.
        let look = if hindrance.is_some() { until.min(Instant::now() + LOOK) } else { until };
        let changed = timeout_at(look, room.changed()).await;
        if Instant::now() >= until || matches!(changed, Ok(Err(_))) {
            return Err(timed_out(last, begun.elapsed()));
        }
    }
}

async fn unpark_now(agent: &Arc<Agent>, name: &SliceName, caller: &Caller) -> Requested<()> {
    let (agent, name, caller) = (Arc::clone(agent), name.clone(), caller.clone());
    tokio::task::spawn_blocking(move || agent.unpark(&name, &caller)).await?
}

/// Tests if the same request can succeed later.
///
/// Others have the room, a GPU is cordoned, or another request moves the slice.
const fn may_pass(failure: &RequestFailure) -> bool {
    match failure {
        RequestFailure::Refused(refusal) => refusal.may_pass(),
        RequestFailure::Park(failure) => {
            matches!(failure, ParkFailure::Occupied { .. } | ParkFailure::InProgress(_))
        }
        _ => false,
    }
}

fn timed_out(last: RequestFailure, waited: Duration) -> RequestFailure {
    let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    match last {
        RequestFailure::Refused(refusal) => RequestFailure::TimedOut { refusal, waited_ms },
        failure => failure,
    }
}
