//! Slices that are parked for their idleness, and return at the next call of their programs.
//!
//! Law: a slice that has returned stays on its GPUs for its idle time at least, so that none is parked twice within it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tranche_domain::id::SliceName;
use tranche_domain::park::{IdleTime, Park, ParkStage};

use crate::agent::Agent;

/// Interval of looking, where a slice may be parked or woken.
const LOOK: Duration = Duration::from_millis(20);
/// The same where no slice has an idle time.
const REST: Duration = Duration::from_secs(1);
/// Pause after a return without room.
const PAUSE: Duration = Duration::from_millis(500);

/// A slice with an idle time.
struct Sleeper {
    name: SliceName,
    after: IdleTime,
    park: Option<Park>,
}

/// Parks and wakes slices. Never returns.
pub(crate) async fn run(agent: Arc<Agent>) {
    let mut not_before: BTreeMap<SliceName, Instant> = BTreeMap::new();
    loop {
        let sleepers = sleepers(&agent);
        not_before.retain(|name, _| sleepers.iter().any(|sleeper| sleeper.name == *name));
        let pause = if sleepers.is_empty() { REST } else { LOOK };
        for sleeper in sleepers {
            if not_before.get(&sleeper.name).is_some_and(|time| Instant::now() < *time) {
                continue;
            }
            if let Some(pause) = look(&agent, &sleeper).await {
                not_before.insert(sleeper.name, Instant::now() + pause);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// Slices with an idle time that are on their GPUs, or return by themselves.
fn sleepers(agent: &Agent) -> Vec<Sleeper> {
    let core = agent.core();
    let slices = core.node.slices().values();
    let sleepers = slices.filter_map(|slice| {
        let sleeper = Sleeper { name: slice.name.clone(), after: slice.park_idle?, park: slice.parked };
        // A rotating one returns for its stay.
        let may_move = |park: Park| park.wakes && park.stage == ParkStage::Parked && !slice.rotates;
        sleeper.park.is_none_or(may_move).then_some(sleeper)
    });
    sleepers.collect()
}

/// Parks a slice that is idle, or wakes one that is wanted. Returns the time for which another attempt is useless.
async fn look(agent: &Arc<Agent>, sleeper: &Sleeper) -> Option<Duration> {
    let Sleeper { name, after, park } = sleeper;
    let is_wanted = || {
        let runtime = agent.core().live.get(name).cloned();
        runtime.is_some_and(|runtime| runtime.is_wanted())
    };
    let is_due = match park {
        Some(_) => is_wanted(),
        None => agent.idleness.unused(name) >= after.duration() && !is_wanted(),
    };
    if !is_due {
        return None;
    }
    let (moving, of, parks) = (Arc::clone(agent), name.clone(), park.is_none());
    let moved =
        tokio::task::spawn_blocking(move || if parks { moving.park_idle(&of) } else { moving.wake(&of) });
    match moved.await {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => {
            tracing::debug!(slice = %name, %failure, "cannot be {}", if parks { "parked" } else { "woken" });
            // What cannot be parked now hardly can be sooner than it would be idle again.
            Some(if parks { after.duration() } else { PAUSE })
        }
        Err(_) => Some(PAUSE),
    }
}
