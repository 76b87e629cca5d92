//! Activity of single processes: the slice's rows, by their own pids, among those that NVML lists.

use core::ffi::{c_int, c_void};

use tranche_policy::Ledger;
use tranche_shm::Slot;
use tranche_shm::control::ProcessIdentity;

use super::abi::{
    DRIVER_NOT_LOADED, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_FOUND, SUCCESS, VERSION_MISMATCH,
};
use super::handle::slot;
use super::list::{deliver, listed};
use super::process::visible_pid;
use crate::attach;

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

/// `nvmlProcessUtilizationInfo_v1_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LongSample {
    time_us: u64,
    pid: u32,
    /// Percent of multiprocessors, memory, encoder, decoder, JPEG decoder, optical flow.
    percent: [u32; 6],
}

/// `nvmlProcessesUtilizationInfo_v1_t`
#[repr(C)]
pub(crate) struct Samples {
    version: u32,
    count: u32,
    since: u64,
    rows: *mut LongSample,
}

impl Samples {
    /// Version 1 in the top byte, the size below.
    const VERSION: u32 = 1 << 24 | size_of::<Self>() as u32;
}

/// A session of an encoder or of a screen capture: its number, its process, and `N` further words.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Session<const N: usize> {
    number: u32,
    pid: u32,
    about: [u32; N],
}

/// `nvmlEncoderSessionInfo_t`
pub(crate) type EncoderSession = Session<6>;
/// `nvmlFBCSessionInfo_t`
pub(crate) type CaptureSession = Session<10>;

/// A row of NVML about one process.
trait OfProcess: Copy {
    fn pid(&self) -> u32;
    /// The row with the pid replaced by the program's.
    fn with(self, pid: u32) -> Self;
}

macro_rules! of_process {
    ($([$($parameter:tt)*] $type:ty;)*) => {$(
        impl $($parameter)* OfProcess for $type {
            fn pid(&self) -> u32 {
                self.pid
            }
            fn with(self, pid: u32) -> Self {
                Self { pid, ..self }
            }
        }
    )*};
}
of_process! {
    [] Sample;
    [] LongSample;
    [<const N: usize>] Session<N>;
}

impl OfProcess for u32 {
    fn pid(&self) -> u32 {
        *self
    }
    fn with(self, pid: u32) -> Self {
        pid
    }
}

pub(crate) unsafe fn process_utilization(
    real: unsafe extern "C" fn(u64, *mut Sample, *mut u32, u64) -> c_int,
    device: u64,
    samples: *mut Sample,
    count: *mut u32,
    since: u64,
) -> c_int {
    // SAFETY: `keep` passes memory of the shim's to `real`; `count` and `samples` are valid by the hook's contract.
    unsafe { keep_samples(device, count, samples, |count, rows| real(device, rows, count, since)) }
}

pub(crate) unsafe fn processes_utilization(
    real: unsafe extern "C" fn(u64, *mut Samples) -> c_int,
    device: u64,
    samples: *mut Samples,
) -> c_int {
    // SAFETY: `samples` is null or a structure of the version in its first field, by the hook's contract; NVML
    // receives a structure and memory of the shim's.
    unsafe {
        if samples.is_null() {
            return real(device, samples);
        }
        if (*samples).version != Samples::VERSION {
            return VERSION_MISMATCH;
        }
        let since = (*samples).since;
        keep_samples(device, &raw mut (*samples).count, (*samples).rows, |count, rows| {
            let mut asked = Samples { version: Samples::VERSION, count: *count, since, rows };
            let result = real(device, &mut asked);
            *count = asked.count;
            result
        })
    }
}

/// Lists samples of the slice's processes.
///
/// A caller without an array receives their number; an empty list is an error, as with NVML.
///
/// # Safety
/// As for [`keep`].
unsafe fn keep_samples<T: OfProcess>(
    device: u64,
    count: *mut u32,
    rows: *mut T,
    ask: impl FnMut(&mut u32, *mut T) -> c_int,
) -> c_int {
    // SAFETY: `ask` and both pointers are valid as `keep` requires, by this function's contract.
    unsafe {
        if rows.is_null() && !count.is_null() {
            *count = 0;
        }
        match keep(device, count, rows, ask) {
            SUCCESS if *count == 0 => NOT_FOUND,
            result => result,
        }
    }
}

pub(crate) unsafe fn accounting_pids(
    real: unsafe extern "C" fn(u64, *mut u32, *mut u32) -> c_int,
    device: u64,
    count: *mut u32,
    pids: *mut u32,
) -> c_int {
    // SAFETY: `keep` passes memory of the shim's to `real`; `count` and `pids` are valid by the hook's contract.
    unsafe { keep(device, count, pids, |count, rows| real(device, count, rows)) }
}

