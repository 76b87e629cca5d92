//! Requests to park slices, and to bring them back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tranche_domain::id::SliceName;

use crate::access::Caller;
use crate::agent::Agent;
use crate::failure::RequestFailure;

/// Parks a slice. A client that disconnects does not interrupt it.
pub(super) async fn park(
    agent: &Arc<Agent>,
    name: &SliceName,
    caller: &Caller,
) -> Result<(), RequestFailure> {
    let (agent, name, caller) = (Arc::clone(agent), name.clone(), caller.clone());
    tokio::task::spawn_blocking(move || agent.park(&name, &caller)).await?
}

/// Brings a slice back, at once or when its GPUs have room.
pub(super) async fn unpark(
    agent: &Arc<Agent>,
    name: &SliceName,
    caller: &Caller,
    wait: Duration,
) -> Result<(), RequestFailure> {
    let begun = Instant::now();
    let mut room = agent.room.subscribe();
    loop {
        let (trying, of, by) = (Arc::clone(agent), name.clone(), caller.clone());
        let refusal = match tokio::task::spawn_blocking(move || trying.unpark(&of, &by)).await? {
            Err(RequestFailure::Refused(refusal)) if refusal.may_pass() && !wait.is_zero() => refusal,
            outcome => return outcome,
        };
        if !matches!(timeout_at(begun + wait, room.changed()).await, Ok(Ok(()))) {
            let waited_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            return Err(RequestFailure::TimedOut { refusal, waited_ms });
        }
    }
}
