//! The governed functions of `libnvidia-ml.so.1`: the slice's devices, its memory, its processes.
//!
//! The real function is always asked first, so that errors are NVML's own; only good answers are rewritten.

use core::ffi::{c_char, c_int};

use tranche_policy::Ledger;
use tranche_shm::control::Identity;
use tranche_shm::{DeviceSlot, Slot};

use crate::attach;

/// `NVML_SUCCESS`
const SUCCESS: c_int = 0;
/// `NVML_ERROR_INVALID_ARGUMENT`
const INVALID_ARGUMENT: c_int = 2;
/// `NVML_ERROR_NOT_FOUND`
const NOT_FOUND: c_int = 6;
/// `NVML_ERROR_INSUFFICIENT_SIZE`
const INSUFFICIENT_SIZE: c_int = 7;
/// `NVML_ERROR_DRIVER_NOT_LOADED`
const DRIVER_NOT_LOADED: c_int = 9;
/// `NVML_ERROR_FUNCTION_NOT_FOUND`
pub(crate) const FUNCTION_NOT_FOUND: c_int = 13;
/// What NVML writes where a process belongs to no MIG instance.
const NO_INSTANCE: u32 = u32::MAX;

pub(crate) mod driver {
    //! Functions of NVML that the hooks call for themselves.
    #![allow(non_snake_case, reason = "the driver's names")]

    use core::ffi::{c_char, c_int};

    use crate::libraries::{Library, Symbol};

    crate::real_functions! {
        Nvml {
            nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut u64);
            nvmlDeviceGetUUID(device: u64, uuid: *mut c_char, length: u32);
        }
    }
}

