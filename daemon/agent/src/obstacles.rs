//! Why a GPU takes no slices now: what is in the way of it, whoever put it there.

use tranche_inventory::GpuFacts;

use crate::agent::Agent;

/// Takes in a look at a GPU.
pub(crate) fn look(agent: &Agent, gpu: &GpuFacts) {
    let of_driver = gpu.not_sliceable.as_ref().map(ToString::to_string);
    let obstacle = of_driver.or_else(|| agent.truth.obstacle(gpu.uuid));
    if agent.core().node.set_obstacle(gpu.uuid, obstacle) {
        agent.faults.changed();
        agent.room_appeared();
    }
}
