//! Reasons why a GPU takes no slices, from the driver and from the audit.

use tranche_inventory::GpuFacts;

use crate::agent::Agent;

/// Updates the obstacle of a GPU from a sample of it.
pub(crate) fn update(agent: &Agent, gpu: &GpuFacts) {
    let of_driver = gpu.not_sliceable.as_ref().map(ToString::to_string);
    let obstacle = of_driver.or_else(|| agent.audit.obstacle(gpu.uuid));
    if agent.core().node.set_obstacle(gpu.uuid, obstacle) {
        agent.faults.changed();
        agent.notify_capacity();
    }
}