/// `nvmlMemory_t`
#[repr(C)]
pub(crate) struct Memory {
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

/// `nvmlUtilization_t`
#[repr(C)]
pub(crate) struct Rates {
    gpu: u32,
    memory: u32,
}

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

pub(crate) unsafe fn init(real: unsafe extern "C" fn() -> c_int) -> c_int {
    match attach::ledger() {
        // SAFETY: the program's own call.
        Ok(_) => unsafe { real() },
        Err(attach::Outside) => DRIVER_NOT_LOADED,
    }
}

pub(crate) unsafe fn init_with_flags(real: unsafe extern "C" fn(u32) -> c_int, flags: u32) -> c_int {
    match attach::ledger() {
        // SAFETY: the program's own call.
        Ok(_) => unsafe { real(flags) },
        Err(attach::Outside) => DRIVER_NOT_LOADED,
    }
}

pub(crate) unsafe fn count(real: unsafe extern "C" fn(*mut u32) -> c_int, count: *mut u32) -> c_int {
    let mut all = 0;
    // SAFETY: the program's own call with a local for the answer.
    let result = unsafe { real(&mut all) };
    if result != SUCCESS {
        return result;
    }
    let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
    if count.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: not null, and the program promises that it can be written.
    unsafe { *count = ledger.tenant().control.device_count() as u32 };
    SUCCESS
}

pub(crate) unsafe fn by_index(
    real: unsafe extern "C" fn(u32, *mut u64) -> c_int,
    index: u32,
    device: *mut u64,
) -> c_int {
    let mut first = 0;
    // SAFETY: a call with a local, to hear whether NVML is ready at all; it knows device 0 if any.
    let ready = unsafe { real(0, &mut first) };
    if ready != SUCCESS {
        return ready;
    }
    let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
    let control = ledger.tenant().control;
    let slot = DeviceSlot::new(index as usize).filter(|slot| slot.index() < control.device_count());
    let Some(slot) = slot.filter(|_| !device.is_null()) else { return INVALID_ARGUMENT };
    let name = uuid_name(control.limits(slot).uuid);
    // SAFETY: the name ends with a zero; the program promises that `device`, not null, can be written.
    unsafe { driver::nvmlDeviceGetHandleByUUID(name.as_ptr().cast(), device) }
}

/// By UUID, serial number or bus id: the real answer, unless it is not the slice's.
pub(crate) unsafe fn by_name(
    real: unsafe extern "C" fn(*const c_char, *mut u64) -> c_int,
    name: *const c_char,
    device: *mut u64,
) -> c_int {
    let mut found = 0;
    // SAFETY: the program's own call with a local for the answer.
    let result = unsafe { real(name, &mut found) };
    if result != SUCCESS {
        return result;
    }
    let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
    if device.is_null() {
        return INVALID_ARGUMENT;
    }
    if slot(&ledger, found).is_none() {
        return NOT_FOUND;
    }
    // SAFETY: not null, and the program promises that it can be written.
    unsafe { *device = found };
    SUCCESS
}

pub(crate) unsafe fn index(
    real: unsafe extern "C" fn(u64, *mut u32) -> c_int,
    device: u64,
    index: *mut u32,
) -> c_int {
    // SAFETY: the program's own call; NVML was content with `index` before it is written again.
    unsafe { rewrite(real(device, index), device, |_, slot| *index = slot.index() as u32) }
}

pub(crate) unsafe fn memory(
    real: unsafe extern "C" fn(u64, *mut Memory) -> c_int,
    device: u64,
    memory: *mut Memory,
) -> c_int {
    // SAFETY: as in `index`.
    unsafe {
        rewrite(real(device, memory), device, |ledger, slot| {
            let view = view(ledger, slot);
            *memory = Memory { total: view.total, free: view.free, used: view.used };
        })
    }
}

pub(crate) unsafe fn memory_v2(
    real: unsafe extern "C" fn(u64, *mut MemoryV2) -> c_int,
    device: u64,
    memory: *mut MemoryV2,
) -> c_int {
    // SAFETY: as in `index`.
    unsafe {
        rewrite(real(device, memory), device, |ledger, slot| {
            let view = view(ledger, slot);
            let version = (*memory).version;
            *memory = MemoryV2 { version, total: view.total, reserved: 0, free: view.free, used: view.used };
        })
    }
}

fn view(ledger: &Ledger<'static>, slot: DeviceSlot) -> tranche_policy::MemoryView {
    crate::cuda::pool::settle(ledger);
    ledger.tenant().view(slot)
}

pub(crate) unsafe fn utilization(
    real: unsafe extern "C" fn(u64, *mut Rates) -> c_int,
    device: u64,
    rates: *mut Rates,
) -> c_int {
    // SAFETY: as in `index`.
    unsafe {
        rewrite(real(device, rates), device, |ledger, slot| {
            let (gpu, memory) = ledger.tenant().control.utilization(slot);
            *rates = Rates { gpu, memory };
        })
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

/// Lets `change` correct a good answer about one of the slice's devices.
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

/// Which of the slice's devices a handle stands for.
fn slot(ledger: &Ledger<'static>, device: u64) -> Option<DeviceSlot> {
    let mut name = [0u8; 96];
    // SAFETY: writes at most the length given, its zero included.
    let result = unsafe { driver::nvmlDeviceGetUUID(device, name.as_mut_ptr().cast(), name.len() as u32) };
    let uuid = parse_uuid(&name).filter(|_| result == SUCCESS)?;
    let control = ledger.tenant().control;
    let mut devices = (0..control.device_count()).filter_map(DeviceSlot::new);
    devices.find(|slot| control.limits(*slot).uuid == uuid)
}

/// `GPU-` and a UUID in the usual form, with a final zero.
fn uuid_name(uuid: [u8; 16]) -> [u8; 41] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut name = *b"GPU-00000000-0000-0000-0000-000000000000\0";
    let places = (4..40).filter(|at| ![12, 17, 22, 27].contains(at));
    let digits = uuid.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    for (place, digit) in places.zip(digits) {
        name[place] = DIGITS[usize::from(digit)];
    }
    name
}

/// The UUID in a device's name, whatever stands before it.
fn parse_uuid(name: &[u8]) -> Option<[u8; 16]> {
    let end = name.iter().position(|byte| *byte == 0)?;
    let start = name.iter().position(|byte| *byte == b'-')? + 1;
    let mut uuid = [0; 16];
    let mut count = 0;
    for byte in name.get(start..end)?.iter().filter(|byte| **byte != b'-') {
        let digit = char::from(*byte).to_digit(16)? as u8;
        let place = uuid.get_mut(count / 2)?;
        *place = *place << 4 | digit;
        count += 1;
    }
    (count == 32).then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_back_from_its_name() {
        let uuid = core::array::from_fn(|at| at as u8 * 13 + 3);
        assert_eq!(parse_uuid(&uuid_name(uuid)), Some(uuid));
        assert_eq!(&uuid_name([0xab; 16])[..12], b"GPU-abababab");
        for bad in [&b"GPU-12\0"[..], b"GPU\0", b"", b"GPU-zz\0", &[b'-'; 60]] {
            assert_eq!(parse_uuid(bad), None);
        }
    }

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
