//! Governed functions of `libnvidia-ml.so.1`: the slice's devices, its memory, its processes.
//!
//! The real function is always called first, so that errors are NVML's own; only results of successful calls are
//! rewritten. The contract of every hook is that of [`crate::cuda`]: pointer arguments are valid as NVML documents
//! them.

pub(crate) mod abi;
pub(crate) mod driver;
mod handle;
mod list;
pub(crate) mod process;
pub(crate) mod topology;
pub(crate) mod usage;

use core::ffi::{c_char, c_int};

use tranche_policy::{Ledger, uuid};
use tranche_shm::DeviceSlot;

use self::abi::{DRIVER_NOT_LOADED, NOT_FOUND, SUCCESS, VERSION_MISMATCH};
use self::handle::slot;
use crate::attach;
use crate::cuda::reclaim;
use crate::driver_call::number;

/// `nvmlMemory_t`
#[repr(C)]
pub(crate) struct NvmlMemory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`
#[repr(C)]
pub(crate) struct MemoryV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

impl MemoryV2 {
    /// `nvmlMemory_v2`: the size of the structure and its version.
    const VERSION: u32 = size_of::<Self>() as u32 | 2 << 24;
}

/// `nvmlUtilization_t`
#[repr(C)]
pub(crate) struct Rates {
    gpu: u32,
    memory: u32,
}

pub(crate) fn init(real: impl FnOnce() -> c_int) -> c_int {
    match attach::ledger() {
        Ok(_) => real(),
        Err(attach::Outside) => DRIVER_NOT_LOADED,
    }
}

pub(crate) fn count(real: impl Fn(*mut u32) -> c_int) -> Result<u32, c_int> {
    number(real)()?;
    let ledger = attach::ledger().map_err(|attach::Outside| DRIVER_NOT_LOADED)?;
    Ok(ledger.tenant().control.device_count() as u32)
}

pub(crate) unsafe fn by_index(
    real: unsafe extern "C" fn(u32, *mut u64) -> c_int,
    index: u32,
    device: *mut u64,
) -> c_int {
    let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
    let control = ledger.tenant().control;
    let Some(slot) = control.devices().nth(index as usize).filter(|_| !device.is_null()) else {
        let mut none = 0;
        // SAFETY: `real` writes to a local, and returns NVML's own error for a device that cannot exist.
        return unsafe { real(u32::MAX, &mut none) };
    };
    let name = uuid::name(control.limits(slot).uuid);
    // SAFETY: the name ends with a zero; `device` is not null, and writable by the hook's contract.
    unsafe { driver::nvmlDeviceGetHandleByUUID(name.as_ptr().cast(), device) }
}

/// Device by UUID, serial number or bus id: NVML's result, unless it is outside the slice.
pub(crate) unsafe fn by_name(
    real: unsafe extern "C" fn(*const c_char, *mut u64) -> c_int,
    name: *const c_char,
    device: *mut u64,
) -> c_int {
    if device.is_null() {
        // SAFETY: NVML rejects the null pointer; the other arguments are valid by the hook's contract.
        return unsafe { real(name, device) };
    }
    let mut found = 0;
    // SAFETY: `real` writes to a local; the other arguments are the program's, valid by the hook's contract.
    let result = unsafe { real(name, &mut found) };
    if result != SUCCESS {
        return result;
    }
    let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
    if slot(&ledger, found).is_none() {
        return NOT_FOUND;
    }
    // SAFETY: not null, and writable by the hook's contract.
    unsafe { *device = found };
    SUCCESS
}

pub(crate) unsafe fn index(real: impl FnOnce() -> c_int, device: u64, index: *mut u32) -> c_int {
    // SAFETY: writable by the hook's contract, and written after NVML's success.
    rewrite(real(), device, |_, slot| unsafe { *index = slot.index() as u32 })
}

pub(crate) unsafe fn memory(real: impl FnOnce() -> c_int, device: u64, memory: *mut NvmlMemory) -> c_int {
    rewrite(real(), device, |ledger, slot| {
        let view = view(ledger, slot);
        // SAFETY: writable by the hook's contract, and written after NVML's success.
        unsafe { *memory = NvmlMemory { total: view.total, free: view.free, used: view.used } };
    })
}

pub(crate) unsafe fn memory_v2(real: impl FnOnce() -> c_int, device: u64, memory: *mut MemoryV2) -> c_int {
    // A later version may have fields that are not rewritten here.
    // SAFETY: null, or it begins with the version that the program wrote.
    if !memory.is_null() && unsafe { (*memory).version } != MemoryV2::VERSION {
        return VERSION_MISMATCH;
    }
    rewrite(real(), device, |ledger, slot| {
        let view = view(ledger, slot);
        let version = MemoryV2::VERSION;
        let shown = MemoryV2 { version, total: view.total, reserved: 0, free: view.free, used: view.used };
        // SAFETY: writable by the hook's contract, and written after NVML's success.
        unsafe { *memory = shown };
    })
}

fn view(ledger: &Ledger<'static>, slot: DeviceSlot) -> tranche_policy::MemoryView {
    reclaim::settle(ledger);
    ledger.tenant().view(slot)
}

pub(crate) unsafe fn utilization(real: impl FnOnce() -> c_int, device: u64, rates: *mut Rates) -> c_int {
    rewrite(real(), device, |ledger, slot| {
        let (gpu, memory) = ledger.tenant().control.utilization(slot);
        // SAFETY: writable by the hook's contract, and written after NVML's success.
        unsafe { *rates = Rates { gpu, memory } };
    })
}

/// Lets `change` rewrite a successful result for one of the slice's devices.
fn rewrite(result: c_int, device: u64, change: impl FnOnce(&Ledger<'static>, DeviceSlot)) -> c_int {
    if result != SUCCESS {
        return result;
    }
    let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
    if let Some(slot) = slot(&ledger, device) {
        change(&ledger, slot);
    }
    SUCCESS
}
