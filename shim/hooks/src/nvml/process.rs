//! Processes: only the slice's, by the pids they know themselves by, with what each is charged.

use core::ffi::c_int;

use tranche_policy::Ledger;
use tranche_shm::control::Identity;
use tranche_shm::{DeviceSlot, Slot};

use super::{DRIVER_NOT_LOADED, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_FOUND, SUCCESS, slot};
use crate::attach;

/// What NVML writes where a process belongs to no MIG instance.
const NO_INSTANCE: u32 = u32::MAX;

/// `nvmlProcessInfo_v1_t`
#[repr(C)]
pub(crate) struct Process {
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

/// `nvmlProcessUtilizationSample_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pid: u32,
    time_us: u64,
    multiprocessors: u32,
    memory: u32,
    encoder: u32,
    decoder: u32,
}

/// A row of a process list.
pub(crate) trait Row {
    fn of(pid: u32, used: u64) -> Self;
}

impl Row for Process {
    fn of(pid: u32, used: u64) -> Self {
        Self { pid, used }
    }
}

impl Row for ProcessV2 {
    fn of(pid: u32, used: u64) -> Self {
        Self { pid, used, gpu_instance: NO_INSTANCE, compute_instance: NO_INSTANCE }
    }
}

/// The slice's processes that hold something of the device.
pub(crate) unsafe fn compute_processes<R: Row>(
    real: unsafe extern "C" fn(u64, *mut u32, *mut R) -> c_int,
    device: u64,
    count: *mut u32,
    rows: *mut R,
) -> c_int {
    // SAFETY: the program promises that `count`, if not null, can be written, and that many rows.
    unsafe {
        match ready(real, device, count, rows) {
            Ok((ledger, Some(slot))) => fill(holders(&ledger, slot), count, rows),
            Ok((_, None)) => real(device, count, rows),
            Err(error) => error,
        }
    }
}

/// Graphics and MPS clients: a slice has none that it could know of.
pub(crate) unsafe fn other_processes<R: Row>(
    real: unsafe extern "C" fn(u64, *mut u32, *mut R) -> c_int,
    device: u64,
    count: *mut u32,
    rows: *mut R,
) -> c_int {
    // SAFETY: as in `compute_processes`.
    unsafe {
        match ready(real, device, count, rows) {
            Ok((_, Some(_))) => fill(core::iter::empty(), count, rows),
            Ok((_, None)) => real(device, count, rows),
            Err(error) => error,
        }
    }
}

/// Hears from NVML whether the question makes sense, then finds the device in the slice.
///
/// # Safety
/// `real` must be the function of NVML that the program called.
unsafe fn ready<R>(
    real: unsafe extern "C" fn(u64, *mut u32, *mut R) -> c_int,
    device: u64,
    count: *mut u32,
    rows: *mut R,
) -> Result<(Ledger<'static>, Option<DeviceSlot>), c_int> {
    let mut none = 0;
    // SAFETY: a count of zero asks only how many there are; nothing but the local is written.
    match unsafe { real(device, &mut none, core::ptr::null_mut()) } {
        SUCCESS | INSUFFICIENT_SIZE => {}
        error => return Err(error),
    }
    // SAFETY: not null, and the program promises that it can be read.
    if count.is_null() || rows.is_null() && unsafe { *count } > 0 {
        return Err(INVALID_ARGUMENT);
    }
    let ledger = attach::ledger().map_err(|attach::Outside| DRIVER_NOT_LOADED)?;
    Ok((ledger, slot(&ledger, device)))
}

fn holders(ledger: &Ledger<'static>, device: DeviceSlot) -> impl Iterator<Item = (u32, u64)> {
    let tenant = ledger.tenant();
    let members = (0..tenant.control.slots_high()).filter_map(Slot::new);
    members.filter_map(move |slot| {
        let used = tenant.used_by(slot, device);
        tenant.control.identity(slot).filter(|_| used > 0).map(|identity| (visible_pid(identity), used))
    })
}

fn visible_pid(identity: Identity) -> u32 {
    if identity.inner_pid == 0 { identity.pid } else { identity.inner_pid }
}

/// Writes what fits and says how many there are.
///
/// # Safety
/// `count` must be valid and `rows` as long as it says.
unsafe fn fill<R: Row>(holders: impl Iterator<Item = (u32, u64)>, count: *mut u32, rows: *mut R) -> c_int {
    // SAFETY: the caller's promise; only indices below `room` are written.
    unsafe {
        let room = *count;
        let mut total = 0;
        for (pid, used) in holders {
            if total < room {
                rows.add(total as usize).write(R::of(pid, used));
            }
            total += 1;
        }
        *count = total;
        if total > room { INSUFFICIENT_SIZE } else { SUCCESS }
    }
}

pub(crate) unsafe fn process_utilization(
    real: unsafe extern "C" fn(u64, *mut Sample, *mut u32, u64) -> c_int,
    device: u64,
    samples: *mut Sample,
    count: *mut u32,
    since: u64,
) -> c_int {
    // SAFETY: the program's own call; of what NVML wrote, `count` samples, some are kept and moved forward.
    unsafe {
        let result = real(device, samples, count, since);
        let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
        if result != SUCCESS || samples.is_null() || count.is_null() || slot(&ledger, device).is_none() {
            return result;
        }
        let mut kept = 0;
        for at in 0..*count as usize {
            let sample = *samples.add(at);
            if let Some(pid) = member(&ledger, sample.pid) {
                *samples.add(kept) = Sample { pid, ..sample };
                kept += 1;
            }
        }
        *count = kept as u32;
        if kept == 0 { NOT_FOUND } else { SUCCESS }
    }
}

/// The pid by which the slice knows the process that NVML calls `pid`.
fn member(ledger: &Ledger<'static>, pid: u32) -> Option<u32> {
    let control = ledger.tenant().control;
    let members = (0..control.slots_high()).filter_map(Slot::new).filter_map(|slot| control.identity(slot));
    members.into_iter().find(|identity| identity.pid == pid).map(visible_pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_does_not_fit_says_how_long_it_is() {
        let mut rows = [const { Process { pid: 0, used: 0 } }; 2];
        let mut count = 1;
        // SAFETY: one row is announced and two are there.
        let result = unsafe { fill([(7, 70), (8, 80)].into_iter(), &mut count, rows.as_mut_ptr()) };
        assert_eq!((result, count, rows[0].pid, rows[1].pid), (INSUFFICIENT_SIZE, 2, 7, 0));
        // SAFETY: two rows are announced and two are there.
        let result = unsafe { fill([(7, 70), (8, 80)].into_iter(), &mut count, rows.as_mut_ptr()) };
        assert_eq!((result, count, rows[1].used), (SUCCESS, 2, 80));
    }
}
