//! Rotation: parks and wakes slices that have their stays on a GPU one after the other.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tranche_domain::id::SliceName;
use tranche_domain::park::ParkStage;
use tranche_domain::rotation::{Presence, RotatingSlice, Rotation, Switch};
use tranche_domain::slice::Slice;
use tranche_slices::slice_runtime::SliceRuntime;

use crate::agent::Agent;
use crate::failure::RequestFailure;
use crate::parking::{ParkFailure, locked};

/// Interval of looking, where a slice rotates.
const LOOK: Duration = Duration::from_millis(20);
/// The same where none does.
const REST: Duration = Duration::from_secs(1);
/// Pause after a slice could not be parked.
const STAYS: Duration = Duration::from_secs(30);
/// Pause after a slice could not return, or was about to be parked by another request.
const WAITS: Duration = Duration::from_millis(500);

/// Stays, and the slices that are on their way at present.
struct Rotator {
    agent: Arc<Agent>,
    begun: Instant,
    rotation: Mutex<Rotation>,
    moving: Mutex<BTreeSet<SliceName>>,
}

/// Rotates slices. Never returns.
pub(crate) async fn run(agent: Arc<Agent>) {
    let (rotation, moving) = (Mutex::default(), Mutex::default());
    let rotator = Arc::new(Rotator { agent, begun: Instant::now(), rotation, moving });
    loop {
        let slices = rotator.observe();
        let pause = if slices.is_empty() { REST } else { LOOK };
        for switch in rotator.due(&slices) {
            let rotator = Arc::clone(&rotator);
            locked(&rotator.moving).extend(switch.leave.iter().chain([&switch.comes]).cloned());
            tokio::task::spawn_blocking(move || rotator.carry_out(&switch));
        }
        tokio::time::sleep(pause).await;
    }
}

impl Rotator {
    fn observe(&self) -> Vec<RotatingSlice> {
        let core = self.agent.core();
        let moving = locked(&self.moving);
        let rotating = core.node.slices().values().filter(|slice| slice.rotates);
        let observed = rotating.filter_map(|slice| {
            let runtime = core.live.get(&slice.name)?;
            let presence =
                if moving.contains(&slice.name) { Presence::Moving } else { presence(slice, runtime) };
            Some(RotatingSlice {
                name: slice.name.clone(),
                gpus: slice.parts.iter().map(|part| part.gpu).collect(),
                presence,
                // What is granted and not used stays behind.
                held: runtime.held().into_values().flatten().sum(),
            })
        });
        observed.collect()
    }

    fn due(&self, slices: &[RotatingSlice]) -> Vec<Switch> {
        let now = self.begun.elapsed();
        let core = self.agent.core();
        let mut rotation = locked(&self.rotation);
        let due = rotation.due(&core.node, now, slices);
        self.agent.parking.set_returns(rotation.returns(now, slices));
        due
    }

    fn carry_out(&self, switch: &Switch) {
        // One that stays has its pause, and the others of the switch are not wanted away.
        if switch.leave.iter().all(|name| self.leaves(name)) {
            self.comes(&switch.comes);
        }
        let mut moving = locked(&self.moving);
        moving.retain(|name| *name != switch.comes && !switch.leave.contains(name));
    }

    fn leaves(&self, name: &SliceName) -> bool {
        let begun = Instant::now();
        match self.agent.park_for_another(name) {
            Ok(bytes) => locked(&self.rotation).left(bytes, begun.elapsed()),
            Err(failure) => {
                tracing::debug!(slice = %name, %failure, "it stays on its GPUs though its stay is over");
                let is_busy = matches!(failure, RequestFailure::Park(ParkFailure::InProgress(_)));
                let pause = if is_busy { WAITS } else { STAYS };
                locked(&self.rotation).leave_alone(name, self.begun.elapsed() + pause);
                return false;
            }
        }
        true
    }

    fn comes(&self, name: &SliceName) {
        let begun = Instant::now();
        let back = self.agent.unpark_for_stay(name);
        let (now, mut rotation) = (self.begun.elapsed(), locked(&self.rotation));
        match back {
            Ok(()) => {
                rotation.came(name, now, begun.elapsed());
                self.agent.telemetry.counters.stay_began(name);
            }
            Err(failure) => {
                tracing::debug!(slice = %name, %failure, "cannot come");
                rotation.leave_alone(name, now + WAITS);
            }
        }
    }
}

fn presence(slice: &Slice, runtime: &SliceRuntime) -> Presence {
    match slice.parked {
        None => Presence::Here,
        Some(park) if park.stage != ParkStage::Parked => Presence::Moving,
        Some(park) if !park.wakes => Presence::Kept,
        Some(_) if runtime.is_wanted() => Presence::Wanted,
        Some(_) => Presence::Away,
    }
}
