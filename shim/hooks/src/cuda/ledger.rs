//! The ledger of this process, with the driver's result codes for its errors.

use core::ffi::c_int;

use tranche_policy::{Call, Ledger};
use tranche_shm::DeviceSlot;
use tranche_shm::usage::Counter;

use super::abi::{OUT_OF_MEMORY, SUCCESS, code};
use crate::attach::{self, Ours};
use crate::connection::DaemonLine;
use crate::thread;

/// The ledger of this process; out of memory for a process outside a slice. Waits while the slice is away.
#[inline(always)]
pub(crate) fn ledger() -> Result<Ours, c_int> {
    let ledger = attach::ledger().map_err(|attach::Outside| OUT_OF_MEMORY)?;
    attach::be_present(&ledger);
    Ok(ledger)
}

/// Lets the ledger make a call of the driver; outside a slice, the call is made alone.
pub(crate) fn by_ledger<D: FnOnce() -> Result<(), c_int>>(
    driver: D,
    by: impl FnOnce(Ours, D) -> Result<(), c_int>,
) -> c_int {
    code(match attach::ledger() {
        Ok(ledger) => by(ledger, driver),
        Err(attach::Outside) => driver(),
    })
}

/// As [`by_ledger`], for a call that may end shares, which are reported afterwards.
pub(crate) fn ended_by_ledger<D: FnOnce() -> Result<(), c_int>>(
    driver: D,
    by: impl FnOnce(&Ours, D) -> Result<(), c_int>,
) -> c_int {
    by_ledger(driver, |ledger, driver| {
        let ended = by(&ledger, driver);
        ledger.flush_shares(&DaemonLine);
        ended
    })
}

/// Lets the ledger note a call of the driver that has succeeded.
pub(crate) fn noted(real: impl FnOnce() -> c_int, note: impl FnOnce(&Ours)) -> c_int {
    let result = real();
    if result == SUCCESS
        && let Ok(ledger) = attach::ledger()
    {
        note(&ledger);
    }
    result
}

/// Begins a call of this thread that concerns a device's primary context.
pub(crate) fn begin_device_call(
    ledger: &Ledger<'static>,
    device: DeviceSlot,
) -> Result<Call<'static>, c_int> {
    ledger.begin_device_call(thread::number(), device, &DaemonLine).map_err(|_| refused(ledger))
}

/// Counts a refusal, and returns the driver's error for it.
#[cold]
pub(crate) fn refused(ledger: &Ledger<'static>) -> c_int {
    ledger.tenant().count(Counter::Refusals);
    OUT_OF_MEMORY
}
