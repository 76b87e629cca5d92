//! Driver overhead reconciliation. Charges slices for what the driver takes beyond the charge, as NVML shows it.
//!
//! A context is charged before it is created, by calibration. The driver may take more: for another kind of context,
//! for the code of modules, for local memory. A sample of a process counts only if its charges did not change while
//! the sample was taken nor since the previous one, so no call that charges afterwards was in progress. The
//! difference then is the driver's own and is charged to the slice.

use std::collections::BTreeMap;
use std::sync::Arc;

use tranche_domain::id::{GpuUuid, HostPid};
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;

use crate::agent::Agent;
use tranche_slices::slice_runtime::{ChargeSample, SliceRuntime};

/// A process of a slice on one GPU, with its charges before the driver was queried.
struct Unchanged {
    runtime: Arc<SliceRuntime>,
    seat: Seat,
    device: DeviceSlot,
    before: ChargeSample,
}

impl Unchanged {
    /// The process's charges, or `None` if they have changed since.
    fn charge_sample(&self) -> Option<ChargeSample> {
        Some(self.runtime.charge_sample(self.seat, self.device)).filter(|now| *now == self.before)
    }
}

/// Charges at the last sample, by generation of the slice, pid and device.
pub(crate) type LastCharges = BTreeMap<(u64, HostPid, DeviceSlot), ChargeSample>;

/// Samples each process of each slice once. Queries the driver, and so may block.
pub(crate) fn reconcile(agent: &Agent, last: &mut LastCharges) {
    let mut now = LastCharges::new();
    let mut candidates: BTreeMap<GpuUuid, BTreeMap<HostPid, Unchanged>> = BTreeMap::new();
    for runtime in agent.runtimes() {
        for (seat, member) in runtime.occupants().members {
            for (device, gpu) in runtime.devices() {
                let before = runtime.charge_sample(seat, device);
                let who = (runtime.generation, member.pid, device);
                now.insert(who, before);
                if last.get(&who) != Some(&before) {
                    continue;
                }
                let process = Unchanged { runtime: Arc::clone(&runtime), seat, device, before };
                candidates.entry(gpu).or_default().insert(member.pid, process);
            }
        }
    }
    *last = now;
    for (gpu, mut processes) in candidates {
        let Ok(listed) = agent.driver.processes(gpu) else { continue };
        for seen in listed {
            if let (Some(process), Some(taken)) = (processes.remove(&seen.pid), seen.used) {
                reconcile_process(agent, seen.pid, &process, taken);
            }
        }
        for unlisted in processes.into_values() {
            if unlisted.charge_sample().is_some_and(|still| still.used == Bytes::ZERO) {
                unlisted.runtime.drop_excess(unlisted.seat, unlisted.device);
            }
        }
    }
    agent.review_reserves();
}

fn reconcile_process(agent: &Agent, pid: HostPid, process: &Unchanged, taken: Bytes) {
    let Some(still) = process.charge_sample() else { return };
    let beyond = taken.saturating_sub(still.used);
    if process.runtime.shares(process.seat) {
        return;
    }
    // Also with nothing beyond: a process that is charged the slice's context reserve and takes it shows that the
    // reserve is needed.
    let unused = still.used.saturating_sub(taken);
    process.runtime.saw_contexts(process.device, still.context.saturating_sub(unused), beyond);
    if beyond > Bytes::ZERO && process.runtime.charge_overhead(process.seat, process.device, beyond) {
        tracing::info!(
            slice = %process.runtime.name, %pid, %beyond, %taken,
            "the driver took more than was charged; the slice is charged for it"
        );
        agent.note_excess(&process.runtime);
    }
}
