//! What the driver takes by itself, beside what is charged: seen from NVML while a process stood still.
//!
//! A context is charged before it is made, by calibration. The driver may take more: for another kind of
//! context, for the code of modules, for local memory. A sample of what it holds for a process counts only if the
//! process charged nothing while it was taken, nor since the sample before: so no call that is charged afterwards
//! was under way. Then the difference is the driver's own, and charged to the slice.

use std::collections::BTreeMap;
use std::sync::Arc;

use tranche_domain::id::{GpuUuid, HostPid};
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;

use crate::agent::Agent;
use crate::tenancy::{Still, Tenancy};

/// A process of a slice on one GPU, as it stood before the driver was asked.
struct Stood {
    tenancy: Arc<Tenancy>,
    seat: Seat,
    device: DeviceSlot,
    before: Still,
}

impl Stood {
    /// What the process is charged, if it charged nothing since.
    fn still(&self) -> Option<Still> {
        Some(self.tenancy.still(self.seat, self.device)).filter(|now| *now == self.before)
    }
}

/// How everybody stood at the last look, by slice and its making, process and device.
pub(crate) type LastLook = BTreeMap<(u64, HostPid, DeviceSlot), Still>;

/// Looks at every process of every slice once. Asks the driver, and so may block.
pub(crate) fn look(agent: &Agent) {
    let mut last = agent.last_look.lock().expect("nothing panics while it holds the last look");
    let mut now = LastLook::new();
    let mut stood: BTreeMap<GpuUuid, BTreeMap<HostPid, Stood>> = BTreeMap::new();
    for tenancy in agent.tenancies() {
        for (seat, member) in tenancy.occupants().members {
            for (device, gpu) in tenancy.devices() {
                let before = tenancy.still(seat, device);
                let who = (tenancy.generation, member.pid, device);
                now.insert(who, before);
                if last.get(&who) != Some(&before) {
                    continue;
                }
                let process = Stood { tenancy: Arc::clone(&tenancy), seat, device, before };
                stood.entry(gpu).or_default().insert(member.pid, process);
            }
        }
    }
    *last = now;
    drop(last);
    for (gpu, mut processes) in stood {
        let Ok(listed) = agent.driver.processes(gpu) else { continue };
        for seen in listed {
            if let (Some(process), Some(taken)) = (processes.remove(&seen.pid), seen.used) {
                compare(agent, seen.pid, &process, taken);
            }
        }
        for unlisted in processes.into_values() {
            if unlisted.still().is_some_and(|still| still.used == Bytes::ZERO) {
                unlisted.tenancy.forgive(unlisted.seat, unlisted.device);
            }
        }
    }
    agent.review_reserves();
}

fn compare(agent: &Agent, pid: HostPid, process: &Stood, taken: Bytes) {
    let Some(still) = process.still() else { return };
    let beyond = taken.saturating_sub(still.used);
    if process.tenancy.shares(process.seat) {
        return;
    }
    // Also where nothing is beyond: a process that was charged the slice's reserve and takes it shows that it is needed.
    let unused = still.used.saturating_sub(taken);
    process.tenancy.saw_contexts(process.device, still.context.saturating_sub(unused), beyond);
    if beyond > Bytes::ZERO && process.tenancy.true_up(process.seat, process.device, beyond) {
        tracing::info!(
            slice = %process.tenancy.name, %pid, %beyond, %taken,
            "the driver took more than was charged; the slice is charged for it"
        );
        agent.note_excess(&process.tenancy);
    }
}