/// Passes the call for processes of the slice only.
pub(crate) unsafe fn accounting_stats(
    real: unsafe extern "C" fn(u64, u32, *mut c_void) -> c_int,
    device: u64,
    pid: u32,
    statistics: *mut c_void,
) -> c_int {
    let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
    if statistics.is_null() {
        // SAFETY: NVML rejects the null pointer; the other arguments are valid by the hook's contract.
        return unsafe { real(device, pid, statistics) };
    }
    match members(&ledger).find(|member| visible_pid(*member) == pid) {
        // SAFETY: the other arguments are valid by the hook's contract; the pid is a number by which NVML knows the
        // process.
        Some(member) => unsafe { real(device, member.pid, statistics) },
        None => NOT_FOUND,
    }
}

/// Passes the call for processes of the slice only, where the structure begins with the pid.
pub(crate) unsafe fn accounting_stats_v2(
    real: unsafe extern "C" fn(u64, *mut u32) -> c_int,
    device: u64,
    statistics: *mut u32,
) -> c_int {
    let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
    if statistics.is_null() {
        // SAFETY: NVML rejects the null pointer; the other arguments are valid by the hook's contract.
        return unsafe { real(device, statistics) };
    }
    // SAFETY: `statistics` is not null, and readable and writable by the hook's contract. It holds NVML's pid of the
    // process until `real` returns.
    unsafe {
        let pid = *statistics;
        let Some(member) = members(&ledger).find(|member| visible_pid(*member) == pid) else {
            return NOT_FOUND;
        };
        *statistics = member.pid;
        let result = real(device, statistics);
        *statistics = pid;
        result
    }
}

/// Lists sessions of the slice's processes. A caller without an array receives their number, which is no error.
pub(crate) unsafe fn sessions<const N: usize>(
    real: unsafe extern "C" fn(u64, *mut u32, *mut Session<N>) -> c_int,
    device: u64,
    count: *mut u32,
    sessions: *mut Session<N>,
) -> c_int {
    // SAFETY: `keep` passes memory of the shim's to `real`; `count` and the array are valid by the hook's contract,
    // and `count` is writable if there is no array.
    unsafe {
        if sessions.is_null() && !count.is_null() {
            *count = 0;
        }
        match keep(device, count, sessions, |count, rows| real(device, count, rows)) {
            INSUFFICIENT_SIZE if sessions.is_null() => SUCCESS,
            result => result,
        }
    }
}

/// Name of a process, of the slice's processes only.
pub(crate) fn process_name(real: impl FnOnce() -> c_int, pid: u32) -> c_int {
    let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
    if members(&ledger).any(|member| visible_pid(member) == pid) { real() } else { NOT_FOUND }
}

/// Rows of the slice's processes among those that NVML lists for a device.
///
/// # Safety
/// `count` must be null or valid, `rows` null or of as many rows as `count` holds, and `ask` as [`listed`] requires.
unsafe fn keep<T: OfProcess>(
    device: u64,
    count: *mut u32,
    rows: *mut T,
    ask: impl FnMut(&mut u32, *mut T) -> c_int,
) -> c_int {
    if count.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: `ask` is valid as `listed` requires, by this function's contract.
    let listed = match unsafe { listed(ask) } {
        Ok(listed) => listed,
        Err(error) => return error,
    };
    let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
    if slot(&ledger, device).is_none() {
        return INVALID_ARGUMENT;
    }
    let own = |row: &T| member(members(&ledger), row.pid()).map(|pid| row.with(pid));
    // SAFETY: both pointers are valid as `deliver` requires, by this function's contract.
    unsafe { deliver(listed.iter().filter_map(own), count, rows) }
}

/// Identities of the slice's attached processes.
fn members(ledger: &Ledger<'static>) -> impl Iterator<Item = ProcessIdentity> + use<> {
    let control = ledger.tenant().control;
    (0..control.slots_high()).filter_map(Slot::new).filter_map(move |slot| control.identity(slot))
}

/// The program's pid of the process that has `pid` in NVML.
fn member(mut members: impl Iterator<Item = ProcessIdentity>, pid: u32) -> Option<u32> {
    members.find(|identity| identity.pid == pid).map(visible_pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_matched_by_its_namespace_pid() {
        let outside = ProcessIdentity { pid: 500, start_time: 1, inner_pid: 0 };
        let inside = ProcessIdentity { pid: 501, start_time: 1, inner_pid: 7 };
        let known = |pid| member([outside, inside].into_iter(), pid);
        assert_eq!((known(500), known(501), known(7)), (Some(500), Some(7), None));
    }

    #[test]
    fn structures_are_as_large_as_programs_have_them() {
        assert_eq!((size_of::<Sample>(), size_of::<LongSample>()), (32, 40));
        assert_eq!((size_of::<EncoderSession>(), size_of::<CaptureSession>()), (32, 48));
        assert_eq!(Samples::VERSION, 0x100_0018);
    }
}
