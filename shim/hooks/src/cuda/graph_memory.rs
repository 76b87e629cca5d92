//! Memory that the driver keeps behind graphs, and the charge for it.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tranche_policy::{GraphUse, Ledger};
use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use super::mark::EventMarks;
use super::{driver, growth, slots};
use crate::connection::DaemonLine;
use crate::driver_call::number;

/// `CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT`
const USED_NOW: c_int = 0;
/// `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`
const RESERVED_NOW: c_int = 2;

/// True once a graph with memory nodes became ready: else checks are skipped, as in most programs.
static USED: AtomicBool = AtomicBool::new(false);

/// Records that graphs with memory nodes are in use, before the first is ready.
pub(super) fn used() {
    USED.store(true, Relaxed);
}

impl GraphUse for EventMarks {
    fn reserved(&self, device: DeviceSlot) -> Option<u64> {
        ask(device, RESERVED_NOW)
    }

    fn used(&self, device: DeviceSlot) -> Option<u64> {
        ask(device, USED_NOW)
    }

    fn step(&self, device: DeviceSlot) -> Units {
        Units::covering(growth::step(device)).unwrap_or(Units::MAX)
    }
}

/// The driver's figure of the memory behind graphs on a device, in bytes; `None` where it has none.
fn ask(slot: DeviceSlot, attribute: c_int) -> Option<u64> {
    let device = slots::number(slot)?;
    // SAFETY: the attribute is one 64-bit number, which the driver writes into a local.
    number(|bytes| unsafe { driver::cuDeviceGetGraphMemAttribute(device, attribute, bytes) })().ok()
}

/// True once a graph with memory nodes became ready.
pub(super) fn is_used() -> bool {
    USED.load(Relaxed)
}

/// Adjusts the charge for graphs to what the driver keeps.
pub(super) fn settle(ledger: &Ledger<'static>) {
    if USED.load(Relaxed) {
        ledger.settle_graphs(&DaemonLine, &EventMarks);
    }
}

/// Makes the driver free unused memory of graphs; true if there are any.
pub(super) fn reclaim(ledger: &Ledger<'static>) -> bool {
    let used = USED.load(Relaxed);
    if used {
        let devices = ledger.tenant().control.devices().filter_map(slots::number);
        // SAFETY: takes a device's number and no pointer; the driver frees only unused memory.
        devices.for_each(|device| _ = unsafe { driver::cuDeviceGraphMemTrim(device) });
        settle(ledger);
    }
    used
}
