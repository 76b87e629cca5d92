//! Processes: only the slice's, by their own pids, with the charge of each.

use core::ffi::c_int;
use core::ptr::null_mut;

use tranche_policy::Ledger;
use tranche_shm::control::ProcessIdentity;
use tranche_shm::{DeviceSlot, Slot};

use super::abi::{DRIVER_NOT_LOADED, INSUFFICIENT_SIZE, INVALID_ARGUMENT, SUCCESS, VERSION_MISMATCH};
use super::handle::slot;
use super::list::deliver;
use crate::attach;

/// NVML's value for a process that belongs to no MIG instance.
const NO_INSTANCE: u32 = u32::MAX;

/// `nvmlProcessInfo_v1_t`
#[repr(C)]
pub(crate) struct ProcessInfo {
    pid: u32,
    used: u64,
}

/// `nvmlProcessInfo_v2_t`, and what came after it
#[repr(C)]
pub(crate) struct ProcessV2 {
    pid: u32,
    used: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

/// `nvmlProcessDetail_v1_t`
#[repr(C)]
pub(crate) struct Detail {
    pid: u32,
    used: u64,
    gpu_instance: u32,
    compute_instance: u32,
    protected: u64,
}

/// `nvmlProcessDetailList_v1_t`
#[repr(C)]
pub(crate) struct DetailList {
    version: u32,
    mode: u32,
    count: u32,
    rows: *mut Detail,
}

impl DetailList {
    /// Version 1 in the top byte, the size below.
    const VERSION: u32 = 1 << 24 | size_of::<Self>() as u32;
    /// `NVML_PROCESS_MODE_COMPUTE` and `NVML_PROCESS_MODE_ALL`; graphics and MPS are between them.
    const COMPUTE: [u32; 2] = [0, 3];
}

/// A row of a process list, in any of NVML's versions.
pub(crate) trait ProcessRow {
    fn of(pid: u32, used: u64) -> Self;
}

impl ProcessRow for ProcessInfo {
    fn of(pid: u32, used: u64) -> Self {
        Self { pid, used }
    }
}

impl ProcessRow for ProcessV2 {
    fn of(pid: u32, used: u64) -> Self {
        Self { pid, used, gpu_instance: NO_INSTANCE, compute_instance: NO_INSTANCE }
    }
}

impl ProcessRow for Detail {
    fn of(pid: u32, used: u64) -> Self {
        Self { pid, used, gpu_instance: NO_INSTANCE, compute_instance: NO_INSTANCE, protected: 0 }
    }
}

/// Lists the slice's processes with memory on the device.
pub(crate) unsafe fn compute_processes<R: ProcessRow>(
    real: unsafe extern "C" fn(u64, *mut u32, *mut R) -> c_int,
    device: u64,
    count: *mut u32,
    rows: *mut R,
) -> c_int {
    // SAFETY: with a count of zero, a local, `real` only writes the number of rows; the program's own pointers are
    // null or valid by the hook's contract, with as many rows as its count holds.
    unsafe {
        let asked = real(device, &mut 0, null_mut());
        answer(asked, device, count, rows, true)
    }
}

/// Lists graphics and MPS clients: always none, as a slice cannot know of any.
pub(crate) unsafe fn other_processes<R: ProcessRow>(
    real: unsafe extern "C" fn(u64, *mut u32, *mut R) -> c_int,
    device: u64,
    count: *mut u32,
    rows: *mut R,
) -> c_int {
    // SAFETY: as in `compute_processes`: the count is a local, and the program's pointers are valid by the hook's
    // contract.
    unsafe {
        let asked = real(device, &mut 0, null_mut());
        answer(asked, device, count, rows, false)
    }
}

/// Lists processes of the mode that the list names.
pub(crate) unsafe fn detail_list(
    real: unsafe extern "C" fn(u64, *mut DetailList) -> c_int,
    device: u64,
    list: *mut DetailList,
) -> c_int {
    // SAFETY: `list` is null or a list of the version in its first field, by the hook's contract.
    unsafe {
        if list.is_null() {
            return real(device, list);
        }
        // The layout of a later version is not known, and NVML's own list would show other slices' processes.
        if (*list).version != DetailList::VERSION {
            return VERSION_MISMATCH;
        }
        let mode = (*list).mode;
        let mut empty = DetailList { version: DetailList::VERSION, mode, count: 0, rows: null_mut() };
        let asked = real(device, &mut empty);
        answer(asked, device, &raw mut (*list).count, (*list).rows, DetailList::COMPUTE.contains(&mode))
    }
}

/// Writes the slice's processes, or none of them, if NVML's own call succeeded.
///
/// # Safety
/// `count` must be null or valid, and `rows` null or of as many rows as `count` holds.
unsafe fn answer<R: ProcessRow>(
    asked: c_int,
    device: u64,
    count: *mut u32,
    rows: *mut R,
    some: bool,
) -> c_int {
    if !matches!(asked, SUCCESS | INSUFFICIENT_SIZE) {
        return asked;
    }
    let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
    // A device outside the slice is no device.
    let Some(slot) = slot(&ledger, device) else { return INVALID_ARGUMENT };
    let listed = holders(&ledger, slot).filter(|_| some);
    // SAFETY: both pointers are valid as `deliver` requires, by this function's contract.
    unsafe { deliver(listed.map(|(pid, used)| R::of(pid, used)), count, rows) }
}

fn holders(ledger: &Ledger<'static>, device: DeviceSlot) -> impl Iterator<Item = (u32, u64)> {
    let tenant = ledger.tenant();
    let members = (0..tenant.control.slots_high()).filter_map(Slot::new);
    members.filter_map(move |slot| {
        let used = tenant.used_by(slot, device);
        tenant.control.identity(slot).filter(|_| used > 0).map(|identity| (visible_pid(identity), used))
    })
}

/// Pid of a process in its own namespace.
pub(super) fn visible_pid(identity: ProcessIdentity) -> u32 {
    if identity.inner_pid == 0 { identity.pid } else { identity.inner_pid }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_large_as_programs_have_them() {
        assert_eq!((size_of::<ProcessInfo>(), size_of::<ProcessV2>(), size_of::<Detail>()), (16, 24, 32));
        assert_eq!(DetailList::VERSION, 0x100_0018);
    }
}
