//! NVML handles, and the slots of the devices that they stand for.

use tranche_policy::{Ledger, uuid};
use tranche_shm::DeviceSlot;

use super::abi::SUCCESS;
use super::driver;

/// Slot of the device behind a handle; `None` outside the slice.
pub(super) fn slot(ledger: &Ledger<'static>, device: u64) -> Option<DeviceSlot> {
    let mut name = [0u8; 96];
    // SAFETY: NVML writes at most the given length, the local's, with its zero included.
    let result = unsafe { driver::nvmlDeviceGetUUID(device, name.as_mut_ptr().cast(), name.len() as u32) };
    let uuid = uuid::parse(&name).filter(|_| result == SUCCESS)?;
    let control = ledger.tenant().control;
    control.devices().find(|slot| control.limits(*slot).uuid == uuid)
}
